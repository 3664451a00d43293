"""Distinguishes Spark's own refusal of a name or columns from a failing metastore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

_TAKEN = "LOCATION_ALREADY_EXISTS"
_OF_THE_METASTORE = (
    "org.apache.hadoop.",
    "org.apache.thrift.",
    "java.net.",
    "java.io.",
    "java.sql.",
)


def is_refusal(error: Exception) -> bool:
    """Return whether a statement was refused for its content, and would be refused again.

    Spark wraps any error of its metastore client in an `AnalysisException`, which it also raises
    for a wrong name: only the causes tell them apart.

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
    """Return the Java classes of an exception and of its causes."""
    # pyspark keeps the Java exception there, and offers no other way to its causes.
    java: Any = getattr(error, "_origin", None)
    while java is not None:
        yield str(java.getClass().getName())
        java = java.getCause()
