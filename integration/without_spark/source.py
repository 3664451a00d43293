"""The input of a plain job, and what Spark keeps of reading it.

The input is a counter that plays Kafka: a file says how many orders there are, and order i is
record i // PARTITIONS of partition i % PARTITIONS, the same whenever it is read. `QueryLog` is
Spark's folder of the lineage, in Spark's own format and checked by the product's own `SparkFolder`:
a micro-batch has its offsets frozen before it runs, and is noted as finished only after
`foreachBatch` has returned.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harness import workload
from twophase.spark.folder.spark_folder import SparkFolder

PARTITIONS = 2
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
_HEADER = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}


def produce(path: Path, count: int) -> None:
    """Let there be `count` orders."""
    temporary = path.with_suffix(".new")
    temporary.write_text(str(count))
    temporary.replace(path)


def produced(path: Path) -> int:
    """How many orders there are."""
    return int(path.read_text())


def read(partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records of one partition from `start` to before `end`."""
    rows = [
        {**order, "kafka_partition": partition, "kafka_offset": offset}
        for offset in range(start, end)
        for order in workload.orders(offset * PARTITIONS + partition, 1)
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@dataclass(frozen=True)
class Range:
    """Records of one partition.

    Attributes:
        partition: of the input.
        start: the first offset.
        end: behind the last offset.
    """

    partition: int
    start: int
    end: int


def split(starts: Sequence[int], ends: Sequence[int], tasks: int) -> list[tuple[Range, ...]]:
    """Deal the records of all partitions to tasks, each about as many."""
    records = [
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(starts[partition], ends[partition])
    ]
    parts = []
    for task in range(tasks):
        mine = records[len(records) * task // tasks : len(records) * (task + 1) // tasks]
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in mine:
            offsets[partition].append(offset)
        parts.append(tuple(Range(one, found[0], found[-1] + 1) for one, found in offsets.items()))
    return parts


def read_all(ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    """The records of ranges, one after the other."""
    for one in ranges:
        yield from read(one.partition, one.start, one.end)


def offsets_after(count: int) -> list[int]:
    """The next offset of each partition when `count` orders are read."""
    return [(count - partition + PARTITIONS - 1) // PARTITIONS for partition in range(PARTITIONS)]


def offsets_of(line: str | None) -> list[int]:
    """The next offset of each partition, of a line of Spark's offset log."""
    return [0] * PARTITIONS if line is None else list(json.loads(line)["next"])


class QueryLog:
    """Spark's offset log and commit log of one lineage.

    Args:
        folder: prepared.
    """

    def __init__(self, folder: SparkFolder) -> None:
        self._folder = folder

    def planned(self) -> int:
        """The newest micro-batch with frozen offsets; -1 before the first."""
        return newest(self._folder.path / "offsets")

    def finished(self) -> int:
        """The newest micro-batch that has returned; -1 before the first."""
        return newest(self._folder.path / "commits")

    def read_up_to(self) -> int:
        """How many orders the planned micro-batches read."""
        planned = self.planned()
        return sum(offsets_of(self._folder.offsets(planned).end[0])) if planned >= 0 else 0

    def plan(self, batch: int, count: int) -> None:
        """Freeze the offsets of a micro-batch that ends after `count` orders."""
        line = json.dumps({"next": offsets_after(count)})
        _add(
            self._folder.path / "offsets" / str(batch), "\n".join(["v1", json.dumps(_HEADER), line])
        )

    def finish(self, batch: int) -> None:
        """Note that a micro-batch has returned."""
        _add(
            self._folder.path / "commits" / str(batch),
            "\n".join(["v1", json.dumps({"nextBatchWatermarkMs": 0})]),
        )


def newest(log: Path) -> int:
    """The newest entry of one of Spark's logs; -1 if it has none."""
    names = os.listdir(log) if log.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _add(path: Path, text: str) -> None:
    """As Spark's logs do: whole, durable, and an error if another driver was faster."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise RuntimeError(f"Multiple streaming queries are concurrently using {path}") from None
    finally:
        temporary.unlink()
