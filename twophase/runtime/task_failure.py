"""Tells a failed Spark task, with all its tries used up, from an error of a sink on the driver.

Spark 4 raises the task's own error where it has one (`PythonException`, `SparkRuntimeException`),
and "Job aborted due to stage failure" otherwise. PySpark turns what it knows into exceptions
of its own and leaves the rest as py4j's, as it does an error of a sink's own Java calls.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException

_TEXTS = ("Job aborted due to stage failure", "[TASK_WRITE_FAILED]")


def is_task_failure(error: BaseException) -> bool:
    """Return whether a pre-commit failed because of a task of Spark's.

    Args:
        error: as the sink, or Spark's own call, raised it.
    """
    if isinstance(error, CapturedException):
        return not isinstance(error, AnalysisException | IllegalArgumentException)
    if isinstance(error, Py4JJavaError | PySparkException):
        return any(text in str(error) for text in _TEXTS)
    return False
