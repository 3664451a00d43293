"""An open sink that writes files: all but the options and checks of a declared one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, OpenArrowSink, SinkHistory, WriterFactory
from twophase.ids import Attempt
from twophase.sinks.common.staging import orphans, rewound
from twophase.sinks.common.staging.committer import Committer
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.preflight import create_staging_area
from twophase.sinks.common.staging.rewind import Rewind
from twophase.sinks.common.staging.staging_area import DONE
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.writer import StagedWriter


class OpenStagedSink(OpenArrowSink):
    """Stages files in a hidden folder of the table, and commits them by a rename.

    A sink whose table is also in a catalog overrides `publish`, `check_unpublish` and `unpublish`.

    Without a staging area, and without rows to come, there is nothing of the job in the table. Its
    fence creates the area.

    Args:
        table: the table that the rows go to.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._has_area = table.area.exists()

    def publish(self, pieces: Sequence[Manifest], stage: Path) -> None:
        """Announce pieces whose files are in the table to a catalog. By default there is none.

        Runs on the driver in every commit, after the files are durable at their final names and
        before the proof. May run again for the same pieces.

        Args:
            pieces: their manifests.
            stage: the folder of the fence that was up when this commit began. Anything stored there
                is stored by this path only: if the fence was raised since, the path leads nowhere,
                and the commit is repeated.
        """

    def check_unpublish(self) -> None:
        """Check by the catalog that files can leave the table. By default there is none.

        Raises:
            RestoreRefusedError: they cannot.
        """

    def unpublish(self, folders: Sequence[Path]) -> None:
        """Undo what `publish` has announced of folders. By default there is no catalog.

        Runs on the driver in a rewind, after its checks and before the first file leaves the table.
        May run again.

        Args:
            folders: those that files will leave.

        Raises:
            RestoreRefusedError: as `check_unpublish`.
        """

    def target(self) -> str:
        """See `OpenSink.target`."""
        return self.table.target

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        if not self._has_area:
            return SinkHistory(0, {})
        area = self.table.area
        is_half_rewound = bool(rewound.moved_out(area.stage()))
        return SinkHistory(area.fence().generation, area.committed(), half_rewound=is_half_rewound)

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`: the hidden folders of others in the table's."""
        found = ((one.owner, one.committed_beside()) for one in self.table.area.others())
        return {(owner.job, owner.sink): committed for owner, committed in found if committed}

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`: the folders in `done`."""
        if not self._has_area:
            return ()
        return [
            f"{piece.attempt}/{piece.subtask}"
            for piece in self.table.area.pieces(DONE)
            if (piece.lineage, piece.checkpoint) == (lineage, checkpoint)
        ]

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        self._create_area()
        self.table.area.raise_fence(attempt)

    def _create_area(self) -> None:
        if not self._has_area:
            create_staging_area(self.table.area.root, self.table.area.owner)
            self._has_area = True

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`."""
        return partial(StagedWriter, self.table)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. Without a staging area, what is to be committed is lost."""
        self._create_area()
        return Committer(self.table, self.publish).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        if self._has_area:
            orphans.abort(self.table, committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        return orphans.in_doubt(self.table) if self._has_area else ()

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a manifest and with no file in the table."""
        return orphans.unfinished(self.table, pieces)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`: raise the mark, then remove the proofs it replaces (H50)."""
        if self._has_area:
            self.table.area.raise_mark(lineage, checkpoint)
            rewound.sweep(self.table.area.stage())

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        if self._has_area and Rewind(self.table, keep).check():
            self.check_unpublish()

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        if self._has_area:
            Rewind(self.table, keep).carry_out(attempt, self.unpublish)

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `RewindsInSteps`."""
        Rewind(self.table, keep).settle(attempt)

    def close(self) -> None:
        """See `OpenSink.close`. There is no connection to release."""
