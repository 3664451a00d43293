"""What authors of sources get wrong: each mistake, put into the Kafka source, is found by the test
that is there for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.kafka.memory_cluster import Log, MemoryCluster, fetch
from tests.sources.kafka.test_source import KafkaHarness
from twophase.contract.source import (
    RangeReader,
    ReadsInTasks,
    ReleasesTopics,
    RereadsRanges,
    Source,
    SourceLeg,
)
from twophase.errors import ConfigError, SourceLossError
from twophase.sources.kafka import KafkaDataSource, KafkaSource, cluster, engines
from twophase.sources.kafka.engines import close_clusters, cluster_of
from twophase.sources.kafka.offsets import OffsetRange, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.testing.contract import (
    NotifyingSourceContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
    RereadsRangesContract,
    SourceContract,
)
from twophase.testing.contract import source as suites_of_sources

pytestmark = pytest.mark.part("contract")


class Suite(
    SourceContract,
    NotifyingSourceContract,
    RereadsRangesContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
):
    """All of it."""


class OwnsEveryLine(KafkaSource):
    def owns(self, line: str) -> bool:
        return True


class RefusesItsOptions(KafkaSource):
    def check_options(self, leg: SourceLeg) -> None:
        raise ConfigError("no.")


class RefusesItsSecrets(KafkaSource):
    def check_secrets(self, leg: SourceLeg) -> None:
        raise ConfigError("no.")


class NamedOtherwise(KafkaSource):
    def data_source(self) -> type[KafkaDataSource]:
        class Orders(KafkaDataSource):
            @classmethod
            def name(cls) -> str:
                return "orders"

        return Orders


class WithoutColumns(KafkaSource):
    def data_source(self) -> type[KafkaDataSource]:
        class Empty(KafkaDataSource):
            def schema(self) -> str:
                return ""

        return Empty


class SkipsWithoutAWord(KafkaSource):
    def skips_existing(self, options: Mapping[str, str]) -> bool:
        return False


class SkipsAlways(KafkaSource):
    def skips_existing(self, options: Mapping[str, str]) -> bool:
        return True


class StartsAnywhere(KafkaSource):
    def starting_offsets(self, options: Mapping[str, str]) -> str | None:
        return None


class BeginsWhereItIsTold(KafkaSource):
    def begins_at(self, line: str, starting: str) -> bool | None:
        return True


class NeverKnowsWhereItBegan(KafkaSource):
    def begins_at(self, line: str, starting: str) -> bool | None:
        return None


class TakesWordsForOffsets(KafkaSource):
    def begins_at(self, line: str, starting: str) -> bool | None:
        return super().begins_at(line, starting) or False


class DisownsItsLog(KafkaSource):
    def may_have_noted(self, leg: SourceLeg, log: Path) -> bool:
        return False


class MakesItsLog(KafkaSource):
    def may_have_noted(self, leg: SourceLeg, log: Path) -> bool:
        log.mkdir(exist_ok=True)
        return True


class NeedsItsLog(KafkaSource):
    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        return log is not None and super().check_readable(leg, line, log)


class SaysALotOfItsFolder(KafkaSource):
    def bound_to_folder(self) -> str:
        return "it is.\nReally"


class NeverChanges(KafkaSource):
    def may_change(self, leg: SourceLeg, ranges: Sequence[OffsetRange]) -> str:
        return ""


class SaysALotOfChanges(KafkaSource):
    def may_change(self, leg: SourceLeg, ranges: Sequence[OffsetRange]) -> str:
        return "it may.\nReally"


class ForgetsAPartition(KafkaSource):
    def entries(self, line: str) -> list[Any]:
        return super().entries(line)[:-1]


class KeepsTheOrderOfEntries(KafkaSource):
    def start_line(self, uid: str, entries: Sequence[Any]) -> str:
        line = super().start_line(uid, entries)
        return line if entries[0]["partition"] == 0 else line.replace(", ", ",")


class WritesAnotherUid(KafkaSource):
    def uid_in(self, line: str) -> str:
        return "kafka"


class BeginsNowhere(KafkaSource):
    def first_line(self, end: str) -> str | None:
        return "nowhere"


class BeginsAtTheEnd(KafkaSource):
    def first_line(self, end: str) -> str | None:
        at = HARNESS[0].memory.logs["orders"][1][0].end
        return self.start_line("a", [{**self.entries(end)[0], "offset": at}])


class ForgetsWhere(KafkaSource):
    def begin_after(self, line: str) -> str:
        return "startingOffsets"


class CountsBackwards(KafkaSource):
    def lag(self, end: str, latest: str) -> int | None:
        ends, latest_ones = self.entries(end), self.entries(latest)
        return sum(int(at["offset"]) for at in latest_ones) - sum(int(at["offset"]) for at in ends)


class CountsNothing(KafkaSource):
    def lag(self, end: str, latest: str) -> int | None:
        return 0


class ClaimsEveryError(KafkaSource):
    def loss(self, condition: str, said: str) -> SourceLossError | None:
        return SourceLossError(said)


class SeesNoLoss(KafkaSource):
    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        return True


class SeesALossEverywhere(KafkaSource):
    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        raise SourceLossError("gone.", remedy="none")


class DisownsItsLines(KafkaSource):
    def may_be_at(self, leg: SourceLeg, line: str) -> bool:
        return False


class HasAnotherName(KafkaSource):
    def named(self, leg: SourceLeg) -> str:
        return "orders"


class MissesEverything(KafkaSource):
    def check_present(self, leg: SourceLeg, start: str | None, end: str, log: Path) -> None:
        raise SourceLossError("gone.", remedy="none")


class SendsRowsTwice(KafkaSource):
    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        try:
            return super().check_readable(leg, line, log)
        except SourceLossError as error:
            raise type(error)(error.what, remedy="begin another job after them.") from error


class CommitsWhateverComes(KafkaSource):
    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        entries = SourceOffset.parse(line).partitions or ()
        cluster_of(KafkaOptions.parse(leg.options)).commit("etl", entries)


class TellsNobody(KafkaSource):
    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        """Do nothing."""


class TellsOfRewindsAlone(KafkaSource):
    notify_committed = Source.notify_committed


class StaysAhead(KafkaSource):
    def notify_rewound(self, leg: SourceLeg, line: str) -> None:
        """Do nothing."""


class SplitsByWhatIsThere(KafkaSource):
    def ranges(self, leg: SourceLeg, start: str | None, end: str | None) -> Sequence[OffsetRange]:
        tasks = str(HARNESS[0].memory.logs["orders"][1][0].end // 10)
        return super().ranges(
            SourceLeg(leg.name, {**leg.options, "minReadTasks": tasks}), start, end
        )


class NarrowsNothing(KafkaSource):
    def narrowed(
        self, leg: SourceLeg, start: str | None, end: str | None, items: Iterable[OffsetRange]
    ) -> tuple[str, str]:
        return start or "", end or ""


class SeesNoLostRange(KafkaSource):
    def check_range(self, leg: SourceLeg, item: OffsetRange) -> None:
        """Do nothing."""


class Reader(RangeReader[OffsetRange]):
    """Changes what the reader of the source does. Each mistake is a `read` of its own."""

    def __init__(self, reader: RangeReader[OffsetRange]) -> None:
        self.reader = reader

    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        yield from self.reader.read(item, again=again, begun=begun)


class OneMore(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        there = HARNESS[0].memory.logs["orders"][1][item.partition].end
        more = replace(item, end=min(item.end + 1, there))
        yield from super().read(more, again=again, begun=begun)


class WithoutTheFirst(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        yield from super().read(replace(item, start=item.start + 1), again=again, begun=begun)


class EachTimeOtherwise(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        for batch in super().read(item, again=again, begun=begun):
            yield batch.take(pa.array(range(batch.num_rows))[::-1]) if again else batch


class EmptyIfGone(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        with suppress(SourceLossError):
            yield from super().read(item, again=again, begun=begun)


class EmptyIfGoneLater(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        with suppress(SourceLossError) if again else nullcontext():
            yield from super().read(item, again=again, begun=begun)


class OtherColumns(Reader):
    def read(self, item: OffsetRange, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        for batch in super().read(item, again=again, begun=begun):
            yield batch.select(["offset", "partition", "value"])


class Unsendable(Reader):
    def __init__(self, reader: RangeReader[OffsetRange]) -> None:
        super().__init__(reader)
        self.made_by = lambda: reader


def reading(kind: type[Reader]) -> type[KafkaSource]:
    """The source with a reader that makes a mistake."""

    class Reading(KafkaSource):
        def range_reader(self, leg: SourceLeg, schema: pa.Schema) -> Any:
            return kind(super().range_reader(leg, schema))

    Reading.__name__ = kind.__name__
    return Reading


class NumbersTasksOtherwise(KafkaSource):
    def numbers_tasks(self) -> bool:
        return False


class HasAlwaysBegun(KafkaSource):
    def has_begun(self, leg: SourceLeg, start: str | None) -> bool:
        return True


class NeverBegins(KafkaSource):
    def has_begun(self, leg: SourceLeg, start: str | None) -> bool:
        return False


class MissesWhatIsThere(KafkaSource):
    def missing(
        self, leg: SourceLeg, line: str, topics: Collection[str]
    ) -> tuple[str, Sequence[str]]:
        return line, [f"{topic} is gone" for topic in topics]


class MissesNothing(KafkaSource):
    def missing(
        self, leg: SourceLeg, line: str, topics: Collection[str]
    ) -> tuple[str, Sequence[str]]:
        return super().missing(leg, line, ())


class MissesAllTopics(KafkaSource):
    def missing(
        self, leg: SourceLeg, line: str, topics: Collection[str]
    ) -> tuple[str, Sequence[str]]:
        return super().missing(leg, line, {entry["topic"] for entry in self.entries(line)})


class ReleasesNothing(KafkaSource):
    def released(self, start: str, end: str, parts: str) -> str:
        return end


class ReleasesWhatOthersMiss(KafkaSource):
    def released(self, start: str, end: str, parts: str) -> str:
        own = self.start_line(self.uid_in(end), self.entries(parts))
        return super().released(start, end, own)


class ReleasesWhereverItStands(KafkaSource):
    def released(self, start: str, end: str, parts: str) -> str:
        same = self.uid_in(parts) == self.uid_in(end) and self.entries(parts)
        return super().released(start, end, start) if same else end


class ClosesOnce(KafkaSource):
    closed = False

    def close(self, leg: SourceLeg) -> None:
        assert not self.closed
        self.closed = True


NOTICED = (
    AssertionError,
    AttributeError,  # of pickle
    ConfigError,
    SourceLossError,
    pytest.fail.Exception,
)
HARNESS: list[KafkaHarness] = []
MISTAKES: Mapping[type[KafkaSource], Callable[..., None]] = {
    OwnsEveryLine: Suite.test_it_knows_its_own_lines_and_no_others,
    RefusesItsOptions: Suite.test_the_options_are_accepted,
    RefusesItsSecrets: Suite.test_the_options_are_accepted,
    NamedOtherwise: Suite.test_spark_reads_through_its_data_source,
    WithoutColumns: Suite.test_spark_reads_through_its_data_source,
    SkipsWithoutAWord: Suite.test_a_fresh_start_that_skips_records_is_told_from_one_that_does_not,
    SkipsAlways: Suite.test_a_fresh_start_that_skips_records_is_told_from_one_that_does_not,
    StartsAnywhere: Suite.test_a_fresh_start_that_skips_records_is_told_from_one_that_does_not,
    BeginsWhereItIsTold: Suite.test_starting_offsets_tell_where_a_line_stands_or_nothing,
    NeverKnowsWhereItBegan: Suite.test_starting_offsets_tell_where_a_line_stands_or_nothing,
    TakesWordsForOffsets: Suite.test_starting_offsets_tell_where_a_line_stands_or_nothing,
    DisownsItsLog: Suite.test_its_own_log_may_be_its_own,
    MakesItsLog: Suite.test_its_own_log_may_be_its_own,
    NeedsItsLog: Suite.test_a_line_that_is_not_bound_to_a_folder_needs_no_log,
    SaysALotOfItsFolder: Suite.test_a_line_that_is_not_bound_to_a_folder_needs_no_log,
    NeverChanges: Suite.test_ranges_that_may_change_are_named,
    SaysALotOfChanges: Suite.test_ranges_that_may_change_are_named,
    ForgetsAPartition: Suite.test_a_new_lineage_goes_on_where_the_entries_say,
    KeepsTheOrderOfEntries: Suite.test_a_new_lineage_goes_on_where_the_entries_say,
    WritesAnotherUid: Suite.test_a_line_has_the_uid_of_its_source,
    BeginsNowhere: Suite.test_the_beginning_in_a_line_is_a_line_and_never_changes,
    BeginsAtTheEnd: Suite.test_the_beginning_in_a_line_is_a_line_and_never_changes,
    ForgetsWhere: Suite.test_what_another_job_needs_is_one_line,
    CountsBackwards: Suite.test_what_waits_is_counted_or_unknown,
    CountsNothing: Suite.test_what_waits_is_counted_or_unknown,
    ClaimsEveryError: Suite.test_an_error_about_something_else_is_no_loss,
    SeesNoLoss: Suite.test_what_is_gone_is_named_before_it_is_taken_back,
    SeesALossEverywhere: Suite.test_what_is_there_can_be_read_again,
    DisownsItsLines: Suite.test_a_line_may_be_of_the_source_that_has_read_it,
    HasAnotherName: Suite.test_a_line_may_be_of_the_source_that_has_read_it,
    MissesEverything: Suite.test_what_is_to_be_read_is_present_or_named,
    SendsRowsTwice: Suite.test_what_is_gone_is_named_before_it_is_taken_back,
    ClosesOnce: Suite.test_it_can_be_closed_at_any_time,
    CommitsWhateverComes: Suite.test_a_restart_that_repeats_a_notification_never_goes_backwards,
    StaysAhead: Suite.test_a_rewind_goes_backwards_and_only_backwards,
    TellsNobody: Suite.test_others_hear_of_each_checkpoint,
    SplitsByWhatIsThere: Suite.test_ranges_are_the_same_each_time,
    NarrowsNothing: Suite.test_a_micro_batch_can_be_narrowed_to_some_of_its_ranges,
    MissesWhatIsThere: Suite.test_of_topics_that_are_there_nothing_is_missing,
    MissesNothing: Suite.test_what_a_deleted_topic_had_is_missing_each_time,
    MissesAllTopics: Suite.test_what_a_deleted_topic_had_is_missing_each_time,
    ReleasesNothing: Suite.test_what_is_released_is_neither_read_nor_missed,
    ReleasesWhatOthersMiss: (
        Suite.test_parts_of_another_source_and_of_another_place_release_nothing
    ),
    ReleasesWhereverItStands: (
        Suite.test_parts_of_another_source_and_of_another_place_release_nothing
    ),
    SeesNoLostRange: Suite.test_a_range_that_is_gone_is_named_before_it_is_read,
    NumbersTasksOtherwise: Suite.test_its_tasks_are_those_of_spark,
    HasAlwaysBegun: Suite.test_it_has_begun_with_its_first_micro_batch,
    NeverBegins: Suite.test_it_has_begun_with_its_first_micro_batch,
    reading(OneMore): Suite.test_ranges_have_every_record_once_and_no_other,
    reading(WithoutTheFirst): Suite.test_ranges_have_every_record_once_and_no_other,
    reading(OtherColumns): Suite.test_ranges_have_every_record_once_and_no_other,
    reading(Unsendable): Suite.test_ranges_have_every_record_once_and_no_other,
    reading(EachTimeOtherwise): Suite.test_a_range_gives_the_same_rows_in_the_same_order_each_time,
    reading(EmptyIfGone): Suite.test_a_range_that_is_gone_is_not_read_as_one_that_is_empty,
    reading(EmptyIfGoneLater): Suite.test_a_range_that_is_gone_is_not_read_as_one_that_is_empty,
}


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaHarness]:
    memory = MemoryCluster({"orders": ("id-1", [Log(), Log()])})
    monkeypatch.setattr(cluster, "Cluster", lambda *_: memory)
    monkeypatch.setattr(engines, "_engine", lambda _: fetch)
    found = KafkaHarness(memory)
    HARNESS[:] = [found]
    yield found
    close_clusters()


@pytest.mark.parametrize("source", MISTAKES)
def test_each_mistake_is_found(
    harness: KafkaHarness, source: type[KafkaSource], tmp_path: Path
) -> None:
    harness.source = source()
    test = MISTAKES[source]
    wanted = inspect.signature(test).parameters
    given = {name: value for name, value in (("tmp_path", tmp_path),) if name in wanted}
    with pytest.raises(NOTICED):
        test(Suite(), harness, **given)


def test_a_power_without_its_suite_is_found(harness: KafkaHarness) -> None:
    Suite().test_a_power_has_its_suite(harness)
    powers = {*Suite.__bases__} - {SourceContract}
    assert len(powers) == 4
    for left_out in powers:
        suite: Any = type("Incomplete", (SourceContract, *(powers - {left_out})), {})
        with pytest.raises(AssertionError):
            suite().test_a_power_has_its_suite(harness)
    harness.source = TellsOfRewindsAlone()
    suite = type("Incomplete", (SourceContract, *(powers - {NotifyingSourceContract})), {})
    with pytest.raises(AssertionError):
        suite().test_a_power_has_its_suite(harness)


def test_each_method_of_a_source_is_called_by_a_suite() -> None:
    text = inspect.getsource(suites_of_sources)
    kinds = (Source, RereadsRanges, ReadsInTasks, ReleasesTopics)
    names = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    assert len(names - {"redistribution"}) >= 25
    assert sorted(name for name in names if f".{name}" not in text) == []


def test_an_entry_point_that_names_another_class_is_found(harness: KafkaHarness) -> None:
    Suite().test_the_entry_point_of_its_format_names_it(harness)
    harness.source = TellsNobody()
    with pytest.raises(AssertionError):
        Suite().test_the_entry_point_of_its_format_names_it(harness)
    harness.leg = SourceLeg("twophase-kafkaa", harness.leg.options)
    with pytest.raises(ValueError, match="not enough values"):
        Suite().test_the_entry_point_of_its_format_names_it(harness)
