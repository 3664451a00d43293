"""The contract of a source, driver side: everything about it except reading.

Spark reads, through a Python data source (`data_source`) or one of its own, and notes in its offset
log how far it has read: one offset line for each source. The runtime keeps offset lines in
checkpoints and never parses them. It calls the source in this order; the steps are those of
docs/architecture.md.

A session:

    data_source                      registers the format

A start:

    before 1. check_options          fails before any write
    before 3. uid, may_be_at, start_line, bound_to_folder
                                     a restore: where each source of the plan continues
              check_readable         a rewind: can it read again what the sinks would lose? Asked
                                     again in 3.
    3. and 4. notify_rewound         a rewind: rows are about to be taken back, and have been
    after 8. close

A checkpoint:

    1. first_line                    if the start of the micro-batch is not in Spark's log
       check_present                 before its rows are read, and once more before it is decided
    3. uid_in, entries               the operator state of the source
    9. notify_committed

Commands call it without a running job: `owns`, `entries` and `begin_after` to show offsets,
`starting_offsets` and `skips_existing` for `twophase repair adopt-from-target`, the methods of
`RereadsRanges` for `twophase repair rewrite` and those of `ReleasesTopics` for `twophase repair
release-topic`; those of `ReadsInTasks` where a task reads the records and writes the rows, without
Spark in between (`chaining`). To detect other records in a replay, the tasks that
read use `twophase.state.checkpoints.replay_guard`.

A source is found by the entry point group `twophase.sources`, under the name of its format as
Spark's plan shows it, without what follows in brackets. One object serves every job of a process
and is made without arguments: it keeps nothing of a job but connections. All calls run on the
driver, in any of its threads; a crash may skip any of them, and none may change what the source
reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from twophase.errors import SourceLossError
from twophase.functions.operator_state import Redistribution

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource


@dataclass(frozen=True)
class SourceLeg:
    """One source of the plan. Its position in the plan is that of its line in Spark's offset log.

    Attributes:
        name: the format's name, such as "twophase-kafka".
        options: the options it was loaded with. Those of other sources may hold secrets,
            so never print them.
    """

    name: str
    options: Mapping[str, str]


class Source(ABC):
    """A kind of source. Only `owns` and `check_readable` have to be written.

    Attributes:
        redistribution: the scheme of its operator state, as checkpoints note it.
    """

    redistribution: ClassVar[Redistribution] = Redistribution.UNION

    def data_source(self) -> type[DataSource] | None:
        """Return the class to register in a session; None if Spark has the format already.

        Runs once per session, before any job.
        """
        return None

    def check_options(self, leg: SourceLeg) -> None:
        """Check the options, as far as that takes no connection.

        Runs once per start, before anything is written.

        Raises:
            ConfigError: an option is wrong.
        """

    def check_secrets(self, leg: SourceLeg) -> None:
        """Check that the secrets that the options name by variable or file can be read here.

        Runs on the driver in `twophase run`, before Spark starts; `twophase check` may run where
        they are not. Checks nothing by default.

        Raises:
            ConfigError: one cannot be read; names the option.
        """

    def needs_schema(self, options: Mapping[str, str]) -> bool:
        """Return whether it has no columns of its own, so that the user has to give a schema."""
        return False

    # -- offset lines ------------------------------------------------------------------------------

    @abstractmethod
    def owns(self, line: str) -> bool:
        """Return whether an offset line is one of this kind of source, in a version it can read.

        Asked of every installed source where the format is not known: be strict, and raise nothing.
        """

    def uid(self, leg: SourceLeg) -> str:
        """Return the uid that distinguishes a source from others of its format in a job.

        Empty if the format has none: then its sources are distinguished by their order.
        """
        return ""

    def uid_in(self, line: str) -> str:
        """Return the uid in an offset line, as `uid`.

        Runs for each checkpoint, between the pre-commit and the decision.

        Raises:
            CorruptRecordError: the line is not an offset of this source. The same holds for
                every method that is given a line.
            NewerFormatError: a newer version has written it; likewise.
        """
        return ""

    def entries(self, line: str) -> list[Any]:
        """Return an offset line as the entries of the source's operator state, which are JSON.

        Runs when `uid_in` does, and where offsets are shown. Durable: `start_line` has to read
        entries of all older versions.
        """
        return [line]

    def start_line(self, uid: str, entries: Sequence[Any]) -> str:
        """Return the offset line that a new lineage begins with.

        Runs before a restored job is taken over. The plan may have changed: other options, another
        order of the sources, another number of tasks.

        Args:
            uid: the uid in the checkpoint.
            entries: what `entries` has returned, in any order unless it is one; at least one.
        """
        return str(entries[0])

    def first_line(self, end: str) -> str | None:
        """Return the offset line at which a source began its first micro-batch.

        Args:
            end: the line at which that micro-batch, or a later one, ended.

        Returns:
            None if that line does not say. Always the same for one line: the identity of the
            micro-batch depends on it.
        """
        return None

    def begin_after(self, line: str) -> str:
        """Return what another job needs to go on after a line, as words in a remedy."""
        return f"a source that begins after {line}"

    def lag(self, end: str, latest: str) -> int | None:
        """Return how many records wait; None if the offset lines do not tell. Asks no server.

        Runs in a thread of its own, about once a second, for the metrics of a running job.

        Args:
            end: where the newest micro-batch ended.
            latest: the newest offset that Spark knows, of the same source.

        Raises:
            Exception: any; there are no metrics until it passes.
        """
        return None

    def bound_to_folder(self) -> str:
        """Return why a source can only go on in its own Spark folder; empty if it can elsewhere.

        An offset line of such a source alone cannot be restored.
        """
        return ""

    def may_be_at(self, leg: SourceLeg, line: str) -> bool:
        """Return whether a line may be of this source, where no uid tells it from others of its
        format. Asks no server.

        Spark knows a source by its place in the plan only. False refuses a start, or sends the line
        elsewhere, only if another source of the job may be at it.

        Args:
            leg: the source as the plan has it now.
            line: of a source of this format.
        """
        return True

    def named(self, leg: SourceLeg) -> str:
        """Return what a message calls a source without a uid, beside others of its format."""
        return leg.name

    def may_have_noted(self, leg: SourceLeg, log: Path) -> bool:
        """Return whether what Spark keeps in a log may be of this source. Writes nothing.

        Spark knows a source by its place in the plan only. Asked until the first checkpoint is
        decided, which then tells the sources apart, before the job is taken over.

        Args:
            leg: the source as the plan has it now.
            log: the folder of a place, which may not exist.
        """
        return True

    # -- the source's own system -------------------------------------------------------------------

    @abstractmethod
    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        """Check that everything after an offset is still there and can be read again.

        Runs on the driver once per start that rewinds, before the job is taken over, so that no
        row is taken back that could not be written again. May take seconds; writes nothing.

        Args:
            leg: the source as the plan has it now.
            line: where it is to read from.
            log: the folder in which Spark keeps what this source itself has noted, in the lineage
                that has read past the line. None if that is not known; it may not exist.

        Returns:
            True if it is all there; False if that cannot be determined. Then no row is taken back,
            unless the operator has set `restore.allow_unproven_sources`.

        Raises:
            RestoreRefusedError: the same as False, with the reason as a sentence.
            SourceLossError: something is gone, or no longer what it was; names it.
            SourceUnavailableError: the system does not answer.
            ConfigError: the options no longer read what the line has.

            A remedy says how to get that back, and nothing else: the rows of what is gone are in
            the targets, and a job that begins elsewhere would write some of them twice.
        """

    def check_present(self, leg: SourceLeg, start: str | None, end: str, log: Path) -> None:
        """Check that what a micro-batch is to read is there, where Spark would leave it out without
        an error. Passes by default: what is gone fails the read.

        Runs on the driver: before a micro-batch is read, also again, and before it is decided. Be
        brief, and write nothing.

        Args:
            leg: the source. In the plugin form it has no options, and of its name only what is
                before a bracket.
            start: where the micro-batch begins; None if nobody knows, or before the first.
            end: where it ends, another line than `start`.
            log: the folder in which Spark keeps what this source itself has noted.

        Raises:
            SourceLossError: something is gone; names it.
        """

    def loss(self, condition: str, said: str) -> SourceLossError | None:
        """Return the error that an error of Spark's own reader means; None if it is no loss.

        Runs on the driver when a micro-batch has failed. Every installed source is asked.

        Args:
            condition: of Spark's error, such as "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE".
            said: what has failed and Spark's message, as a sentence.

        Returns:
            An error that says the same, with the remedy.
        """
        return None

    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        """Tell others how far the job is, such as by committing group offsets.

        Runs on the driver, in a thread with no other notification, after every sink has committed
        a checkpoint. Called in ascending order within a run, but again after a restart: never go
        backwards. A crash may skip it, and the next checkpoint covers that.

        Args:
            leg: the source.
            line: where the checkpoint ended.

        Raises:
            Exception: any; becomes the event `GroupOffsetsDelayed`. No data depends on it.
        """

    def notify_rewound(self, leg: SourceLeg, line: str) -> None:
        """Tell others that the job goes back, such as by lowering group offsets.

        Runs on the driver when a rewind is recorded, before the first row is taken back, and again
        when all of them are, before the lineage that reads them again begins; both once more after
        a crash in between. In a restored lineage also before the first `notify_committed` of each
        run, and again until it succeeds: no call before may have.

        Args:
            leg: the source.
            line: where that lineage begins; or where the checkpoint ended.

        Raises:
            Exception: any; becomes the event `GroupOffsetsDelayed`. No data depends on it.
        """

    def close(self, leg: SourceLeg) -> None:
        """Close what was opened for a source. Runs once on the driver, when its job ends."""

    # -- where a job without a checkpoint begins ---------------------------------------------------

    def starting_offsets(self, options: Mapping[str, str]) -> str | None:
        """Return where the user's options have a fresh start begin; None if they leave it open.

        Runs in `twophase repair adopt-from-target`, which shows it to the operator.
        """
        return option(options, "startingOffsets")

    def skips_existing(self, options: Mapping[str, str]) -> bool:
        """Return whether a fresh start may begin after records that exist already."""
        return False

    def begins_at(self, line: str, starting: str) -> bool | None:
        """Return whether a fresh start stands at an offset line. Asks no server.

        Runs at the first start of the plugin form after `twophase repair adopt-from-target`.

        Args:
            line: where a source has begun.
            starting: from `starting_offsets`, perhaps of another program.

        Returns:
            None if that does not tell, such as "earliest".
        """
        return None


class SourceRange(Protocol):
    """What one task reads. `str()` of it names it for people, with its bounds."""

    @property
    def key(self) -> Hashable:
        """The part of the source that it is in: a micro-batch reads one range of each at most."""


RangeT = TypeVar("RangeT", bound=SourceRange)


class RereadsRanges(Source, Generic[RangeT]):
    """A source from which `twophase repair rewrite` reads the records of a checkpoint again."""

    @abstractmethod
    def ranges(self, leg: SourceLeg, start: str | None, end: str | None) -> Sequence[RangeT]:
        """Return what the tasks of a micro-batch read, for the same lines always the same.

        Args:
            leg: the source.
            start: where the micro-batch begins; None before the first.
            end: where it ends.

        Raises:
            StopJobError: the lines do not say.
        """

    def numbers_tasks(self) -> bool:
        """Return whether task i reads range i. If not, only whole checkpoints are read again."""
        return True

    @abstractmethod
    def check_range(self, leg: SourceLeg, item: RangeT) -> None:
        """Check that a range is still there, as it was. Runs before anything is written.

        Raises:
            SourceLossError: it is not; names it.
        """

    @abstractmethod
    def narrowed(
        self, leg: SourceLeg, start: str | None, end: str | None, items: Iterable[RangeT]
    ) -> tuple[str, str]:
        """Return two lines between which a micro-batch reads exactly some ranges of another.

        Args:
            leg: the source.
            start: where that one begins, as for `ranges`.
            end: where it ends.
            items: some of its ranges, at most one of each key; none to read nothing.
        """


RangeT_contra = TypeVar("RangeT_contra", bound=SourceRange, contravariant=True)


class RangeReader(ABC, Generic[RangeT_contra]):
    """Reads ranges of one source. Picklable: it is sent to the executors."""

    @abstractmethod
    def read(self, item: RangeT_contra, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, all of them and no others, in their order.

        Runs on an executor, once in each attempt of a task. Its rows, checks, warnings and errors
        are those of Spark's own read of the range, whatever `RereadsRanges.ranges` it is one of.

        Args:
            item: the range.
            again: whether the micro-batch was planned by an earlier run of the query, perhaps days
                ago: what it reads may be gone.
            begun: whether the source has read a micro-batch before: then what its servers refuse
                may pass, and is tried again; otherwise it ends the start.

        Raises:
            SourceLossError: records of it are gone or have changed.
        """


