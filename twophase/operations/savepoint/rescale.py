"""Rescales a savepoint: writes another one, whose keyed state has another number of partitions.

1. check        the whole savepoint is read and compared with its manifest, and what cannot be
                rescaled is refused, before anything is written
2. write        Spark's files are written to `scratch` in the folder of the new savepoint
3. repartition  Spark writes the state once more, as a micro-batch of its own. It reads nothing and
                calls no sink, so this uses up a number that no checkpoint has
4. copy         the bodies, and Spark's files of the cut after that micro-batch
5. seal         `scratch` is deleted, then the manifest is written

The savepoint that is rescaled is only read. Checkpoints that it holds as pending are pending in the
new one, under their own identity. A kill leaves a folder without a manifest, which is not a
savepoint.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twophase.errors import ConfigError, SavepointError
from twophase.ids import new_lineage_id
from twophase.internals.clock import Clock
from twophase.internals.failpoints import failpoint
from twophase.operations.savepoint.format import SCRATCH, Savepoint, SavepointWriter, check_empty
from twophase.operations.savepoint.make import OPTION, open_savepoint
from twophase.operations.savepoint.manifest import Manifest
from twophase.operations.savepoint.savepoint_restore import (
    noted_header,
    verified,
    write_spark_folder,
)
from twophase.spark.folder import state_backend, state_stores
from twophase.spark.folder.noted_settings import shuffle_partitions
from twophase.spark.folder.spark_cut import files_of_cut
from twophase.state.files.folder_rights import check_rights
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage, local_path, sync_file_system
from twophase.state.journal.entries import Rescale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_PARTITIONS = 10_000
_COPIES = 3
"""The state in scratch before and after, and in the new savepoint."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~+=@,-]+")
"""Of others Spark 4.2 repartitions in the percent-encoded path, which is another folder."""

Repartition = Callable[[Path, int], None]
"""Gives the state in a folder of Spark's another number of partitions."""


class Rescaler:
    """Rescales one savepoint.

    Args:
        path: of the savepoint.
        partitions: how many its keyed state is to have.
        output: the folder of the new savepoint, new or empty.

    Attributes:
        output: as an absolute path.

    Raises:
        ConfigError: it is not a whole savepoint, its state cannot be rescaled or has that many
            partitions, or `partitions` or `output` is not right.
        CorruptRecordError: it is damaged.
        NewerFormatError: a newer version of twophase has written it.
        SavepointError: something is at `output`, or there is no room.
    """

    def __init__(self, path: str, partitions: int, output: str) -> None:
        """Step 1."""
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ConfigError(
                f"Keyed state cannot have {partitions} partitions. Nothing was written.",
                remedy=f"set --partitions to a number from 1 to {MAX_PARTITIONS:,}.",
            )
        self._savepoint = verified(open_savepoint(path).manifest.job, path)
        self._partitions = partitions
        _check_state(self._savepoint, partitions)
        self.output = local_path(output, OPTION)
        _check_output(self._savepoint, self.output)

    def run(self, repartition: Repartition, clock: Clock) -> Manifest:
        """Steps 2 to 5. If one fails, nothing is left of the new savepoint.

        Args:
            repartition: step 3.
            clock: the time.

        Raises:
            ConfigError: the state of an operator cannot be rescaled.
            SavepointError: Spark could not, or something could not be written.
        """
        savepoint, where = self._savepoint, str(self.output)
        writer = SavepointWriter(LocalStorage(where, OPTION), where)
        scratch = self.output / SCRATCH
        writer.claim(savepoint.manifest.job)
        with writer.writing():
            try:
                self._write_folder(scratch)
                rescale = self._repartition(scratch, repartition)
                self._copy(writer, scratch, rescale)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            return writer.complete(
                savepoint.checkpoint(),
                body=savepoint.manifest.body,
                pending=savepoint.pending_paths(),
                ancestors=savepoint.manifest.ancestors,
                created_ms=clock.unix_ms(),
                rescaled=(*savepoint.manifest.rescaled, rescale),
            )

    def _write_folder(self, scratch: Path) -> None:
        """Step 2."""
        scratch.mkdir(mode=0o700)
        write_spark_folder(self._savepoint, scratch)
        (scratch / "metadata").write_text(json.dumps({"id": new_lineage_id()}))
        failpoint("S14")
        try:
            operator = state_stores.single_partition(scratch / "state")
        except (KeyError, TypeError, ValueError) as error:
            raise SavepointError(
                f"Cannot rescale savepoint {self._savepoint.where}: this version does not know "
                f"Spark's description of its operators: {error!r}. The new savepoint was deleted.",
                remedy="restore it as it is; its partitions stay the same.",
            ) from error
        if operator is not None:
            raise ConfigError(
                f"Cannot rescale savepoint {self._savepoint.where}: its operator {operator} "
                "keeps all its state in one partition, and Spark looks for it only there. "
                "The new savepoint was deleted.",
                remedy="restore it as it is: more partitions would not help this plan.",
            )

    def _copy(self, writer: SavepointWriter, scratch: Path, rescale: Rescale) -> None:
        """Step 4."""
        savepoint = self._savepoint
        bodies = dict.fromkeys([*savepoint.pending_paths(), savepoint.manifest.body])
        for file in savepoint.manifest.files:
            if file.path in bodies:
                writer.add(file.path, savepoint.content(file))
        for cut in files_of_cut(scratch, rescale.batch, None):
            writer.add(f"spark/{cut.path}", cut.content())

    def _repartition(self, scratch: Path, repartition: Repartition) -> Rescale:
        """Step 3."""
        state, batch = scratch / "state", self._savepoint.manifest.last_batch + 1
        try:
            repartition(scratch, self._partitions)
        except Exception as error:
            raise SavepointError(
                f"Spark could not repartition the state of savepoint {self._savepoint.where}: "
                f"{error}. The new savepoint was deleted.",
                remedy="restore it as it is; its partitions stay the same.",
            ) from error
        state_stores.set_partitions(state, self._partitions)
        is_noted = (scratch / "commits" / str(batch)).is_file()
        if not is_noted or not state_stores.have_version(state, batch + 1):
            raise SavepointError(
                f"Spark did not write all the state of savepoint {self._savepoint.where} into "
                f"{self._partitions} partitions. The new savepoint was deleted.",
                remedy="report this message as a bug; the old savepoint is intact: restore it as "
                "it is.",
            )
        sync_file_system(scratch)
        failpoint("S15")
        return Rescale(batch, self._partitions)


