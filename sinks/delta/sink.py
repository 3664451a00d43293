"""The Delta sink: appends rows exactly once, by two transactions of Delta's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.errors import PreflightError, StopJobError
from twophase.ids import Attempt, TransactionId, check_name
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import CommitOutcome
from twophase.protocol.sink import BatchSink, CommitRequest, SinkContext, SinkHistory
from twophase.sinks.delta.committer import Committer
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.first_commit import prepare_commit
from twophase.sinks.delta.jvm import SPARK_CONF
from twophase.sinks.delta.names import Owner
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.delta.orphans import Orphans
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.preflight import find_session, open_table
from twophase.sinks.delta.rewind import Rewind
from twophase.sinks.delta.staging import Staging
from twophase.sinks.delta.table import BoundSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaSink(BatchSink):
    """Appends to one table. Options: `twophase.sinks.delta.options.DeltaOptions`.

    Args:
        options: `path` or `table`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = DeltaOptions.parse(options, "DeltaSink")
        self._bound_sink: BoundSink | None = None
        self._recovering = True

    def __repr__(self) -> str:
        return f"DeltaSink({self._options.where!r})"

    @staticmethod
    def spark_conf() -> Mapping[str, str]:
        """See `twophase.protocol.sink.NeedsSparkConf`."""
        return SPARK_CONF

    @staticmethod
    def rehearsal(folder: Path) -> tuple[DeltaSink, Mapping[str, str]]:
        """See `twophase.protocol.sink.CanRehearse`."""
        return DeltaSink(path=str(folder / "table"), create=True), {}

    def open(self, context: SinkContext) -> None:
        """See `Sink.open`."""
        owner = Owner(check_name("job", context.job), check_name("sink", context.sink))
        jvm = find_session()
        prepare_commit(jvm)
        with jvm.active():
            log = open_table(jvm, self._options, context)
            pieces = Pieces(owner, log)
            try:
                pieces.make_folder()
            except Exception as error:
                raise PreflightError(
                    f"The folder {log.storage.absolute(owner.folder)} cannot be made: "
                    f"{str(error).splitlines()[0]}.",
                    remedy="give the driver's account the right to write there.",
                ) from error
            merge_schema, speculation = self._options.merge_schema, context.speculation
            table = log.snapshot().table
            self._bound_sink = BoundSink(owner, log, pieces, table, merge_schema, speculation)

    def target(self) -> str:
        """See `Sink.target`: the table's id and folder."""
        return self._bound().target

    def history(self) -> SinkHistory:
        """See `Sink.history`."""
        bound = self._bound()
        with bound.log.jvm.active():
            snapshot = bound.log.snapshot()
            bound.check(snapshot)
            fence = Fence(bound).read(snapshot)
            committed = bound.committed(snapshot)
            for lineage in committed:
                bound.mark(lineage, snapshot)
        return SinkHistory(fence.generation if fence else 0, committed)

    def fence(self, attempt: Attempt) -> None:
        """See `Sink.fence`."""
        self._recovering = True
        bound = self._bound()
        with bound.log.jvm.active():
            Fence(bound).raise_to(attempt)

    def pre_commit(self, batch: DataFrame, transaction: TransactionId) -> Sequence[Committable]:
        """See `BatchSink.pre_commit`."""
        self._recovering = False
        return Staging(self._bound()).pre_commit(batch, transaction)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `Sink.commit`."""
        bound = self._bound()
        with bound.log.jvm.active():
            return Committer(bound, recovering=self._recovering).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `Sink.abort`."""
        bound = self._bound()
        with bound.log.jvm.active():
            Orphans(bound).abort(committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `Sink.in_doubt`."""
        bound = self._bound()
        with bound.log.jvm.active():
            return Orphans(bound).in_doubt()

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`."""
        bound = self._bound()
        with bound.log.jvm.active():
            return Orphans(bound).unfinished(pieces)

    def subsume(self, lineage: str, checkpoint_id: int) -> None:
        """See `Sink.subsume`. Commits raise the mark themselves; only records may be left."""
        bound = self._bound()
        with bound.log.jvm.active():
            Orphans(bound).forget_committed(lineage, checkpoint_id)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        bound = self._bound()
        with bound.log.jvm.active():
            Rewind(bound, keep).check(bound.log.snapshot())

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        bound = self._bound()
        with bound.log.jvm.active():
            Rewind(bound, keep).carry_out(attempt)

    def close(self) -> None:
        """See `Sink.close`. The table stays bound: there is no connection to release."""

    def _bound(self) -> BoundSink:
        if self._bound_sink is None:
            raise StopJobError(
                f"{self!r} was used before it was opened.", remedy="call open first."
            )
        return self._bound_sink