class ReadsInTasks(RereadsRanges[RangeT]):
    """A source whose ranges a task may read without Spark, to write their rows in one process.

    `RereadsRanges.ranges` are then those of Spark's own tasks, in their order (`numbers_tasks`).
    """

    @abstractmethod
    def range_reader(self, leg: SourceLeg, schema: pa.Schema) -> RangeReader[RangeT]:
        """Return what the tasks of all micro-batches read with. Runs on the driver.

        Args:
            leg: the source.
            schema: of its rows, as Spark has the source's columns, with times in UTC.

        Raises:
            ConfigError: the source has no such rows.
        """

    @abstractmethod
    def has_begun(self, leg: SourceLeg, start: str | None) -> bool:
        """Return whether a micro-batch was read before the one that begins at a line.

        Runs on the driver, and asks no server.

        Args:
            leg: the source.
            start: its line; None at the very beginning.
        """

    @abstractmethod
    def may_change(self, leg: SourceLeg, ranges: Sequence[RangeT]) -> str:
        """Return why two reads of ranges may give different records though both succeed.

        Runs on the driver, before the tasks, for each micro-batch that some sinks get from tasks of
        their own and others through Spark. Writes nothing. Those tasks then do not run, and all
        sinks get the rows of one read.

        Args:
            leg: the source.
            ranges: of the micro-batch.

        Returns:
            A clause; empty if a record that both reads are to give cannot go in between without an
            error. What is not known may change.
        """


