"""Errors of Spark, and of the user code that it runs, as brief messages of our own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from twophase.errors import DeclinedError, TwoPhaseError, carried
from twophase.failure_reason import CheckpointFailureReason
from twophase.redaction import shown

_SHOWN = 600
_CAUSED_BY = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
_TASK_FAILURES = ("Job aborted due to stage failure", "[TASK_WRITE_FAILED]")


def failure(error: BaseException) -> Exception:
    """Return what foreign code raised, as an exception that every caller expects.

    A `SystemExit` would end the thread that answers Spark, and the JVM would wait for that
    answer for ever (H70).
    """
    if isinstance(error, Exception):
        return error
    found = RuntimeError(
        f"{type(error).__name__} was raised in the job's thread: {shown(str(error))}"
    )
    found.__cause__ = error
    return found


def declined(
    error: BaseException, what: str, reason: CheckpointFailureReason | None = None
) -> TwoPhaseError:
    """Return our error that Spark carries, or a DeclinedError about any other.

    Args:
        error: as Spark or a user function raised it.
        what: what failed, as the subject of the message.
        reason: of the DeclinedError; None finds out whether a task failed.
    """
    return carried(error) or as_declined(error, what, reason)


def as_declined(
    error: BaseException, what: str, reason: CheckpointFailureReason | None = None
) -> DeclinedError:
    """Return a DeclinedError about an error that is not ours. The arguments: see `declined`."""
    if reason is None and _is_task_failure(error):
        reason = CheckpointFailureReason.TASK_FAILURE
    return DeclinedError(
        f"{what} failed: {type(error).__name__}: {_root_cause(str(error))}.", reason=reason
    )


def _is_task_failure(error: BaseException) -> bool:
    """Return whether a failed Spark task caused the pre-commit failure, rather than a sink.

    Spark 4 raises the task's own error where it has one (`PythonException`,
    `SparkRuntimeException`), and "Job aborted due to stage failure" otherwise. PySpark turns what
    it knows into exceptions of its own and leaves the rest as py4j's, as it does an error of a
    sink's own Java calls.

    Args:
        error: as the sink, or Spark's own call, raised it.
    """
    if isinstance(error, CapturedException):
        return not isinstance(error, AnalysisException | IllegalArgumentException)
    if isinstance(error, Py4JJavaError | PySparkException):
        return any(text in str(error) for text in _TASK_FAILURES)
    return False


def _root_cause(text: str) -> str:
    """Return the root cause that a text names and its first lines, without stack frames.

    It is marked as data, since the values of rows may be in it.
    """
    lines = list(_lines(text))
    causes = [line for line in lines if line.startswith(_CAUSED_BY)]
    raised = [line for before, line in itertools.pairwise(lines) if _begins_traceback(before)]
    first = [line for line in lines if line != _TRACEBACK]
    return shown(" | ".join(dict.fromkeys([*causes[-1:], *raised[-1:], *first[:3]])), _SHOWN)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text but for Java's frames and, in a traceback, Python's."""
    in_traceback = False
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("at "):
            continue
        in_traceback = _begins_traceback(line) or (in_traceback and line[0].isspace())
        if _begins_traceback(line) or not in_traceback:
            yield line.strip()


def _begins_traceback(line: str) -> bool:
    """Return whether the frames of a Python traceback follow a line."""
    return line.rstrip().endswith(_TRACEBACK)
