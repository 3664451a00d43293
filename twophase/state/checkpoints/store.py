"""The store of completed checkpoints: their bodies, next to the log."""

from __future__ import annotations

import re

from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    DeclinedError,
    fingerprint_of,
)
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.internals.record import digest
from twophase.state.checkpoints.checkpoint import STATE_FOLDER, CompletedCheckpoint
from twophase.state.checkpoints.state_files import delete_state_files, read_states, write_states
from twophase.state.files import codec
from twophase.state.files.storage import Storage
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

FOLDER = "chk"
_BODY = "_metadata"
_KIND = "CHECKPOINT"
_FOLD_AT = 33
"""In records: that is every 16 checkpoints, if no driver stops in between."""
_ADOPT = "If there is none: twophase repair adopt-from-target JOB.yaml"
_BODY_FOLDER = re.compile(r".+-\d+-(?P<generation>\d+)\.\d+")


class CompletedCheckpointStore:
    """Writes decisions and reads them back.

    Args:
        storage: the job's folder.
        log: the job's log, written by this driver only.
        num_retained: how many committed checkpoints keep their body.
        memory_threshold: in bytes; operator states above it get files of their own.

    Attributes:
        prepared_bytes: the size of the body that was prepared last.
    """

    def __init__(
        self, storage: Storage, log: JobLog, num_retained: int, memory_threshold: int = 20 * 1024
    ) -> None:
        self._storage = storage
        self._log = log
        self._num_retained = num_retained
        self._memory_threshold = memory_threshold
        self._gone: set[Decision] = set()
        self.prepared_bytes = 0

    def prepare(self, checkpoint: CompletedCheckpoint) -> Decision:
        """Write the files of large states, then the body. They decide nothing yet.

        Args:
            checkpoint: with the data of its states; see `read_with_states`.

        Raises:
            OSError, AlreadyExistsError, UnclearOutcomeError: the body or a file may be
                incomplete; decline the attempt.
            DeclinedError: an operator state or a handle is not JSON.
        """
        checkpoint = write_states(self._storage, checkpoint, self._memory_threshold)
        try:
            data = encode_body(checkpoint)
        except (TypeError, ValueError, RecursionError) as error:
            raise _not_json(checkpoint, error) from error
        self.prepared_bytes = len(data)
        decision = Decision(
            lineage=checkpoint.lineage,
            checkpoint=checkpoint.checkpoint,
            attempt=checkpoint.attempt,
            offsets_hash=checkpoint.offsets.hash,
            body_digest=digest(data),
            proofs=checkpoint.proofs,
        )
        self._storage.create(_body_of(decision), data)
        return decision

    def decide(self, decision: Decision) -> None:
        """Append the decision to the log.

        Raises:
            FencedError: another driver has taken over and is responsible for the checkpoint.
            InDoubtError: it may or may not be decided.
            OSError: it is certainly not decided.
        """
        self._log.append(decision)

    def read(self, decision: Decision) -> CompletedCheckpoint:
        """Read the body of a decided checkpoint, without the pieces that were given up since.

        States in files of their own are named in it and not read.

        Raises:
            CheckpointMissingError: the body is gone.
            CorruptRecordError: it is damaged, or not the one that was decided.
            NewerFormatError: a newer version of twophase has written it.
            FencedError: the body is gone because a newer driver has subsumed it.
        """
        name = _body_of(decision)
        try:
            data = self._storage.read(name)
        except FileNotFoundError:
            self._log.check_fence()
            raise CheckpointMissingError(
                f"The body of the decided checkpoint {decision.checkpoint} ({name}) is missing.",
                remedy=f"restore the job's folder from a backup. {_ADOPT}",
            ) from None
        if digest(data) != decision.body_digest:
            raise CorruptRecordError(
                f"The body of checkpoint {decision.checkpoint} ({name}) is not the one that "
                "was decided: its SHA-256 differs from the log. Nothing was written or deleted.",
                remedy=f"restore this file from a backup of the job's folder. {_ADOPT}",
            )
        return decode_body(data, name).amended(self._log.history.repairs)

    def read_with_states(
        self, decision: Decision, *, may_drop: bool = False
    ) -> CompletedCheckpoint:
        """Read a decided checkpoint as `read` does, with the data of all of its states.

        Args:
            decision: of the checkpoint.
            may_drop: whether a state whose file is gone or damaged is left out, with a warning.

        Raises:
            CheckpointMissingError, CorruptRecordError, NewerFormatError, FencedError: as by
                `read`, also for a file of a state.
        """
        checkpoint = self.read(decision)
        try:
            found = read_states(self._storage, checkpoint, may_drop=may_drop)
        except CheckpointMissingError:
            self._log.check_fence()
            raise
        states, kept = (one.function_states.values() for one in (checkpoint, found))
        if sum(map(len, kept)) < sum(map(len, states)):
            self._log.check_fence()
        return found

    def subsume(self) -> list[Decision]:
        """Delete the bodies that newer committed checkpoints have replaced; fold a long log.

        Returns:
            The checkpoints whose bodies this call deleted.
        """
        history = self._log.history
        kept = retained(history, self._num_retained)
        gone = [
            decision
            for decision in history.decisions
            if decision not in kept and decision not in self._gone
        ]
        for decision in gone:
            self._delete(decision.folder)
            failpoint("C17")
        self._gone.update(gone)
        self.fold()
        return gone

    def fold(self) -> None:
        """Fold a long log to the decisions whose bodies are there, also those that another thread
        has appended. A body may have been deleted by an older driver that has not folded the log.
        """
        if self._log.length() < _FOLD_AT:
            return
        with self._log.lock:
            history = self._log.history
            kept, there = retained(history, self._num_retained), {*self._storage.names(FOLDER)}
            left = [
                one
                for one in history.decisions
                if one in kept
                or (one not in self._gone and one.folder.removeprefix(f"{FOLDER}/") in there)
            ]
            self._log.fold(history.retaining(left))
        self._gone.clear()

    def sweep(self) -> None:
        """Delete bodies and state files that no decision names: of declined attempts and
        of dead drivers.

        Only those of generations before ours: our fence keeps them from deciding anything more. A
        body of a newer driver may be decided in a log that we have not read (H40), and stays. So
        does any name that is not a body's, and a body that a newer version of twophase has written.
        """
        history = self._log.history
        known = {decision.folder.split("/")[1] for decision in history.decisions}
        for name in sorted({*self._storage.names(FOLDER), *self._storage.names(STATE_FOLDER)}):
            body = _BODY_FOLDER.fullmatch(name)
            if body and int(body["generation"]) < history.generation and name not in known:
                self._delete(f"{FOLDER}/{name}")

    def discard(self, lineage: str, checkpoint: int, attempt: Attempt) -> None:
        """Delete the body and the state files of an undecided attempt, if they exist."""
        self._delete(Decision(lineage, checkpoint, attempt, "", "").folder)

    def _delete(self, folder: str) -> None:
        """Delete a body and its state files. What cannot be deleted stays, and the job goes on."""
        if self._storage.is_newer(f"{folder}/{_BODY}"):
            return
        if not self._storage.delete_unneeded(f"{folder}/{_BODY}"):
            return  # whole, with the states that it names
        self._storage.delete_unneeded(folder)
        delete_state_files(self._storage, f"{STATE_FOLDER}/{folder.removeprefix(f'{FOLDER}/')}")


