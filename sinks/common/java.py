"""Java classes by their full names, for sinks that reach into Spark's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
"""The class that converts Python's collections to Scala's."""


def java_class(session: SparkSession, name: str) -> Any:
    """Return a Java class, or a Scala object, that is known to exist.

    `jvm.org.apache.Name` asks for `org`, `org.apache` and so on in turn, and Java searches every
    jar for each: 1 to 3 ms each time. A full name needs no search.

    Args:
        session: the session in whose JVM it is.
        name: with its package; `Outer$Inner` for a nested class.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)
