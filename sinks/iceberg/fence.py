"""The fence of a job and sink, in two places (I7).

    folder      the name of a folder of the staging area: writers work below it, so that none of a
                closed attempt finishes a piece
    property    of the table: commits require that it is as they have read it, so that a commit in
                flight fails once the fence is raised or written again (`Catalog.new_property`)

The property is written first, and is what the next driver counts from.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pyiceberg.table import Table

from twophase.contract.fencing import raised_fence
from twophase.ids import Attempt
from twophase.sinks.iceberg.catalog import Change
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.proofs import FenceRecord, encode_fence, fence_key
from twophase.sinks.iceberg.records import summary_of_fence

_TRIES = 100
_NOBODY = Attempt(0, 0)


class Fence:
    """The fence of one job and sink.

    Args:
        table: the table of the job's sink.
    """

    def __init__(self, table: DriverTable) -> None:
        self._table = table
        self._owner = table.owner

    def read(self, loaded: Table) -> Attempt:
        """Return the fence, as the higher of the two places has it."""
        record = self._table.proofs(loaded).fence()
        found = record.attempt if record else _NOBODY
        return max(found, self._table.area.fence()) if self._table.area.exists() else found

    def raise_to(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        owner = self._owner
        self._table.catalog.release(owner)
        self._write(
            lambda fence: raised_fence(owner.job, owner.sink, fence, attempt),
            f"raised to {attempt}",
        )
        self._table.create_area()
        self._table.area.raise_fence(attempt)

    def write_again(self) -> None:
        """Write the fence as it is: commits in flight fail, as they require it to be unchanged.

        Those that the table does not show by now have to begin again, and look at the piece again.
        """
        self._write(lambda fence: fence, "written again")

    def _write(self, wanted: Callable[[Attempt], Attempt | None], what: str) -> None:
        catalog = self._table.catalog
        key, nonce = fence_key(self._owner), uuid.uuid4().hex

        def plan() -> Change | None:
            loaded = self._table.load()
            record = self._table.proofs(loaded).fence()
            if record is not None and record.nonce == nonce:
                return None  # it is written, whatever the reply was
            attempt = wanted(record.attempt if record else _NOBODY)
            if attempt is None:
                return None
            written = FenceRecord(attempt.generation, attempt.counter, nonce)
            return catalog.new_property(
                loaded,
                self._table.branch,
                key,
                encode_fence(written),
                summary_of_fence(self._owner, attempt),
            )

        catalog.commit_with_retries(
            plan,
            f"The fence of sink {self._owner.sink!r} of job {self._owner.job!r} could not be "
            f"{what}",
            _TRIES,
        )
