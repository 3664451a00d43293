"""A task and a copy hold little of a large piece."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from benchmarks.machine import peak_bytes
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.kafka_sink.test_topics import RAW, committed
from twophase.contract.outcome import Committed
from twophase.contract.sink import SinkContext
from twophase.ids import Subtask
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

MB, MOST_MB = 256, 160


class Peak:
    """The largest memory of this process while the block runs, beyond that before, in MB."""

    grown: float

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here: proc(5)
        self._before = peak_bytes(psutil.Process())
        return self

    def __exit__(self, *exception: object) -> None:
        self.grown = (peak_bytes(psutil.Process()) - self._before) / 2**20


@pytest.mark.proof
@pytest.mark.parametrize("protocol", ["transaction", "staged"])
def test_a_large_piece_is_written_and_committed_in_little_memory(
    topics: Topics, protocol: str
) -> None:
    harness = KafkaHarness(topics, protocol=protocol, format="raw")
    context = SinkContext(JOB, SINK, RAW, parallelism=1)
    with closing(harness.new_sink().open(context)) as sink:
        sink.fence(FIRST)
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        nothing = {name: [None] * 8 for name in RAW.names}
        with Peak() as written:
            for _ in range(MB):
                values = [os.urandom(1 << 17) for _ in range(8)]
                rows = nothing | {"value": values, "partition": [0] * 8}
                writer.write(pa.RecordBatch.from_pydict(rows, schema=RAW))
            piece = writer.pre_commit()
        assert piece is not None
        with Peak() as copied:
            assert committed(sink, piece) == Committed()
        assert max(written.grown, copied.grown) < MOST_MB, (written.grown, copied.grown)
