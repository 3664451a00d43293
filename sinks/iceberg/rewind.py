"""Rewinds a table: one snapshot without the files of checkpoints, and their proofs lowered (H28).

    1. search the snapshots     for the files that the checkpoints have added; refused if one is
                                not in the table any more as it was added, or snapshots have expired
    2. commit                   a snapshot without exactly these files, and the proof of each
                                lineage, lowered to what stays of it; behind the fence

The commit requires that the branch, the fence and the proofs are as they were read; otherwise all
of it is repeated from 1. Rows that others have appended stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.lake import orphans
from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.branch import rolled_back, set_back
from twophase.sinks.iceberg.catalog import Change
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.fence import Fence
from twophase.sinks.iceberg.layout import VERSIONS
from twophase.sinks.iceberg.own_files import Found, OwnFiles, UnprovenError
from twophase.sinks.iceberg.proofs import encode_proof, proof_key
from twophase.sinks.iceberg.records import summary_of_rewind


class Rewind:
    """Rewinds a table to what `keep` keeps.

    Args:
        table: the table of the job's sink.
        keep: see `CanRewind`.
    """

    def __init__(self, table: DriverTable, keep: Mapping[str, int]) -> None:
        self._table = table
        self._point = RewindPoint(keep)

    def check(self, loaded: Table) -> Found | None:
        """See `CanRewind.check_rewind`; return what is to be taken back, None if nothing is."""
        proofs = self._table.proofs(loaded)
        ahead = self._point.ahead(proofs.committed())
        if not ahead:
            return None
        branch = self._table.branch
        remedy = (
            "restore a checkpoint or savepoint from after that, or start without restore.path to "
            "go on."
        )
        if why := rolled_back(loaded.metadata, proofs, branch):
            remedy = f"{set_back(branch)}, then start the job again."
        elif (version := loaded.metadata.format_version) not in VERSIONS:
            why = f"the table's format version is {version}, and 1 and 2 are supported"
        else:
            search = OwnFiles(self._table.owner, loaded, branch, self._point)
            try:
                return search.find({lineage: proofs.lineage(lineage) for lineage in ahead})
            except (UnprovenError, FileNotFoundError) as error:
                why = str(error)
        raise RestoreRefusedError(
            f"{self._cannot()}: {why}. Nothing was removed.",
            remedy=remedy,
        )

    def carry_out(self, attempt: Attempt) -> None:
        """See `CanRewind.rewind`."""
        self._table.catalog.commit_with_retries(lambda: self._plan(attempt), self._cannot())

    def _plan(self, attempt: Attempt) -> Change | None:
        loaded = self._table.load()
        self._check_fence(loaded, attempt)
        found = self.check(loaded)
        if found is None:
            failpoint("D04")
            return None
        self._forget_pieces(found)
        failpoint("D03")
        return self._without(loaded, found, attempt)

    def _check_fence(self, loaded: Table, attempt: Attempt) -> None:
        fence = Fence(self._table).read(loaded)
        if attempt.is_closed_by(fence):
            raise driver_is_fenced(self._table.owner.job, self._table.owner.sink, fence, attempt)

    def _forget_pieces(self, found: Found) -> None:
        """Remove what a crash has left of committed pieces: an abort would delete their files,
        which older snapshots have.
        """
        if self._table.area.exists():
            for lineage, proof in found.ahead.items():
                orphans.forget_committed(self._table, lineage, proof.highest)

    def _without(self, loaded: Table, found: Found, attempt: Attempt) -> Change:
        """Step 2."""
        owner = self._table.owner
        made = private_api.remove(
            loaded, found.files, summary_of_rewind(owner, attempt), self._table.branch
        )
        properties = {
            proof_key(owner, lineage): encode_proof(
                proof.made_by(made.snapshot, made.sequence).lowered(
                    self._point.last_of(lineage), found.kept.get(lineage, -1)
                )
            )
            for lineage, proof in found.ahead.items()
        }
        requirements = [*made.requirements, *self._table.as_read(loaded)]
        updates = [*made.updates, SetPropertiesUpdate(updates=properties)]
        return Change(loaded, requirements, updates, made.discard, made.snapshot)

    def _cannot(self) -> str:
        owner = self._table.owner
        return f"Sink {owner.sink!r} of job {owner.job!r} cannot rewind {self._table.target}"