def repartition_with(session: SparkSession) -> Repartition:
    """Return a function that has Spark repartition the state in a folder."""

    def repartition(folder: Path, partitions: int) -> None:
        _ = session.streams  # makes the coordinator of state stores, which no query has made here
        manager = session._streamingCheckpointManager
        manager.repartition(f"file://{folder}", partitions)

    return repartition


def _check_state(savepoint: Savepoint, partitions: int) -> None:
    """Check that there is state that Spark can rescale, and that this would change it."""
    if not savepoint.manifest.below("spark/state"):
        raise ConfigError(
            f"Savepoint {savepoint.where} has no keyed state to rescale. Nothing was written.",
            remedy="restore it as it is: a plan without state runs with any number of partitions.",
        )
    header = noted_header(savepoint)
    if not state_backend.is_rocksdb(header):
        noted = state_backend.noted_provider(header) or "an unknown state store"
        raise ConfigError(
            f"Cannot rescale savepoint {savepoint.where}: Spark repartitions only RocksDB state, "
            f"and {noted} wrote this one. Nothing was written.",
            remedy="restore it as it is. To be able to rescale a job, start it with "
            "`state.backend=rocksdb` in a new checkpointLocation.",
        )
    if shuffle_partitions(header) == partitions:
        raise ConfigError(
            f"The keyed state of savepoint {savepoint.where} already has {partitions} partitions. "
            "Nothing was written.",
            remedy="restore it as it is.",
        )


def _check_output(savepoint: Savepoint, output: Path) -> None:
    source, target = Path(savepoint.where).resolve(), output.resolve()
    if target.is_relative_to(source) or source.is_relative_to(target):
        raise ConfigError(
            f"The new savepoint {output} would be inside {savepoint.where}, or contain it. "
            "Nothing was written.",
            remedy="name a folder elsewhere with --output: a savepoint never changes.",
        )
    if not _PLAIN_PATH.fullmatch(str(output)):
        raise ConfigError(
            f"Cannot write the new savepoint to {str(output)!r}: Spark repartitions state only "
            "below a path of plain characters (ASCII letters, digits and ._~+=@,-). "
            "Nothing was written.",
            remedy="name another folder with --output; the new savepoint can be moved afterwards.",
        )
    check_rights(output, OPTION)
    if output.exists():
        check_empty(ReadOnlyStorage(output, OPTION), str(output))
    above = next(folder for folder in (output, *output.parents) if folder.exists())
    free = shutil.disk_usage(above).free
    needed = _COPIES * sum(file.length for file in savepoint.manifest.below("spark"))
    if needed > free:
        raise SavepointError(
            f"Rescaling savepoint {savepoint.where} needs about {needed:,} bytes, but the disk of "
            f"{output} has only {free:,} left. Nothing was written.",
            remedy="free some space, or name a folder on another disk with --output.",
        )
