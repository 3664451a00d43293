"""The contract suite that every source inherits.

    class TestTicksSource(SourceContract):
        @pytest.fixture
        def harness(self, tmp_path) -> TicksHarness:
            return TicksHarness(tmp_path)

A source that notifies others, of checkpoints or of rewinds, inherits `NotifyingSourceContract` too,
one that reads ranges again `RereadsRangesContract`, one whose ranges a task reads
`ReadsInTasksContract`, and one that goes on without a topic that is gone `ReleasesTopicsContract`:
a power without its suite fails.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from twophase.contract.source import (
    RangeReader,
    ReadsInTasks,
    ReleasesTopics,
    RereadsRanges,
    Source,
    SourceLeg,
)
from twophase.errors import SourceLossError
from twophase.functions.operator_state import Redistribution
from twophase.testing.harness import as_sent

FOREIGN_LINES = (
    "",
    "-",
    "null",
    "7",
    "[]",
    "{}",
    "not JSON",
    '{"position":"7","of":"nobody"}',
    '{"version":1,"source":"nobody"}',
    '{"version":1000000,"source":"nobody","partitions":[]}',
    '{"nobody":{"a":1}}',
)
"""Lines of no source; one is of a version that none can read yet."""


class SourceHarness(ABC):
    """The suite's access to one source. One harness is one place to read from, empty at first.

    Attributes:
        source: the source.
        leg: as Spark's plan would have it, with a uid if there are any.
        log: what `check_readable` is given; None if the source has none.
        fresh_starts: options to add to those of the leg, so that a fresh start skips what exists,
            and so that it does not. Each names its starting offsets.
        columns: of the source's rows, for sources that tasks read; they tell the records apart.
        topic_names: what it reads, for sources that release topics.
    """

    source: Source
    leg: SourceLeg
    log: Path | None = None
    fresh_starts: tuple[Mapping[str, str], Mapping[str, str]] = (
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
    )
    columns: pa.Schema | None = None
    topic_names: Collection[str] = ()

    @abstractmethod
    def append(self) -> str:
        """Write some records; return the offset line after all that are there.

        Each part of the source gets some (each partition, say): lines are further each time.
        """

    @abstractmethod
    def lose(self, line: str) -> None:
        """Delete the records before an offset line, as retention or an operator would."""

    def starting(self, line: str) -> str:
        """Return starting offsets that name where a line stands, as an option has them.

        For sources with `begins_at`.
        """
        raise NotImplementedError("override `starting`")

    def loosen(self) -> bool:
        """Let the system leave out or replace records from now on without an error, as compaction
        does; return False if it never does.

        For sources that tasks read.
        """
        raise NotImplementedError("override `loosen`")

    def written(self) -> list[dict[str, Any]]:
        """Return the rows of all records that `append` has written, in any order.

        For sources that tasks read. No two are equal.
        """
        raise NotImplementedError("override `written`")

    def progress(self) -> Any:
        """Return what others know of the job's progress; None before the first notification.

        For sources that notify. Equal if and only if they know the same.
        """
        raise NotImplementedError("override `progress`")

    def drop(self) -> None:
        """Delete the topics, whole. For sources that release topics."""
        raise NotImplementedError("override `drop`")


class SourceContractBase:
    """Fixtures; no test."""

    @pytest.fixture
    def harness(self) -> SourceHarness:
        """The source under test. Subclasses override this fixture."""
        raise NotImplementedError("override the fixture 'harness'")


class SourceContract(SourceContractBase):
    """The contract of every source: subclass it, and provide the fixture `harness` only."""

    def test_the_entry_point_of_its_format_names_it(self, harness: SourceHarness) -> None:
        leg = harness.leg
        name = leg.name.partition("[")[0]
        [found] = entry_points(group="twophase.sources", name=name)
        assert found.load() is type(harness.source)

    def test_a_power_has_its_suite(self, harness: SourceHarness) -> None:
        source = type(harness.source)
        notifies = (source.notify_committed, source.notify_rewound)
        if notifies != (Source.notify_committed, Source.notify_rewound):
            assert isinstance(self, NotifyingSourceContract)
        if issubclass(source, RereadsRanges):
            assert isinstance(self, RereadsRangesContract)
        if issubclass(source, ReadsInTasks):
            assert isinstance(self, ReadsInTasksContract)
        if issubclass(source, ReleasesTopics):
            assert isinstance(self, ReleasesTopicsContract)

    def test_the_options_are_accepted(self, harness: SourceHarness) -> None:
        harness.source.check_options(harness.leg)
        harness.source.check_secrets(harness.leg)

    def test_spark_reads_through_its_data_source(self, harness: SourceHarness) -> None:
        source, leg = harness.source, harness.leg
        kind = source.data_source()
        if kind is not None:
            assert kind.name() == leg.name
            assert source.needs_schema(leg.options) or kind(dict(leg.options)).schema()

    def test_a_fresh_start_that_skips_records_is_told_from_one_that_does_not(
        self, harness: SourceHarness
    ) -> None:
        source = harness.source
        skips, keeps = ({**harness.leg.options, **one} for one in harness.fresh_starts)
        assert not source.skips_existing(keeps)
        assert source.skips_existing(skips) or type(source).skips_existing is Source.skips_existing
        assert source.starting_offsets(skips) != source.starting_offsets(keeps)

    def test_starting_offsets_tell_where_a_line_stands_or_nothing(
        self, harness: SourceHarness
    ) -> None:
        source, first, second = harness.source, harness.append(), harness.append()
        if type(source).begins_at is Source.begins_at:
            assert source.begins_at(first, "of nobody") is None
            return
        named = harness.starting(first)
        assert source.begins_at(first, named) is True
        assert source.begins_at(second, named) is False
        for starting in ("of nobody", source.starting_offsets(harness.fresh_starts[1])):
            assert source.begins_at(first, str(starting)) is None

    def test_it_knows_its_own_lines_and_no_others(self, harness: SourceHarness) -> None:
        source, line = harness.source, harness.append()
        assert source.owns(line)
        others = (*FOREIGN_LINES, line[:-1], f"[{line}]")
        assert [text for text in others if source.owns(text)] == []

    def test_a_line_has_the_uid_of_its_source(self, harness: SourceHarness) -> None:
        for line in (harness.append(), harness.append()):
            assert harness.source.uid_in(line) == harness.source.uid(harness.leg)

    def test_a_new_lineage_goes_on_where_the_entries_say(self, harness: SourceHarness) -> None:
        source, first, second = harness.source, harness.append(), harness.append()
        for line in (first, second):
            entries = source.entries(line)
            kept = json.loads(json.dumps(entries))
            begun = source.start_line(source.uid_in(line), kept)
            assert source.owns(begun)
            assert source.entries(begun) == entries
            if source.redistribution is Redistribution.SPLIT:
                assert source.start_line(source.uid_in(line), [*reversed(kept)]) == begun
        assert source.entries(first) != source.entries(second)

    def test_the_beginning_in_a_line_is_a_line_and_never_changes(
        self, harness: SourceHarness
    ) -> None:
        line = harness.append()
        begin = harness.source.first_line(line)
        assert begin is None or harness.source.owns(begin)
        harness.append()
        assert harness.source.first_line(line) == begin

    def test_what_another_job_needs_is_one_line(self, harness: SourceHarness) -> None:
        first, second = harness.append(), harness.append()
        found = [harness.source.begin_after(line) for line in (first, second)]
        assert len(set(found)) == 2
        assert all(text and "\n" not in text for text in found)

    def test_its_own_log_may_be_its_own(self, harness: SourceHarness, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        for _ in range(2):
            assert harness.source.may_have_noted(harness.leg, harness.log or nowhere)
            assert harness.source.may_have_noted(harness.leg, nowhere)
            harness.append()
        assert not nowhere.exists()

    def test_a_line_may_be_of_the_source_that_has_read_it(self, harness: SourceHarness) -> None:
        lines = [harness.append(), harness.append()]
        assert all(harness.source.may_be_at(harness.leg, line) for line in lines)
        named = harness.source.named(harness.leg)
        assert named.startswith(harness.leg.name)
        assert "\n" not in named

    def test_a_line_that_is_not_bound_to_a_folder_needs_no_log(
        self, harness: SourceHarness
    ) -> None:
        why, line = harness.source.bound_to_folder(), harness.append()
        assert "\n" not in why
        assert why or harness.source.check_readable(harness.leg, line, None)

    def test_what_waits_is_counted_or_unknown(self, harness: SourceHarness) -> None:
        source, first, second = harness.source, harness.append(), harness.append()
        found = source.lag(first, second)
        assert found is None or found > 0
        for line in (first, second):
            assert source.lag(second, line) == (None if found is None else 0)

    def test_an_error_about_something_else_is_no_loss(self, harness: SourceHarness) -> None:
        assert harness.source.loss("DIVIDE_BY_ZERO", "The pre-commit failed: no.") is None

    def test_what_is_there_can_be_read_again(self, harness: SourceHarness) -> None:
        for line in (harness.append(), harness.append()):
            for _ in range(2):
                assert harness.source.check_readable(harness.leg, line, harness.log)

    def test_what_is_gone_is_named_before_it_is_taken_back(self, harness: SourceHarness) -> None:
        first, second = harness.append(), harness.append()
        harness.lose(second)
        with pytest.raises(SourceLossError) as caught:
            harness.source.check_readable(harness.leg, first, harness.log)
        assert caught.value.remedy
        assert "another job" not in caught.value.remedy  # it would write rows twice
        assert harness.source.check_readable(harness.leg, second, harness.log)

    def test_what_is_to_be_read_is_present_or_named(
        self, harness: SourceHarness, tmp_path: Path
    ) -> None:
        first, second = harness.append(), harness.append()
        log = harness.log or tmp_path / "nowhere"
        for start, end in ((None, first), (first, second), (None, second)):
            harness.source.check_present(harness.leg, start, end, log)
        harness.lose(first)
        harness.source.check_present(harness.leg, first, second, log)
        harness.lose(second)
        with suppress(SourceLossError):
            harness.source.check_present(harness.leg, first, second, log)

    def test_it_can_be_closed_at_any_time(self, harness: SourceHarness) -> None:
        line = harness.append()
        for _ in range(2):
            harness.source.close(harness.leg)
        assert harness.source.check_readable(harness.leg, line, harness.log)


class NotifyingSourceContract(SourceContractBase):
    """The contract of a source that tells others how far its job is."""

    def test_others_hear_of_each_checkpoint(self, harness: SourceHarness) -> None:
        heard = [harness.progress()]
        for _ in range(2):
            harness.source.notify_committed(harness.leg, harness.append())
            heard.append(harness.progress())
        assert heard[0] is None
        assert heard[1] != heard[2]

    def test_a_restart_that_repeats_a_notification_never_goes_backwards(
        self, harness: SourceHarness
    ) -> None:
        first, second = harness.append(), harness.append()
        harness.source.notify_committed(harness.leg, second)
        newest = harness.progress()
        harness.source.close(harness.leg)
        for line in (first, second):
            harness.source.notify_committed(harness.leg, line)
            assert harness.progress() == newest

    def test_a_rewind_goes_backwards_and_only_backwards(self, harness: SourceHarness) -> None:
        first, second = harness.append(), harness.append()
        harness.source.notify_committed(harness.leg, first)
        begun = harness.progress()
        harness.source.notify_rewound(harness.leg, second)
        assert harness.progress() == begun
        harness.source.notify_committed(harness.leg, second)
        for _ in range(2):
            harness.source.notify_rewound(harness.leg, first)
            assert harness.progress() == begun


class RereadsRangesContract(SourceContractBase):
    """The contract of a source that reads a range again."""

    @staticmethod
    def rereads(harness: SourceHarness) -> RereadsRanges[Any]:
        """Return the source."""
        assert isinstance(harness.source, RereadsRanges)
        return harness.source

    def test_ranges_are_the_same_each_time(self, harness: SourceHarness) -> None:
        source, first, second = self.rereads(harness), harness.append(), harness.append()
        found = [str(item) for item in source.ranges(harness.leg, first, second)]
        assert found
        assert len(set(found)) == len(found)
        harness.append()
        assert [str(item) for item in source.ranges(harness.leg, first, second)] == found
        assert source.ranges(harness.leg, second, second) == []

    def test_a_micro_batch_can_be_narrowed_to_some_of_its_ranges(
        self, harness: SourceHarness
    ) -> None:
        source, first, second = self.rereads(harness), harness.append(), harness.append()
        whole: dict[Hashable, Any] = {}
        for item in source.ranges(harness.leg, first, second):
            whole.setdefault(item.key, item)
        for chosen in ([*whole.values()], [], *([item] for item in whole.values())):
            low, high = source.narrowed(harness.leg, first, second, chosen)
            assert source.owns(low)
            assert source.owns(high)
            found = {item.key for item in source.ranges(harness.leg, low, high)}
            assert found == {item.key for item in chosen}
        for item in whole.values():
            low, high = source.narrowed(harness.leg, first, second, [item])
            again = source.ranges(harness.leg, low, high)
            assert len(again) > 1 or str(again[0]) == str(item)  # it may be split again

    def test_a_range_that_is_gone_is_named_before_it_is_read(self, harness: SourceHarness) -> None:
        source, first, second = self.rereads(harness), harness.append(), harness.append()
        found = source.ranges(harness.leg, first, second)
        for item in found:
            source.check_range(harness.leg, item)
        harness.lose(second)
        for item in found:
            with pytest.raises(SourceLossError):
                source.check_range(harness.leg, item)


class ReadsInTasksContract(SourceContractBase):
    """The contract of a source whose ranges a task reads and writes, without Spark in between."""

    @staticmethod
    def reads(harness: SourceHarness) -> tuple[ReadsInTasks[Any], RangeReader[Any]]:
        """Return the source, and its reader as a task gets it."""
        source = harness.source
        assert isinstance(source, ReadsInTasks)
        assert harness.columns is not None, "set SourceHarness.columns"
        reader = source.range_reader(harness.leg, harness.columns)
        return source, as_sent(reader)

    def rows(
        self, harness: SourceHarness, ranges: Sequence[Any], *, again: bool = False
    ) -> list[dict[str, Any]]:
        """Return the rows of some ranges, read by one task each."""
        _, reader = self.reads(harness)
        batches = [batch for item in ranges for batch in reader.read(item, again=again, begun=True)]
        assert {batch.schema for batch in batches} <= {harness.columns}
        return [row for batch in batches for row in batch.to_pylist()]

    def test_its_tasks_are_those_of_spark(self, harness: SourceHarness) -> None:
        source, _ = self.reads(harness)
        assert source.numbers_tasks()

    def test_it_has_begun_with_its_first_micro_batch(self, harness: SourceHarness) -> None:
        source, _ = self.reads(harness)
        assert not source.has_begun(harness.leg, None)
        assert source.has_begun(harness.leg, harness.append())

    def test_ranges_that_may_change_are_named(self, harness: SourceHarness) -> None:
        source, first, second = self.reads(harness)[0], harness.append(), harness.append()
        ranges = source.ranges(harness.leg, first, second)
        assert "\n" not in source.may_change(harness.leg, ranges)
        if harness.loosen():
            assert source.may_change(harness.leg, ranges)

    def test_ranges_have_every_record_once_and_no_other(self, harness: SourceHarness) -> None:
        source, lines, written = self.reads(harness)[0], list[str](), list[Any]()
        for _ in range(3):
            lines.append(harness.append())
            written.append(harness.written())
        first, second, third = lines
        for low, high, before, after in (
            (first, second, written[0], written[1]),
            (second, third, written[1], written[2]),
            (first, third, written[0], written[2]),
        ):
            found = self.rows(harness, source.ranges(harness.leg, low, high))
            assert _sorted(found) == _sorted(row for row in after if row not in before)

    def test_a_range_gives_the_same_rows_in_the_same_order_each_time(
        self, harness: SourceHarness
    ) -> None:
        first, second = harness.append(), harness.append()
        ranges = self.reads(harness)[0].ranges(harness.leg, first, second)
        found = [self.rows(harness, [item]) for item in ranges]
        assert all(found)
        harness.append()
        for again in (False, True):
            assert [self.rows(harness, [item], again=again) for item in ranges] == found

    def test_a_range_that_is_gone_is_not_read_as_one_that_is_empty(
        self, harness: SourceHarness
    ) -> None:
        first, second = harness.append(), harness.append()
        ranges = self.reads(harness)[0].ranges(harness.leg, first, second)
        harness.lose(second)
        for item in ranges:
            for again in (False, True):
                with pytest.raises(SourceLossError):
                    self.rows(harness, [item], again=again)


class ReleasesTopicsContract(SourceContractBase):
    """The contract of a source that goes on without topics that it cannot read any more."""

    @staticmethod
    def releases(harness: SourceHarness) -> ReleasesTopics:
        """Return the source."""
        assert isinstance(harness.source, ReleasesTopics)
        assert harness.topic_names, "set SourceHarness.topic_names"
        return harness.source

    def missing(self, harness: SourceHarness, line: str) -> tuple[str, Sequence[str]]:
        """Return what is missing of all topics."""
        return self.releases(harness).missing(harness.leg, line, harness.topic_names)

    def test_of_topics_that_are_there_nothing_is_missing(self, harness: SourceHarness) -> None:
        source, first, second = self.releases(harness), harness.append(), harness.append()
        parts, given_up = self.missing(harness, first)
        assert not given_up
        assert source.owns(parts)
        assert source.released(first, second, parts) == second

    def test_what_a_deleted_topic_had_is_missing_each_time(self, harness: SourceHarness) -> None:
        source, line = self.releases(harness), harness.append()
        harness.drop()
        found = self.missing(harness, line)
        assert found[1]
        assert all(found[1])
        assert source.owns(found[0])
        assert self.missing(harness, line) == found
        assert not source.missing(harness.leg, line, ())[1]

    def test_what_is_released_is_neither_read_nor_missed(self, harness: SourceHarness) -> None:
        source, line = self.releases(harness), harness.append()
        harness.drop()
        parts, _ = self.missing(harness, line)
        left = source.released(line, line, parts)
        assert left != line
        assert source.owns(left)
        assert not self.missing(harness, left)[1]
        assert source.released(left, left, parts) == left
        if isinstance(source, RereadsRanges):
            assert source.ranges(harness.leg, line, left) == []

    def test_parts_of_another_source_and_of_another_place_release_nothing(
        self, harness: SourceHarness
    ) -> None:
        source, first, second = self.releases(harness), harness.append(), harness.append()
        harness.drop()
        (before, _), (parts, _) = self.missing(harness, first), self.missing(harness, second)
        other = source.start_line("another source", source.entries(parts))
        for wrong in (before, other):
            assert source.released(second, second, wrong) == second


def _sorted(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))
