"""The input of a plain job: a counter that plays Kafka.

A file says how many orders there are, and order i is record i // PARTITIONS of partition
i % PARTITIONS, the same whenever it is read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from harness import workload
from twophase.testing.plain_host import TaskRows

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

PLACE = pa.field("place", pa.string())


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


def read_all(
    ranges: Iterable[Range], places: Sequence[str | None] = ()
) -> Iterator[pa.RecordBatch]:
    """The records of ranges, one after the other; with places, which are dealt to them in turn, in
    a last column.
    """
    for one in ranges:
        for rows in read(one.partition, one.start, one.end):
            if places:
                dealt = [places[number % len(places)] for number in rows["id"].to_pylist()]
                yield rows.append_column(PLACE, pa.array(dealt, PLACE.type))
            else:
                yield rows


def offsets_after(count: int) -> list[int]:
    """The next offset of each partition when `count` orders are read."""
    return [(count - partition + PARTITIONS - 1) // PARTITIONS for partition in range(PARTITIONS)]


def offsets_of(line: str | None) -> list[int]:
    """The next offset of each partition, of a line of Spark's offset log."""
    return [0] * PARTITIONS if line is None else list(json.loads(line)["next"])


class Orders:
    """The orders that are produced so far. See `twophase.testing.plain_host.Rows`.

    Args:
        path: says how many there are.
        batch: how many a micro-batch has at most.
        parallelism: how many tasks a micro-batch has.
        places: as `read_all` takes them.
    """

    def __init__(
        self, path: Path, batch: int, parallelism: int, places: Sequence[str | None] = ()
    ) -> None:
        self._path = path
        self._batch = batch
        self._places = places
        self.parallelism = parallelism
        self.schema = SCHEMA.append(PLACE) if places else SCHEMA

    def end_after(self, start: str | None) -> str | None:
        """See `Rows`."""
        read = sum(offsets_of(start))
        count = min(read + self._batch, produced(self._path))
        return json.dumps({"next": offsets_after(count)}) if count > read else None

    def tasks(self, start: str | None, end: str | None) -> Sequence[TaskRows]:
        """See `Rows`."""
        parts = split(offsets_of(start), offsets_of(end), self.parallelism)
        return [partial(read_all, ranges, self._places) for ranges in parts]
