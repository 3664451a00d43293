"""The errors of twophase, one tree.

    TwoPhaseError
    |-- ConfigError                an option is unknown, of the wrong type or out of range
    |-- TargetUnreachableError     a target does not answer, or not any more
    |-- PreflightError             the environment or a target does not meet a requirement of the
    |                              protocol
    |-- ServiceError               a local test service could not be fetched or started
    |-- SparkLostError             the job's Spark application has ended
    |-- ReplayLostError            records of a committed micro-batch are gone or have changed; the
    |                              next start continues without them
    |-- SavepointError             a savepoint cannot be made, or is incomplete; nothing was started
    |   `-- SavepointUnfinishedError  it is complete, but its last checkpoint is not committed yet
    |-- DeclinedError              an attempt at a checkpoint failed before its decision;
    |                              nothing is visible
    |   |-- RejectedRowsError      the target, or an expression of the job, rejected rows: a retry
    |   |                          would fail the same way
    |   |-- BadRecordError         a source record does not match the schema: a retry would fail
    |   |                          the same way
    |   |-- RepeatedFailureError   a checkpoint has failed in the same way again and again
    |   |-- SourceUnavailableError the source did not answer, or a read from it stalled
    |   |-- CheckpointExpiredError the attempt took longer than checkpoint.timeout
    |   `-- FenceLostError         the target does not have the fence that the driver has raised
    `-- StopJobError               the job stops and does not restart by itself, except
                                   after InDoubtError
        |-- FencedError            another driver has taken over the job
        |-- InDoubtError           whether the decision was written is unknown; recovery finds
        |                          out
        |-- LostCommittableError   a decided piece is proven to be missing from its target
        |-- CheckpointMissingError the store has no history, but a sink or Spark's folder has
        |-- RestoreRefusedError    the restored checkpoint is older than what the sinks have or
        |                          will get
        |-- CorruptRecordError     a durable file is damaged
        |-- NewerFormatError       a newer version of twophase wrote a durable file; this version
        |                          leaves it unchanged
        |-- OffsetMismatchError    Spark's offset log and the checkpoint store disagree
        |-- TargetChangedError     a target lacks what is committed in it, or is another one
        `-- SourceLossError        the source has lost records that are to be read, or read again
            |-- OffsetOutOfRangeError
            |-- TopicRecreatedError
            |-- PartitionVanishedError
            `-- RangeChangedError    Spark reruns a decided micro-batch for its state, and the
                                     records have changed

Every message says what happened, whether data is lost, and what to do next.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, ClassVar

from twophase.failure_reason import CheckpointFailureReason
from twophase.seal import last_sealed, seal
from twophase.wording import worded


class TwoPhaseError(Exception):
    """Base of all errors.

    Args:
        what: one sentence: what happened, to which job, checkpoint and transaction.
        remedy: what to do next, with the command where there is one; settings as
            `twophase.wording` has them.

    Attributes:
        restartable: whether the restart strategy may restart the job after this error.
        exit_code: what the `twophase` command exits with.
        data_lost: what the message says about data loss; empty where the question does not arise.
    """

    restartable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    data_lost: ClassVar[str] = ""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        # One line each, so that line-based log readers get the whole message.
        self.what = " ".join(what.splitlines())
        self.remedy = " ".join(remedy.splitlines())
        super().__init__(self.what)
        # Tracebacks show notes, so in a worker the sealed line is part of the text that Spark
        # carries (`from_text`).
        kinds = [_name(kind) for kind in type(self).__mro__ if issubclass(kind, TwoPhaseError)]
        sealed = {"kinds": kinds, "what": self.what, "remedy": self.remedy, **self._details()}
        if note := seal(sealed):
            self.add_note(note)

    def __str__(self) -> str:
        then = f"Next: {worded(self.remedy)}" if self.remedy else ""
        parts = [self.what, self.data_lost, then]
        return " ".join(part for part in parts if part)

    def _details(self) -> dict[str, str]:
        """Return what leaves a worker, or is pickled, with the texts."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.remedy, self._details())


