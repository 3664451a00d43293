"""The session, classes and errors of Spark's JVM, for sinks that reach into it."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from twophase.errors import PreflightError

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
"""The class that converts Python's collections to Scala's."""


def active_session(sink: str) -> SparkSession:
    """Return this thread's active Spark session, or else the first one.

    Args:
        sink: the kind of sink, for the error.

    Raises:
        PreflightError: there is none.
    """
    try:
        return SparkSession.active()
    except PySparkException as error:
        raise PreflightError(
            f"The {sink} sink needs a running Spark session.", remedy="start the job from one."
        ) from error


def brief(error: Exception) -> str:
    """Return the first two lines of an error of Spark's that are not of its stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " | ".join([line for line in lines if line and not line.startswith("at ")][:2])


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