def retained(history: History, num_retained: int) -> list[Decision]:
    """Return the decisions to keep.

    They are the uncommitted, the newest `num_retained` others, and the newest with pieces of each
    sink: a target that is restored from a backup may have them prepared again.
    """
    committed = [decision for decision in history.decisions if decision.committed]
    newest = committed[-num_retained:]
    proven = {(proof.lineage, proof.checkpoint) for proof in history.committed_proofs()}
    return [
        one
        for one in history.decisions
        if not one.committed or one in newest or (one.lineage, one.checkpoint) in proven
    ]


def encode_body(checkpoint: CompletedCheckpoint) -> bytes:
    """Encode a `_metadata` file, the inverse of `decode_body`."""
    return codec.encode(_KIND, checkpoint)


def decode_body(data: bytes, name: str) -> CompletedCheckpoint:
    """Decode a `_metadata` file.

    Raises:
        CorruptRecordError: it is damaged.
        NewerFormatError: another version of twophase has written it.
    """
    return codec.decode(_KIND, data, name, CompletedCheckpoint)


def _body_of(decision: Decision) -> str:
    return f"{decision.folder}/{_BODY}"


def _not_json(checkpoint: CompletedCheckpoint, error: Exception) -> DeclinedError:
    return DeclinedError(
        f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} holds an operator state or a "
        f"handle that is not JSON: {error}.",
        remedy="return JSON values from snapshot_state: no NaN, no dates, no objects.",
        reason=CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        fingerprint=fingerprint_of(error),
    )