def _rebuild(
    kind: type[TwoPhaseError], what: str, remedy: str, details: Mapping[str, str]
) -> TwoPhaseError:
    error = kind(what, remedy=remedy)
    if isinstance(error, DeclinedError) and "reason" in details:
        error.reason = CheckpointFailureReason[details["reason"]]
        error.fingerprint = details.get("fingerprint", "")
        error.limit = int(details.get("limit", "0"))
    return error


class ConfigError(TwoPhaseError):
    """An option is unknown, of the wrong type or out of range. Raised before any write."""

    exit_code = 2


class PreflightError(TwoPhaseError):
    """The environment or a target does not meet a requirement of the protocol. Raised before a sink
    has undecided rows.
    """

    exit_code = 2


class TargetUnreachableError(TwoPhaseError):
    """A target does not answer, or refuses a sink that it has served before. Decided checkpoints
    stay decided, and are committed once it answers again.
    """

    restartable = True


class ServiceError(TwoPhaseError):
    """A local test service could not be fetched or started."""


class SparkLostError(TwoPhaseError):
    """The job's Spark application has ended, or its JVM has died: restarting the query cannot
    help.
    """

    data_lost = "No data is lost: the next start of the job recovers."


class ReplayLostError(TwoPhaseError):
    """Spark reran a committed micro-batch for its watermark, and the records were gone or had
    changed. It will not run again.
    """

    restartable = True
    data_lost = "No data is lost: every sink has its rows, and Spark has their state."


class SavepointError(TwoPhaseError):
    """A savepoint cannot be made, or is incomplete. Nothing was started, and no partial savepoint
    is left.
    """


class SavepointUnfinishedError(SavepointError):
    """The savepoint is complete, but a sink has not committed its last checkpoint yet. `twophase
    savepoint finish` commits it, and so does a restore.
    """

    exit_code = 3
    data_lost = "No data is lost: the checkpoint is decided, and the savepoint holds its pieces."


class DeclinedError(TwoPhaseError):
    """An attempt at a checkpoint failed before its decision. Its pieces are aborted.

    Args:
        what: as for every error.
        remedy: likewise.
        reason: why it failed, as Flink names it; the class's own if not given.
        fingerprint: the same for two failures of the same kind, whatever values, ids, hosts or
            times their messages have: an error number, a class; empty if nobody has answered, so
            that the failure says nothing about the next attempt.
        limit: how many such failures of a checkpoint in a row end the job; 0: the usual number.

    Attributes:
        reason: as given.
        fingerprint: as given.
        limit: as given.
    """

    restartable = True
    data_lost = "No data is lost: nothing of this attempt is visible."
    usual_reason: ClassVar[CheckpointFailureReason] = CheckpointFailureReason.CHECKPOINT_DECLINED

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        reason: CheckpointFailureReason | None = None,
        fingerprint: str = "",
        limit: int = 0,
    ) -> None:
        self.reason = reason or self.usual_reason
        self.fingerprint = fingerprint
        self.limit = limit
        super().__init__(what, remedy=remedy)

    def _details(self) -> dict[str, str]:
        """Return what says how often it may come."""
        return {
            "reason": self.reason.name,
            "fingerprint": self.fingerprint,
            "limit": str(self.limit),
        }


class RejectedRowsError(DeclinedError):
    """The target, or an expression of the job, rejected rows. A retry would have the same rows, so
    the job stops.
    """

    restartable = False
    exit_code = 3


class BadRecordError(DeclinedError):
    """A source record does not match the schema. A retry would read it again, so the job stops."""

    restartable = False
    exit_code = 3


class RepeatedFailureError(DeclinedError):
    """A checkpoint has failed in the same way so many times in a row that the job stops."""

    restartable = False
    exit_code = 3


class SourceUnavailableError(DeclinedError):
    """The source did not answer in time, or a read from it stalled."""


class CheckpointExpiredError(DeclinedError):
    """The attempt took longer than `checkpoint.timeout`."""

    usual_reason = CheckpointFailureReason.CHECKPOINT_EXPIRED


class FenceLostError(DeclinedError):
    """The target does not have the fence that this driver has raised in it: it was restored from a
    backup or created again, or has forgotten it. Nobody has taken the job over. It is not tried
    again in place; the next start says whether rows are missing.
    """

    data_lost = ""


class StopJobError(TwoPhaseError):
    """A condition that no restart resolves, except for `InDoubtError`: it needs an operator."""

    exit_code = 3