class ReleasesTopics(Source):
    """A source that `twophase repair release-topic` lets go on without topics that it cannot read
    any more: they were deleted, created again, or have left its options.
    """

    @abstractmethod
    def missing(
        self, leg: SourceLeg, line: str, topics: Collection[str]
    ) -> tuple[str, Sequence[str]]:
        """Return what of some topics the source cannot go on with. Writes nothing.

        Args:
            leg: the source as the job has it now.
            line: how far it has read.
            topics: their names.

        Returns:
            An offset line of these parts alone, as they stand in `line`; and for each of them a
            sentence on what is given up. No sentence if nothing is missing.

        Raises:
            SourceUnavailableError: the system does not answer.
        """

    @abstractmethod
    def released(self, start: str, end: str, parts: str) -> str:
        """Return the end of a micro-batch that leaves parts behind where it starts. Pure.

        What the source has of them later is not read again, and not missed; the offset lines after
        this one keep where they were left. If they come back, the source goes on there.

        Args:
            start: where the micro-batch starts.
            end: where it would end; may be the same.
            parts: from `missing`, perhaps of another source: then `end` is returned.
        """


class UnknownSource(Source):
    """Stands for a source that no entry point names: its offset lines are kept as they are."""

    def owns(self, line: str) -> bool:
        """Return False: nothing is known of its lines."""
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        """Return False: nothing can be asked."""
        return False


def option(options: Mapping[str, str], key: str) -> str | None:
    """Return an option whose key is compared without regard to case, as Spark does."""
    return next((value for name, value in options.items() if name.lower() == key.lower()), None)
