"""A process that writes a piece, and is killed before anybody decides.

python -m integration.kafka_sink.killed_writer '{"options": {...}, "ids": [1, 2]}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pyarrow as pa

from twophase.contract.sink import SinkContext
from twophase.ids import Subtask
from twophase.sinks.kafka.sink import KafkaSink
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id


def main(settings: dict[str, Any]) -> None:
    """Write, prepare, and die."""
    rows = pa.RecordBatch.from_pydict({"id": settings["ids"]})
    sink = KafkaSink(**settings["options"]).open(SinkContext(JOB, SINK, rows.schema, parallelism=1))
    sink.fence(FIRST)
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    writer.write(rows)
    piece = writer.pre_commit()
    sys.stdout.write(f"{piece}\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
