"""What happens to a topic that a job cannot read any more: it stops the job by name, and when an
operator has released it, the source goes on without it; against a cluster that lives in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.contract.source import SourceLeg
from twophase.errors import (
    ConfigError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.sources.kafka.offsets import Limits, SourceOffset, ranges
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.planner import OffsetPlanner
from twophase.sources.kafka.source import KafkaSource

NAMES = {"subscribe": "old,new"}
PATTERN = {"subscribePattern": "old|new"}
ONLY_NEW = {"subscribe": "new"}
ONLY_NEW_BY_PATTERN = {"subscribePattern": "new"}
SOURCE = KafkaSource()


class Job:
    """The source of a job, and what it has read: the records of each partition, by offset."""

    def __init__(self, memory: MemoryCluster, options: Mapping[str, str]) -> None:
        self.cluster, self.clock = memory, Clock()
        self.cluster.logs = {
            "old": ("id-old", [Log(0, 7), Log(0, 3)]),
            "new": ("id-new", [Log(0, 5)]),
        }
        self.read: list[tuple[str, int, int]] = []
        self.offset = SourceOffset.initial("kafka")
        self.start(options)
        self.go_on(Limits(per_partition=3))

    def start(self, options: Mapping[str, str]) -> None:
        """The driver begins, with these options."""
        self.leg = SourceLeg("twophase-kafka", {"kafka.bootstrap.servers": "h:1", **options})
        parsed = KafkaOptions.parse(self.leg.options)
        self.planner = OffsetPlanner(parsed, self.cluster, self.clock)  # type: ignore[arg-type]

    def go_on(self, limits: Limits = Limits()) -> None:  # noqa: B008
        """Plan and read one micro-batch."""
        self.clock.now += 60
        self.take(self.planner.latest(self.offset, limits))

    def take(self, end: SourceOffset) -> None:
        end = SourceOffset.parse(end.to_line())
        for item in ranges(self.offset, end):
            self.read += [(item.topic_id, item.partition, at) for at in range(item.start, item.end)]
        self.offset = end

    def release(self, *topics: str) -> list[str]:
        """What the command does, and the start after it; what it shows."""
        line = self.offset.to_line()
        parts, lost = SOURCE.missing(self.leg, line, topics)
        self.take(SourceOffset.parse(SOURCE.released(line, line, parts)))
        return [*lost]

    def is_exact(self, **upto: int) -> bool:
        """Whether each topic, by its id, was read up to an offset, and each record once."""
        wanted = [(f"id-{name}", 0, at) for name, end in upto.items() for at in range(end)]
        return sorted(one for one in self.read if one[1] == 0) == sorted(wanted)


def delete(job: Job) -> None:
    del job.cluster.logs["old"]


def recreate(job: Job) -> None:
    job.cluster.logs["old"] = ("id-again", [Log(0, 2)])


def shrink(job: Job) -> None:
    job.cluster.logs["old"] = ("id-old", job.cluster.logs["old"][1][:1])


def leave(job: Job) -> None:
    """The next start has other options."""


@dataclass(frozen=True)
class Case:
    """How a topic goes.

    Attributes:
        happens: to the cluster.
        options: of the next start, by those of the first.
        error: of that start.
        left: how many partitions are released.
        after: up to where the job has read in the end, by the topic's id.
    """

    happens: Callable[[Job], None]
    error: type[TwoPhaseError]
    left: int = 2
    leaves: bool = False
    after: Mapping[str, int] | None = None


CASES = {
    "deleted": Case(delete, PartitionVanishedError),
    "created again": Case(recreate, TopicRecreatedError, after={"again": 2}),
    "left": Case(leave, ConfigError, leaves=True),
    "left and deleted": Case(delete, PartitionVanishedError, leaves=True),
    "a partition less": Case(shrink, PartitionVanishedError, 1, after={"old": 7}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_at_its_end", [True, False], ids=["at its end", "behind its end"])
@pytest.mark.parametrize(
    ("options", "other"),
    [(NAMES, ONLY_NEW), (PATTERN, ONLY_NEW_BY_PATTERN)],
    ids=["subscribe", "pattern"],
)
def test_it_stops_the_job_until_it_is_released(
    memory: MemoryCluster,
    options: Mapping[str, str],
    other: Mapping[str, str],
    is_at_its_end: bool,
    case: Case,
) -> None:
    job = Job(memory, options)
    if is_at_its_end:
        job.go_on()
    read = 7 if is_at_its_end else 3
    case.happens(job)
    job.start(other if case.leaves else options)
    job.cluster.logs["new"][1][0].end = 9
    for _ in range(2):
        with pytest.raises(case.error) as raised:
            job.go_on()
        assert raised.value.remedy.endswith("twophase repair release-topic JOB.yaml --topic old")
    lost = job.release("old")
    assert job.offset.begin is None, "only the first batch has it"
    assert len(lost) == case.left == len(job.offset.released)
    if case.happens is not leave:
        assert all("are gone; how many is not known" in one for one in lost)
    elif is_at_its_end:
        assert all(re.search(r"read to its end, offset \d", one) for one in lost)
    else:
        assert "offsets 3 to 6: 4 records are not read" in lost[0]
    job.start(other if case.leaves else options)
    job.go_on()
    job.go_on()
    assert job.is_exact(**{"old": read, "new": 9, **(case.after or {})})


def test_nothing_is_released_of_a_topic_that_is_there(memory: MemoryCluster) -> None:
    job = Job(memory, NAMES)
    delete(job)
    before = job.offset
    assert job.release("new") == job.release("unheard-of") == []
    assert job.offset == before


@pytest.mark.parametrize("options", [NAMES, PATTERN], ids=["subscribe", "pattern"])
def test_one_that_is_subscribed_again_goes_on_where_it_was_left(
    memory: MemoryCluster, options: Mapping[str, str]
) -> None:
    job = Job(memory, options)
    job.start(ONLY_NEW)
    job.release("old")
    job.go_on()
    assert [str(one.key) for one in job.offset.released] == ["old-0", "old-1"]
    job.start(options)
    job.go_on()
    assert job.offset.released == ()
    job.go_on()
    assert job.is_exact(old=7, new=5)


def test_one_whose_records_are_gone_when_it_is_subscribed_again_stops_the_job(
    memory: MemoryCluster,
) -> None:
    job = Job(memory, NAMES)
    job.start(ONLY_NEW)
    job.release("old")
    job.cluster.logs["old"][1][0].begin = 5
    job.start(NAMES)
    job.go_on()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 3 to 4 were deleted"):
        job.go_on()


def test_one_that_was_released_comes_back_as_another_and_goes_again(memory: MemoryCluster) -> None:
    job = Job(memory, PATTERN)
    delete(job)
    job.release("old")
    recreate(job)
    job.go_on()
    job.go_on()
    assert job.is_exact(old=3, again=2, new=5)
    delete(job)
    with pytest.raises(PartitionVanishedError):
        job.go_on()
    job.release("old")
    job.go_on()
    assert [(one.topic_id, one.offset) for one in job.offset.released] == [
        ("id-again", 2),
        ("id-old", 3),
    ]


def test_a_batch_that_was_planned_with_its_records_is_planned_without_them(
    memory: MemoryCluster,
) -> None:
    job = Job(memory, NAMES)
    job.clock.now += 60
    planned = job.planner.latest(job.offset, Limits())
    delete(job)
    start = job.offset.to_line()
    parts, _ = SOURCE.missing(job.leg, start, ["old"])
    line = SOURCE.released(start, planned.to_line(), parts)
    assert SOURCE.released(start, line, parts) == line, "carried out once"
    job.take(SourceOffset.parse(line))
    job.go_on()
    assert job.is_exact(old=3, new=5)


def test_the_first_batch_can_be_planned_without_it(memory: MemoryCluster) -> None:
    job = Job(memory, NAMES)
    begun = replace(
        job.offset,
        begin=job.offset.with_partitions(
            replace(one, offset=0) for one in job.offset.partitions or ()
        ).partitions,
    )
    start = SOURCE.first_line(begun.to_line())
    assert start is not None
    delete(job)
    parts, _ = SOURCE.missing(job.leg, start, ["old"])
    line = SOURCE.released(start, begun.to_line(), parts)
    first = SourceOffset.parse(line)
    assert [str(one) for one in ranges(SourceOffset.initial("kafka"), first)] == ["new-0:0 to 3"]
    assert [one.offset for one in first.released] == [0, 0]


def test_it_stays_released_in_a_lineage_that_is_restored(memory: MemoryCluster) -> None:
    job = Job(memory, NAMES)
    delete(job)
    job.release("old")
    job.go_on()
    line = job.offset.to_line()
    assert SOURCE.start_line("kafka", [*reversed(SOURCE.entries(line))]) == line
    assert "old" not in SOURCE.begin_after(line)


def test_a_position_that_needs_its_records_again_is_not_released(memory: MemoryCluster) -> None:
    job = Job(memory, NAMES)
    older = job.offset.to_line()
    job.go_on()
    delete(job)
    parts, _ = SOURCE.missing(job.leg, job.offset.to_line(), ["old"])
    released = SourceOffset.parse(SOURCE.released(older, older, parts)).released
    assert [str(one.key) for one in released] == ["old-1"], "old-0 was read since"
    with pytest.raises(PartitionVanishedError, match="topic 'old'") as raised:
        SOURCE.check_readable(job.leg, older, None)
    assert "release-topic" not in raised.value.remedy
