"""The Delta sink: appends rows exactly once, by two transactions of Delta's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import BatchSink, CommitRequest, OpenBatchSink, SinkContext, SinkHistory
from twophase.errors import PreflightError
from twophase.ids import Attempt, TransactionId, check_name
from twophase.sinks.delta.committer import Committer
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.jvm import SPARK_CONF
from twophase.sinks.delta.names import Owner
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.delta.orphans import Orphans
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.preflight import find_session, open_table
from twophase.sinks.delta.rewind import Rewind
from twophase.sinks.delta.staging import Staging
from twophase.sinks.delta.table import DeltaTable
from twophase.sinks.delta.transaction import Transactions, warm_up
from twophase.spark_versions import DELTA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaSink(BatchSink):
    """Appends to one table. Options: `twophase.sinks.delta.options.DeltaOptions`.

    Args:
        options: `path` or `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = DeltaOptions.parse(options, "DeltaSink")

    def __repr__(self) -> str:
        return f"DeltaSink({self._options.where!r})"

    @classmethod
    def spark_conf(cls) -> Mapping[str, str]:
        """See `Sink.spark_conf`. The settings are the same for every table.

        Raises:
            PreflightError: this Spark cannot have Delta.
        """
        DELTA.require()
        return SPARK_CONF

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[DeltaSink, Mapping[str, str]]:
        """See `Sink.rehearsal`."""
        DELTA.require()
        return cls(path=str(folder / "table"), create=True), {}

    def open(self, context: SinkContext) -> OpenDeltaSink:
        """See `Sink.open`."""
        owner = Owner(check_name("job", context.job), check_name("sink", context.sink))
        jvm = find_session()
        warm_up(jvm)
        with jvm.active():
            log = open_table(jvm, self._options, context.schema)
            pieces = Pieces(owner, log)
            try:
                if context.schema is not None:
                    pieces.create_folder()
            except Exception as error:
                raise PreflightError(
                    f"Cannot create the folder {log.storage.absolute(owner.folder)}: "
                    f"{str(error).splitlines()[0]}.",
                    remedy="give the driver's account the right to write there.",
                ) from error
            table = DeltaTable(
                owner,
                Transactions(log),
                pieces,
                log.snapshot().table,
                merge_schema=self._options.merge_schema,
                speculation=context.speculation,
            )
        return OpenDeltaSink(table)


class OpenDeltaSink(OpenBatchSink):
    """Appends to one Delta table.

    Args:
        table: the table.
    """

    def __init__(self, table: DeltaTable) -> None:
        self.table = table
        self._recovering = True

    def target(self) -> str:
        """See `OpenSink.target`: the table's id and folder."""
        return self.table.target

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        with self.table.active():
            snapshot = self.table.log.snapshot()
            self.table.check_unchanged(snapshot)
            fence = Fence(self.table).read(snapshot)
            committed = self.table.committed(snapshot)
        return SinkHistory(fence.generation if fence else 0, committed)

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`: the application ids of others in the table's log.

        A table that forgets application ids forgets these as well.
        """
        with self.table.active():
            return self.table.other_names(self.table.log.snapshot())

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`. Behind it the marks are saved that a driver died before."""
        self._recovering = True
        with self.table.active():
            Fence(self.table).raise_to(attempt)
            self.table.save_high_water_marks(self.table.log.snapshot())

    def pre_commit(self, batch: DataFrame, transaction: TransactionId) -> Sequence[Committable]:
        """See `OpenBatchSink.pre_commit`."""
        self._recovering = False
        return Staging(self.table).pre_commit(batch, transaction)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        with self.table.active():
            return Committer(self.table, recovering=self._recovering).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        with self.table.active():
            Orphans(self.table).abort(committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        with self.table.active():
            return Orphans(self.table).in_doubt()

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`."""
        with self.table.active():
            return Orphans(self.table).unfinished(pieces)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`. Commits raise the mark themselves; only records may be left."""
        with self.table.active():
            Orphans(self.table).forget_committed(lineage, checkpoint)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        with self.table.active():
            Rewind(self.table, keep).check(self.table.log.snapshot())

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        with self.table.active():
            Rewind(self.table, keep).carry_out(attempt)

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `RewindsInSteps`."""
        with self.table.active():
            Rewind(self.table, keep).settle(attempt)

    def close(self) -> None:
        """See `OpenSink.close`. There is no connection to release."""
