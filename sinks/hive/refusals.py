"""What Spark itself says against a name or columns, told from a metastore that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

_TAKEN = "LOCATION_ALREADY_EXISTS"
_OF_THE_METASTORE = ("org.apache.hadoop.", "org.apache.thrift.", "java.net.", "java.io.", "java.sql.")


def is_refusal(error: Exception) -> bool:
    """Whether a statement was refused for what it says, and would be again.

    Spark wraps whatever its metastore client raises into an `AnalysisException`, which is also what it raises for a wrong
    name: only the causes tell them apart.

    Args:
        error: what Spark or py4j raised.

    Returns:
        False if the metastore has failed, or the JVM no longer tells.
    """
    if not isinstance(error, PySparkException):
        return False
    try:
        refused = isinstance(error, AnalysisException) or error.getCondition() == _TAKEN
        return refused and not any(name.startswith(_OF_THE_METASTORE) for name in _classes(error))
    except Py4JError:
        return False


def _classes(error: PySparkException) -> Iterator[str]:
    """The Java classes of an exception and of its causes."""
    # pyspark keeps the Java exception there, and offers no other way to its causes.
    java: Any = getattr(error, "_origin", None)
    while java is not None:
        yield str(java.getClass().getName())
        java = java.getCause()