class FencedError(StopJobError):
    """Another driver has taken over the job; this one no longer decides, commits or aborts
    anything.
    """

    exit_code = 4
    data_lost = "No data is lost: the newer driver continues the job."


class InDoubtError(StopJobError):
    """Whether the decision was written is unknown. Until recovery has found out, neither a commit
    nor an abort is right.
    """

    restartable = True
    data_lost = (
        "No data is lost: recovery reads the log and either commits or aborts the whole checkpoint."
    )


class LostCommittableError(StopJobError):
    """A decided piece is neither pre-committed nor committed in its target."""


class CheckpointMissingError(StopJobError):
    """The checkpoint store has no history of this job, but a sink or Spark's folder has."""


class RestoreRefusedError(StopJobError):
    """A restore would write rows a second time that a sink has or will get. No data is missing:
    start the job without the restore to continue.
    """


class CorruptRecordError(StopJobError):
    """A durable file is damaged, or is not the file that belongs under its name."""


class NewerFormatError(StopJobError):
    """A durable file has a format that only a newer version of twophase reads. It is never mistaken
    for damage.
    """

    data_lost = "No data is lost: the file was left unchanged."


class OffsetMismatchError(StopJobError):
    """Spark's offset log and the checkpoint store disagree about what a micro-batch contains."""


class TargetChangedError(StopJobError):
    """A target lacks what the job has committed in it: it was restored from a backup or made again.
    Or it is not the one that the pieces to be committed were written to.
    """


class SourceLossError(StopJobError):
    """The source has lost records that are to be read: for the first time, or again by a rewind."""


class OffsetOutOfRangeError(SourceLossError):
    """The next offset of a partition is no longer, or not yet, in the broker's log."""


class TopicRecreatedError(SourceLossError):
    """A topic was deleted and created again under the same name: its offsets now mean other
    records.
    """


class PartitionVanishedError(SourceLossError):
    """A partition, or a whole topic, that the job reads no longer exists."""


class RangeChangedError(SourceLossError):
    """Spark read an offset range of a decided checkpoint again for its state, and the records have
    changed.
    """


_ANSWERS = (errno.EFBIG, errno.ENAMETOOLONG)


def fingerprint_of(error: BaseException) -> str:
    """Return the fingerprint of an error that is not ours, for `DeclinedError`: its class.

    A disk or a network that fails (`OSError`) has none: it may be back for the next attempt. To be
    denied something is an answer, and so is that a file, or a name, is too long.
    """
    is_answer = isinstance(error, PermissionError) or getattr(error, "errno", 0) in _ANSWERS
    if isinstance(error, OSError) and not is_answer:
        return ""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def carried(error: BaseException, tag: str | None = None) -> TwoPhaseError | None:
    """Return our error that an exception is, or that Spark carries in it; None if neither.

    Whatever calls Spark finds our errors with this function, and passes on what it returns.

    Args:
        error: as Spark raised it: for a failed task, a failed query, or a source that it planned.
        tag: of the Spark job that failed, if it is known (`twophase.seal`).

    Returns:
        The error; if Spark carried it, Spark's exception is its cause.
    """
    if isinstance(error, TwoPhaseError):
        return error
    found = from_text(str(error), tag)
    if found is not None:
        found.__cause__ = error
    return found


def from_text(text: str, tag: str | None = None) -> TwoPhaseError | None:
    """Rebuild the error whose text Spark carried out of a Python process.

    Of an exception raised in a Python worker or in a Python data source, Spark keeps only the
    traceback, and quotes it in exceptions of its own. The traceback of a `TwoPhaseError` holds a
    sealed line (`twophase.seal`). Nothing else is trusted: a row value can name any error.

    Args:
        text: any text with a Python traceback in it.
        tag: as for `carried`.

    Returns:
        The last sealed error in it, or None.
    """
    found = last_sealed(text, tag)
    if found is None:
        return None
    known = {_name(kind): kind for kind in _tree(TwoPhaseError)}
    kind = next(known[name] for name in found["kinds"] if name in known)
    return _rebuild(kind, found["what"], found["remedy"], found)


def _name(kind: type[TwoPhaseError]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _tree(kind: type[TwoPhaseError]) -> list[type[TwoPhaseError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in _tree(child))]
