"""Errors of Spark, and of the user code that it runs, as brief messages of our own."""

from __future__ import annotations

import builtins
import itertools
import re
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException, PythonException

from twophase.contract.source_entry_points import loss_of
from twophase.errors import (
    DeclinedError,
    RejectedRowsError,
    SourceLossError,
    TwoPhaseError,
    carried,
    fingerprint_of,
)
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.redaction import shown

_SHOWN = 600
_CAUSED_BY = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[\w.]+")
_DATA = "22", "23"
"""The classes of SQLSTATE of a data exception and of a violated constraint."""
_DENIED = (
    "java.nio.file.AccessDeniedException",
    "org.apache.hadoop.security.AccessControlException",
)
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
) -> DeclinedError | SourceLossError:
    """Return a DeclinedError about an error that is not ours. The arguments: see `declined`.

    A `RejectedRowsError` if Spark's SQLSTATE says that an expression, or a constraint of a table,
    does not take a value: it never will. A `SourceLossError` if an installed source says that the
    error means lost records.
    """
    if reason is None and _is_task_failure(error):
        reason = CheckpointFailureReason.TASK_FAILURE
    said = f"{what} failed: {type(error).__name__}: {_root_cause(str(error))}."
    if not isinstance(error, CapturedException | Py4JJavaError):
        return DeclinedError(said, reason=reason, fingerprint=fingerprint_of(error))
    causes = list(_java_causes(error))
    for found, condition, _ in causes:
        if not condition:
            continue
        loss = loss_of(condition, f"{what} failed: {shown(str(found.getMessage()), _SHOWN)}.")
        if loss is not None:
            return loss
    fingerprint = _java_fingerprint(error, causes)
    if any(state.startswith(_DATA) for _, _, state in causes):
        return RejectedRowsError(
            said,
            remedy="correct the rows or filter them before the expression; try_cast, try_divide "
            "and the like give NULL instead. Then start the job again.",
            reason=reason,
            fingerprint=fingerprint,
        )
    return DeclinedError(said, reason=reason, fingerprint=fingerprint)


def _java_causes(error: CapturedException | Py4JJavaError) -> Iterator[tuple[Any, str, str]]:
    """Yield Java's exception and its causes, each with its condition and SQLSTATE, if Spark has
    given it one.
    """
    found: Any = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
    errors: Any = SparkContext._jvm and SparkContext._jvm.PythonErrorUtils
    while found is not None and errors is not None:
        named = _is_java(found, "org.apache.spark.SparkThrowable")
        condition = named and errors.getCondition(found)
        yield found, condition or "", (condition and errors.getSqlState(found)) or ""
        found = found.getCause()


def _java_fingerprint(
    error: CapturedException | Py4JJavaError, causes: list[tuple[Any, str, str]]
) -> str:
    """Return the conditions in the causes, and the class that a Python function has raised.

    None of a network, a disk or a process that has failed (`OSError`, `IOException`, no condition),
    unless something was denied.
    """
    conditions = [condition for _, condition, _ in causes if condition]
    root = causes[-1][0] if causes else None
    if denied := [name for name in _DENIED if root is not None and _is_java(root, name)]:
        return " ".join([*conditions, *denied])
    if not conditions or _is_java(root, "java.io.IOException"):
        return ""
    if not isinstance(error, PythonException):
        return " ".join(conditions)
    raised = _RAISED.match(_raised(list(_lines(str(error)))) or "")
    kind = raised[0] if raised else ""
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, OSError) and known is not PermissionError:
        return ""
    return " ".join([*conditions, kind])


def _is_java(found: Any, name: str) -> bool:
    return bool(is_instance_of(SparkContext._gateway, found, name))


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
    raised = _raised(lines)
    first = [line for line in lines if line != _TRACEBACK]
    found = [*causes[-1:], *([raised] if raised else []), *first[:3]]
    return shown(" | ".join(dict.fromkeys(found)), _SHOWN)


def _raised(lines: list[str]) -> str:
    """Return the line that says what the last traceback was raised with; empty without one."""
    raised = [line for before, line in itertools.pairwise(lines) if _begins_traceback(before)]
    return raised[-1] if raised else ""


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
