"""The guard of a replay: a micro-batch that is run again must read the same records (H35).

    1. begin     driver    deletes digests that no replay can need, and creates the folder
                           of the micro-batch
    2. share     driver    tells the tasks where digests are kept, and if this is a replay (`plan`:
                           in the plugin form)
    3. of_task   task      finds that out; the source folds the records of its range into a digest
    4. settle    task      at the end of the range: keeps the digest, or compares it with
                           those that are kept

A task ends before its micro-batch can be decided, so the digests of a decided one exist. They are
in Spark's folder beside the state that depends on them, one file for each read:
`ranges/<checkpoint>-<generation>/<range>-<random>`. A generation runs a micro-batch once, and
digests of repeated reads (another attempt, a lost executor) are kept as well: all must agree.

In the plugin form a task whose replay fails for its records leaves a mark beside them for the next
start, `lost-<random>`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from twophase.errors import SourceLossError
from twophase.ids import short_hash
from twophase.internals.record import HEAD_BYTES
from twophase.state.files import codec
from twophase.state.files.listing import listed
from twophase.state.files.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark import SparkContext, TaskContext

    from twophase.state.journal.entries import Decision

FOLDER = "ranges"
_PLAN = "plan"
_LOST = "lost"
_PROPERTY = "twophase.range_digests"
_PLANNED_PROPERTY = "twophase.range_digests.planned"
_BATCH_PROPERTY = "streaming.sql.batchId"
_KIND = "RANGE"
_ABANDONED_S = 86_400.0
"""Age at which a half-written note counts as abandoned, however two clocks differ: writing
takes milliseconds.
"""
_NAME = re.compile(r"(?P<checkpoint>\d+)-(?P<generation>\d+)")

_log = logging.getLogger("twophase")
DigestT = TypeVar("DigestT")


@dataclass(frozen=True)
class ReplayGuard:
    """The digests of one micro-batch in one generation.

    Attributes:
        path: their folder.
        replay: whether the tasks compare their digests with those in the folder, instead
            of adding to them.
        planned: whether this is the plugin form, in which only the tasks learn why a replay fails.
    """

    path: str
    replay: bool
    planned: bool = False

    def share(self, context: SparkContext) -> None:
        """Share the guard with the tasks of all jobs that this thread starts."""
        context.setLocalProperty(_PROPERTY, json.dumps(asdict(self)))

    @classmethod
    def of_task(cls, context: TaskContext | None) -> Self | None:
        """Return the guard shared with a task; None if its micro-batch needs none.

        Args:
            context: `TaskContext.get()`.
        """
        if context is None:
            return None
        if plan := context.getLocalProperty(_PROPERTY):
            return cls(**json.loads(plan))
        folder = context.getLocalProperty(_PLANNED_PROPERTY)
        if not folder:
            return None
        return cls._planned(Path(folder), context.getLocalProperty(_BATCH_PROPERTY))

    def plan(self, checkpoint: int) -> None:
        """Share the guard by a note in the plugin form, which has no Spark context.

        The note is not durable: each run plans its own micro-batch.
        """
        # for a replay too, which leaves a mark there if it fails
        Path(self.path).mkdir(mode=0o700, exist_ok=True)
        path = Path(self.path).parent / _PLAN
        _delete_half_written(path)
        temporary = path.with_name(f".{_PLAN}-{os.getpid()}")
        temporary.write_text(
            json.dumps({"checkpoint": checkpoint, **asdict(replace(self, planned=True))})
        )
        temporary.replace(path)

    @classmethod
    def _planned(cls, folder: Path, batch: str | None) -> Self | None:
        try:
            note = json.loads((folder / _PLAN).read_text())
        except FileNotFoundError:
            return None
        return cls(**note) if str(note.pop("checkpoint")) == batch else None

    def settle(self, of: Sequence[str | int], digest: DigestT, what: str) -> DigestT | None:
        """Keep or compare the digest of a range that was read to its end.

        Args:
            of: names the range among all of the micro-batch; the same in a replay.
            digest: of its records: a dataclass, whose fields never change.
            what: the source and the range, for a warning.

        Returns:
            In a replay, a digest kept before that differs; None if there is none.

        Raises:
            CorruptRecordError: a kept digest is damaged.
            NewerFormatError: another version of twophase has kept it.
        """
        name = short_hash(json.dumps(of), 32)
        if self.replay:
            return self._compare(name, digest, what)
        self._keep(f"{name}-{secrets.token_hex(8)}", codec.encode(_KIND, digest))
        return None

    def lost(self, error: SourceLossError) -> None:
        """Mark a range that is lost or has other records, in a replay of the plugin form.

        Raises:
            SourceLossError: it was marked, and the next start may go on without the range.
        """
        if not (
            self.replay and self.planned and self._keep(f"{_LOST}-{secrets.token_hex(8)}", b"")
        ):
            return
        raise type(error)(
            "The micro-batch is committed already, and none of its rows is lost; Spark reads it "
            f"again for its state. {error.what}",
            remedy="start the query again: it goes on with the state of the first read. Only if "
            f"every start stops (the driver's log says why): {error.remedy}",
        ) from error

    def _keep(self, name: str, data: bytes) -> bool:
        """Write a file atomically, without a sync: the decision syncs it (`SparkFolder.sync`).

        Returns:
            Whether the folder exists.
        """
        folder = Path(self.path)
        temporary = folder / f".tmp-{name}"
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
            )
        except FileNotFoundError:
            # On this executor's own disk nothing would look for it, or delete it.
            _log.warning(
                "Nothing is kept of what was read: this executor does not see %s of the driver's.",
                folder,
            )
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.rename(folder / name)
        return True

    def _compare(self, name: str, digest: DigestT, what: str) -> DigestT | None:
        """Compare with the kept digests: of other ranges there are none."""
        names = LocalStorage(self.path).names(".") if Path(self.path).is_dir() else []
        kept = [found for found in names if found.startswith(f"{name}-")]
        for found in kept:
            where = f"{self.path}/{found}"
            data = LocalStorage(self.path).read(found)
            first = codec.decode(_KIND, data, where, type(digest))
            if first != digest:
                return first
        if not kept:
            _log.warning(
                "%s is read again for Spark's state, and no digest of its first read "
                "is there to compare with.",
                what,
            )
        return None


def begin(
    spark_folder: Path, checkpoint: int, generation: int, decided: Decision | None
) -> ReplayGuard:
    """Return the guard of a micro-batch that is about to run.

    If it is not decided, digests that are no longer needed are deleted, and its folder is
    created: the tasks do not.

    Args:
        spark_folder: Spark's folder of the lineage.
        checkpoint: the number of the micro-batch.
        generation: the generation of this driver.
        decided: the decision on the micro-batch, if it is a replay.
    """
    root = spark_folder.absolute() / FOLDER
    if decided is not None:
        return ReplayGuard(str(root / f"{checkpoint}-{decided.attempt.generation}"), replay=True)
    root.mkdir(mode=0o700, exist_ok=True)
    _prune(root, checkpoint, generation)
    folder = root / f"{checkpoint}-{generation}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return ReplayGuard(str(folder), replay=False)


def begin_again(spark_folder: Path, checkpoint: int, generation: int) -> ReplayGuard:
    """Return the guard of a micro-batch of which a sink has the rows already, for the others.

    What this or an older generation has kept of it is compared, and becomes this generation's.

    Args:
        spark_folder: Spark's folder of the lineage.
        checkpoint: the number of the micro-batch.
        generation: the generation of this driver.
    """
    root = spark_folder.absolute() / FOLDER
    root.mkdir(mode=0o700, exist_ok=True)
    matches = map(_NAME.fullmatch, os.listdir(root))
    found = [
        int(one["generation"]) for one in matches if one and int(one["checkpoint"]) == checkpoint
    ]
    older = [one for one in found if one < generation]
    folder = root / f"{checkpoint}-{generation}"
    if older and generation not in found:
        (root / f"{checkpoint}-{max(older)}").rename(folder)
    return ReplayGuard(str(folder), replay=True)


def was_lost(spark_folder: Path, decision: Decision) -> bool:
    """Return whether a replay of the plugin form failed for records gone or changed."""
    folder = spark_folder / FOLDER / f"{decision.checkpoint}-{decision.attempt.generation}"
    return any(path.name.startswith(f"{_LOST}-") for path in listed(folder))


def plan_guard(spark_folder: Path, context: SparkContext) -> None:
    """Have a query of the plugin form keep digests, before its first micro-batch.

    Called on the thread that runs it.
    """
    root = spark_folder.absolute() / FOLDER
    root.mkdir(mode=0o700, exist_ok=True)
    context.setLocalProperty(_PLANNED_PROPERTY, str(root))


def are_planned(spark_folder: Path) -> bool:
    """Return whether `plan_guard` was called for a query over this folder."""
    return (spark_folder / FOLDER).is_dir()


def _prune(root: Path, checkpoint: int, generation: int) -> None:
    """Delete digests that are not needed when a generation begins an undecided micro-batch.

    Those of the micro-batch before stay: Spark's note that it is finished may not be on disk yet.
    So do those of newer generations, which have overtaken this one, and those that a newer version
    of twophase has kept. What cannot be deleted is left to the next micro-batch.
    """
    for name in os.listdir(root):
        match = _NAME.fullmatch(name)
        if (
            match is None
            or int(match["generation"]) > generation
            or int(match["checkpoint"]) == checkpoint - 1
        ):
            continue
        try:
            if _is_newer(root / name):
                continue
            shutil.rmtree(root / name)
        except FileNotFoundError:  # another process was quicker
            continue
        except OSError as error:
            _log.warning(
                "The digests %s, which are no longer needed, cannot be deleted: %s",
                root / name,
                error,
            )


def _is_newer(folder: Path) -> bool:
    """Return whether a newer version of twophase has kept the digests in a folder."""
    with os.scandir(folder) as found:
        first = next(
            (one for one in found if one.is_file() and not one.name.startswith((".", _LOST))), None
        )
    return first is not None and codec.is_newer(Path(first.path).read_bytes()[:HEAD_BYTES])


def _delete_half_written(plan: Path) -> None:
    """Delete half-written notes of drivers that died, as far as that is possible."""
    for path in plan.parent.glob(f".{_PLAN}-*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("The half-written note %s cannot be deleted: %s", path, error)
