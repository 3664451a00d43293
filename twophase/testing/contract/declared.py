"""Declaring and opening: options make a sink, and `open` binds it, as often as it is called."""

from __future__ import annotations

import pickle

from twophase.protocol.outcome import Committed
from twophase.protocol.sink import OpenSink, Sink
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, LINEAGE, SinkHarness, identity, transaction_id


class DeclaredContract(ContractBase):
    """A declared sink holds options and no connection."""

    def test_a_declared_sink_works_after_pickling(self, harness: SinkHarness) -> None:
        # our own bytes
        copy: Sink = pickle.loads(pickle.dumps(harness.new_sink()))  # noqa: S301
        sink = copy.open(self.context(harness))
        sink.fence(FIRST)
        made = self.prepare(harness, sink, range(3))
        assert self.commit(sink, made) == [Committed()] * len(made)
        assert self.ids_visible(harness) == [0, 1, 2]
        sink.close()

    def test_one_declared_sink_is_open_for_two_jobs_at_once(self, harness: SinkHarness) -> None:
        declared = harness.new_sink()
        sinks = {job: declared.open(self.context(harness, job=job)) for job in ("one", "two")}
        made = {}
        for number, (job, sink) in enumerate(sinks.items()):
            sink.fence(FIRST)
            made[job] = self.prepare(harness, sink, [number], transaction_id(job=job))
        for job, sink in sinks.items():
            assert list(map(identity, sink.in_doubt())) == list(map(identity, made[job]))
        self.commit(sinks["one"], made["one"])
        sinks["one"].close()
        self.commit(sinks["two"], made["two"])
        assert self.ids_visible(harness) == [0, 1]
        sinks["two"].close()
        assert pickle.dumps(declared), "opening it left something that cannot be pickled"

    def test_a_repair_opens_a_sink_without_columns(
        self, harness: SinkHarness, sink: OpenSink
    ) -> None:
        self.commit(sink, self.prepare(harness, sink, [0], transaction_id(3)))
        made = self.prepare(harness, sink, [1], transaction_id(4))
        sink.close()
        repair = self.opened_for_repair(harness)
        assert repair.target() == made[0].target
        assert repair.history().committed == {LINEAGE: 3}
        assert list(map(identity, repair.in_doubt())) == list(map(identity, made))
        assert self.commit(repair, made) == [Committed()] * len(made)
        assert self.ids_visible(harness) == [0, 1]
        repair.close()
