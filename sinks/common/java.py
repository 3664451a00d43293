"""Java classes by their full names, for sinks that reach into Spark's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
"""The class that makes Scala's collections of Python's."""


def java_class(session: SparkSession, name: str) -> Any:
    """A class, or a Scala object, that is known to be there.

    `jvm.org.apache.Name` asks for `org`, `org.apache` and so on in turn, and Java looks for each in every jar: 1 to 3 ms each
    time. A full name needs no search.

    Args:
        session: in whose JVM.
        name: with its package; `Outer$Inner` for a class within a class.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)
