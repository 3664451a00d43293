"""The optional powers of a sink: each has a suite, which an author inherits by its name.

    class TestMySink(ArrowSinkContract, NamesPiecesContract, RewindContract):
        @pytest.fixture
        def harness(self, tmp_path) -> MyHarness:
            return MyHarness(tmp_path)

`SinkContract` fails for a sink that has a power without its suite. `RewindKillContract`, or
`RewindStepsKillContract` in its place, kills, and has a class of its own, which the others name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import pytest

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.contract.sink import (
    ArrowSink,
    CanRewind,
    CompletesPartitions,
    KnowsOtherNames,
    NamesPieces,
    OpenArrowSink,
    OpenSink,
    Predecessor,
    RewindsInSteps,
    TellsUnfinished,
)
from twophase.errors import FencedError, RestoreRefusedError, TargetChangedError
from twophase.ids import Attempt, Subtask
from twophase.testing.contract.base import ContractBase, all_are
from twophase.testing.contract.kill import run_driver
from twophase.testing.contract.kill_driver import Rewind, pre_commit, rewind
from twophase.testing.contract.stepping import LINES_AT_MOST, spread
from twophase.testing.harness import (
    FIRST,
    JOB,
    LINEAGE,
    OTHER_LINEAGE,
    SINK,
    SinkHarness,
    identity,
    transaction_id,
)

RESTORING = Attempt(2, 0)
"""The driver that restores: one generation after the one that has written."""
NO_SUITE = "No suite:"
"""How the reason begins why there is none."""


def suite_of(named: type | str) -> type:
    """Return a suite that another one names.

    Args:
        named: the class; or `module:Class`, for one of another file.
    """
    if isinstance(named, type):
        return named
    module, _, name = named.partition(":")
    found: type = getattr(import_module(module), name)
    return found


class NamesPiecesContract(ContractBase):
    """Exactly the committed pieces of a checkpoint are named."""

    power: ClassVar[type] = NamesPieces

    @staticmethod
    def names(sink: OpenSink, checkpoint: int, lineage: str = LINEAGE) -> list[str]:
        """Return the names that the sink gives, sorted."""
        assert isinstance(sink, NamesPieces)
        return sorted(sink.committed_pieces(lineage, checkpoint))

    def test_the_pieces_of_a_checkpoint_are_named_by_attempt_and_subtask(
        self, sink: OpenSink
    ) -> None:
        transaction = transaction_id(3, Attempt(1, 17))
        made = [
            piece
            for number, subtask in enumerate([Subtask(0, 201), Subtask(1, 5)])
            for piece in self.prepare(sink, [number], transaction, subtask)
        ]
        self.commit(sink, made)
        sink.close()
        again = self.opened()
        assert self.names(again, 3) == sorted(
            f"{piece.transaction.attempt}/{piece.subtask}" for piece in made
        )
        again.close()

    def test_pieces_of_other_checkpoints_lineages_and_sinks_are_not_named(
        self, sink: OpenSink
    ) -> None:
        self.written(sink, [(4, [0])])
        self.written(sink, [(3, [1])], OTHER_LINEAGE)
        other = self.opened(sink="other")
        other.fence(FIRST)
        self.written(other, [(3, [2])], name="other")
        assert self.names(sink, 3) == []
        assert self.names(sink, 3, OTHER_LINEAGE)
        assert self.names(other, 3)
        other.close()

    def test_a_piece_that_is_not_committed_is_not_named(self, sink: OpenSink) -> None:
        self.prepare(sink, [0], transaction_id(3))
        assert self.names(sink, 3) == []

    def test_a_folded_checkpoint_has_its_names_or_none(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0])])
        names = self.names(sink, 3)
        sink.subsume(LINEAGE, 3)
        assert names
        assert self.names(sink, 3) in ([], names)


class KnowsOtherNamesContract(ContractBase):
    """What others have committed to the same target is known by their names."""

    power: ClassVar[type] = KnowsOtherNames

    @staticmethod
    def others(sink: OpenSink) -> dict[tuple[str, str], dict[str, int]]:
        """Return what the sink tells, without those who have committed nothing."""
        assert isinstance(sink, KnowsOtherNames)
        return {name: dict(found) for name, found in sink.other_names().items() if found}

    @pytest.mark.parametrize("whose", ["job", "sink"])
    def test_the_rows_of_others_are_known_by_their_names(self, sink: OpenSink, whose: str) -> None:
        self.written(sink, [(2, [0]), (3, [1])])
        self.written(sink, [(5, [2])], OTHER_LINEAGE)
        assert self.others(sink) == {}
        names = {"job": JOB, "sink": SINK} | {whose: "other"}
        other = self.opened(**names)
        assert self.others(other) == {(JOB, SINK): {LINEAGE: 3, OTHER_LINEAGE: 5}}
        other.fence(FIRST)
        self.written(other, [(0, [3])], job=names["job"], name=names["sink"])
        assert self.others(sink) == {(names["job"], names["sink"]): {LINEAGE: 0}}
        other.close()

    def test_rows_are_known_after_their_proofs_are_folded(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0])])
        sink.subsume(LINEAGE, 3)
        other = self.opened(sink="other")
        assert self.others(other) == {(JOB, SINK): {LINEAGE: 3}}
        self.written(sink, [(4, [1])])
        assert self.others(other) == {(JOB, SINK): {LINEAGE: 4}}
        other.close()

    def test_checkpoints_of_others_are_compared_as_numbers(self, sink: OpenSink) -> None:
        """As text, 10 is below 9."""
        self.written(sink, [(number, [number]) for number in (9, 10)])
        other = self.opened(sink="other")
        for folded in (9, 10):
            assert self.others(other) == {(JOB, SINK): {LINEAGE: 10}}
            sink.subsume(LINEAGE, folded)
        assert self.others(other) == {(JOB, SINK): {LINEAGE: 10}}
        other.close()

    def test_what_is_only_pre_committed_is_not_known(self, sink: OpenSink) -> None:
        self.prepare(sink, [0], transaction_id(3))
        other = self.opened(sink="other")
        assert self.others(other) == {}
        other.close()


class CompletesPartitionsContract(ContractBase):
    """What waits is unseen and named, until it is completed by its name."""

    power: ClassVar[type] = CompletesPartitions

    @pytest.fixture
    def waiting(self) -> SinkHarness:
        """A target whose rows wait once they are committed, those of ids 0 and 1 in
        two partitions. Subclasses override this fixture.
        """
        raise NotImplementedError("override the fixture 'waiting'")

    @pytest.fixture
    def committed(self, waiting: SinkHarness) -> CompletesPartitions:
        """The open sink of such a target, with rows 0 and 1 in two committed pieces."""
        return self.with_rows_that_wait(waiting)

    def with_rows_that_wait(self, waiting: SinkHarness) -> CompletesPartitions:
        """Commit rows 0 and 1; return the open sink."""
        self.use(waiting)
        sink = self.opened()
        sink.fence(FIRST)
        self.written(sink, [(3, [0]), (4, [1])])
        return self._completing(sink)

    @staticmethod
    def _completing(sink: OpenSink) -> CompletesPartitions:
        assert isinstance(sink, CompletesPartitions)
        return sink

    def test_partitions_wait_unseen_until_each_is_completed(
        self, committed: CompletesPartitions
    ) -> None:
        names = [*committed.waiting_partitions()]
        assert len({*names}) == len(names) == 2, names
        assert self.ids_visible() == []
        committed.complete_partitions(names[:1])
        assert self.ids_visible() in ([0], [1]), names[:1]
        assert [*committed.waiting_partitions()] == names[1:]
        committed.complete_partitions(names[1:])
        assert self.ids_visible() == [0, 1]
        assert not committed.waiting_partitions()

    def test_a_repair_completes_what_another_driver_left(
        self, committed: CompletesPartitions
    ) -> None:
        names = [*committed.waiting_partitions()]
        repair = self._completing(self.opened_for_repair())
        assert sorted(repair.waiting_partitions()) == sorted(names)
        for _ in range(2):
            repair.complete_partitions(names)
        assert self.ids_visible() == [0, 1]
        again = self._completing(self.opened_for_repair())
        assert not again.waiting_partitions()
        again.complete_partitions(names)
        assert self.ids_visible() == [0, 1]

    def test_only_what_is_named_is_completed(self, committed: CompletesPartitions) -> None:
        names = [*committed.waiting_partitions()]
        committed.complete_partitions([])
        committed.complete_partitions([name[:-1] for name in names] + ["", "%", "*"])
        assert self.ids_visible() == []
        assert sorted(committed.waiting_partitions()) == sorted(names)

    def test_what_is_only_pre_committed_does_not_wait(self, waiting: SinkHarness) -> None:
        self.use(waiting)
        sink = self.opened()
        sink.fence(FIRST)
        made = self.prepare(sink, range(2))
        assert not self._completing(sink).waiting_partitions()
        self.commit(sink, made)
        names = self._completing(sink).waiting_partitions()
        late = self.prepare(sink, range(2, 4), transaction_id(1), Subtask(0, 1))
        self._completing(sink).complete_partitions(names)
        assert self.ids_visible() == [0, 1]
        assert [*map(identity, sink.in_doubt())] == [*map(identity, late)]
        sink.close()


class TellsUnfinishedContract(ContractBase):
    """A piece that can be committed is told from one whose writer never finished it.

    Attributes:
        lines_at_most: the number of lines of the writer's `pre_commit` to test; a longer one is
            sampled in even steps.
    """

    power: ClassVar[type] = TellsUnfinished
    lines_at_most: ClassVar[int] = LINES_AT_MOST

    def test_a_pre_committed_piece_is_not_unfinished(self, sink: OpenSink) -> None:
        made = self.prepare(sink, range(3))
        sink.close()
        repair = self.opened_for_repair()
        assert isinstance(repair, TellsUnfinished)
        found = repair.in_doubt()
        assert sorted(map(identity, found)) == sorted(map(identity, made))
        assert all(piece.handle for piece in found), "it can be committed, and needs a handle"
        assert list(repair.unfinished(found)) == []
        assert list(repair.unfinished([])) == []
        repair.close()

    def test_a_piece_of_a_killed_writer_has_a_handle_or_is_unfinished(self, sink: OpenSink) -> None:
        """Kill a writer before each line of its `pre_commit`."""
        assert isinstance(sink, OpenArrowSink)
        assert isinstance(sink, TellsUnfinished)
        lines = self._killed(sink, 0)
        assert lines, "pre_commit is not Python code that can be stopped at a line"
        told: list[Committable] = []
        for line in spread(lines, self.lines_at_most):
            self._killed(sink, line)
            found = [piece for piece in sink.in_doubt() if piece.subtask == Subtask(0, line)]
            unfinished = list(sink.unfinished(found))
            assert unfinished == [piece for piece in found if not piece.handle], (
                f"killed before line {line} of pre_commit"
            )
            told += unfinished
        assert told, "a kill never leaves an unfinished piece: the sink does not need this power"
        finished = [piece for piece in sink.in_doubt() if piece.handle]
        assert self.commit(sink, finished) == [Committed()] * len(finished)

    def _killed(self, sink: OpenArrowSink, line: int) -> int:
        """Kill a writer before a line, if it comes there; return the lines of one that was not."""
        code, found = run_driver(
            pre_commit,
            sink.writers(),
            transaction_id(),
            Subtask(0, line),
            self.batch(range(3)),
            line,
            self.packages,
            dict(os.environ),
        )
        if code == 0:
            # a writer that waits for a server may pass fewer lines than the one that counted them
            assert not line or int(found) < line, f"line {line} of {found} was passed"
            return int(found)
        assert line, f"it ended with {code}: {found}"
        assert code == -signal.SIGKILL, f"line {line}: {code}: {found}"
        return 0


class RewindRefusedContract(ContractBase):
    """A sink that cannot rewind with the harness's options says so before it removes anything.

    Attributes:
        rewinds_in: the suite over a harness with whose options the sink rewinds, as `suite_of`
            takes it.
    """

    power: ClassVar[type] = CanRewind
    rewinds_in: ClassVar[type | str] = ""

    def test_with_other_options_it_rewinds(self) -> None:
        assert self.rewinds_in, "name the suite with options to rewind with in `rewinds_in`"
        suite = suite_of(self.rewinds_in)
        assert issubclass(suite, RewindContract), f"{suite.__name__} is no RewindContract"
        steps = issubclass(suite, RewindStepsContract)
        assert steps or not isinstance(self, UnbegunRewindContract), (
            f"{suite.__name__} gives no rewind up"
        )

    def test_a_rewind_is_refused_before_anything_is_removed(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        assert isinstance(sink, CanRewind)
        with pytest.raises(RestoreRefusedError) as caught:
            sink.check_rewind({LINEAGE: 3})
        assert caught.value.remedy
        sink.fence(RESTORING)
        with pytest.raises(RestoreRefusedError):
            sink.rewind({LINEAGE: 3}, RESTORING)
        assert self.ids_visible() == [0, 1]
        assert self.opened().history().committed == {LINEAGE: 4}


class RewindContract(ContractBase):
    """Rows and proofs after the checkpoint go; everything else stays.

    The sink has to be able to rewind with the harness's options.

    Attributes:
        killed_by: the `RewindKillContract` of the sink, as `suite_of` takes it; or, after
            "No suite:", why it can have none.
    """

    power: ClassVar[type] = CanRewind
    killed_by: ClassVar[type | str] = ""

    def test_a_rewind_is_killed_in_a_suite_of_its_own(self) -> None:
        named = self.killed_by
        assert named, "name the RewindKillContract of this sink in `killed_by`"
        if isinstance(named, str) and named.startswith(NO_SUITE):
            assert named.removeprefix(NO_SUITE).strip(), "say why there is none"
        else:
            suite = suite_of(named)
            assert issubclass(suite, RewindKillContract), f"{suite.__name__} kills no rewind"

    @staticmethod
    def rewind(sink: OpenSink, keep: dict[str, int], attempt: Attempt = RESTORING) -> None:
        """Rewind as recovery does: checked before the fence, called behind it."""
        assert isinstance(sink, CanRewind)
        sink.check_rewind(keep)
        sink.fence(attempt)
        sink.rewind(keep, attempt)

    def test_a_rewind_removes_what_was_committed_after_the_checkpoint(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0, 1]), (4, [2]), (5, [3, 4]), (7, [5])])
        self.rewind(sink, {LINEAGE: 4})
        assert self.ids_visible() == [0, 1, 2]
        assert self.opened().history().committed == {LINEAGE: 4}

    def test_a_rewind_removes_lineages_that_are_not_kept(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        self.written(sink, [(1, [2]), (2, [3])], OTHER_LINEAGE)
        self.rewind(sink, {LINEAGE: 3})
        assert self.ids_visible() == [0]
        assert self.opened().history().committed == {LINEAGE: 3}

    def test_a_rewind_keeps_each_lineage_up_to_its_own_end(self, sink: OpenSink) -> None:
        self.written(sink, [(8, [0]), (9, [1])])
        self.written(sink, [(1, [2]), (2, [3]), (3, [4])], OTHER_LINEAGE)
        self.rewind(sink, {LINEAGE: 9, OTHER_LINEAGE: 2})
        assert self.ids_visible() == [0, 1, 2, 3]
        assert self.opened().history().committed == {LINEAGE: 9, OTHER_LINEAGE: 2}

    def test_a_rewind_removes_what_only_the_mark_proves(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        sink.subsume(LINEAGE, 4)
        self.written(sink, [(1, [2])], OTHER_LINEAGE)
        sink.subsume(OTHER_LINEAGE, 1)
        self.rewind(sink, {LINEAGE: 3})
        assert self.ids_visible() == [0]
        assert self.opened().history().committed == {LINEAGE: 3}

    def test_a_rewind_keeps_the_proofs_of_what_stays(self, sink: OpenSink) -> None:
        folded, kept, _ = self.written(sink, [(2, [0]), (3, [1]), (4, [2])])
        sink.subsume(LINEAGE, 2)
        self.rewind(sink, {LINEAGE: 3})
        assert all_are(AlreadyCommitted, self.commit(sink, [folded]) + self.commit(sink, [kept]))
        assert self.ids_visible() == [0, 1]

    def test_a_piece_that_was_taken_back_is_never_called_committed(self, sink: OpenSink) -> None:
        _, taken = self.written(sink, [(3, [0]), (4, [1])])
        sink.subsume(LINEAGE, 4)
        self.rewind(sink, {LINEAGE: 3})
        assert all_are(Lost, self.commit(sink, [taken]))
        assert self.ids_visible() == [0]

    def test_a_restored_lineage_writes_the_rows_again(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        self.rewind(sink, {LINEAGE: 3})
        again = self.prepare(sink, [1], transaction_id(4, Attempt(2, 1), lineage=OTHER_LINEAGE))
        assert self.commit(sink, again, Predecessor(LINEAGE, 3)) == [Committed()] * len(again)
        assert self.ids_visible() == [0, 1]
        assert sink.history().committed == {LINEAGE: 3, OTHER_LINEAGE: 4}

    @pytest.mark.parametrize("whose", ["job", "sink"])
    def test_a_rewind_leaves_rows_and_proofs_of_others(self, sink: OpenSink, whose: str) -> None:
        names = {"job": JOB, "sink": SINK} | {whose: "other"}
        other = self.opened(**names)
        other.fence(Attempt(1, 1))
        mine = {"job": names["job"], "name": names["sink"]}
        self.written(other, [(4, [0]), (5, [1])], **mine)
        other.subsume(LINEAGE, 4)
        self.written(sink, [(4, [2]), (5, [3])])
        self.rewind(sink, {LINEAGE: 4})
        assert self.ids_visible() == [0, 1, 2]
        assert other.history().committed == {LINEAGE: 5}
        other.close()

    def test_a_rewind_is_idempotent(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        self.rewind(sink, {LINEAGE: 3})
        self.rewind(self.opened(), {LINEAGE: 3}, Attempt(3, 0))
        assert self.ids_visible() == [0]
        assert sink.history().committed == {LINEAGE: 3}

    def test_a_rewind_compares_checkpoints_as_numbers(self, sink: OpenSink) -> None:
        """As text, 10 is below 9."""
        self.written(sink, [(number, [number]) for number in (8, 9, 10, 11)])
        sink.subsume(LINEAGE, 8)
        self.rewind(sink, {LINEAGE: 10})
        assert self.ids_visible() == [8, 9, 10]
        assert sink.history().committed == {LINEAGE: 10}
        sink.subsume(LINEAGE, 10)
        self.rewind(sink, {LINEAGE: 9}, Attempt(3, 0))
        assert self.ids_visible() == [8, 9]
        assert sink.history().committed == {LINEAGE: 9}

    def test_a_rewind_of_what_is_not_ahead_changes_nothing(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        self.rewind(sink, {LINEAGE: 9})
        assert self.ids_visible() == [0, 1]
        assert sink.history().committed == {LINEAGE: 4}

    def test_the_check_of_a_rewind_changes_nothing(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        before = sink.history()
        assert isinstance(sink, CanRewind)
        sink.check_rewind({LINEAGE: 3})
        assert self.ids_visible() == [0, 1]
        assert self.opened().history() == before

    def test_a_driver_that_was_fenced_rewinds_nothing(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        assert isinstance(sink, CanRewind)
        newer = self.opened()
        newer.fence(Attempt(3, 0))
        with pytest.raises(FencedError):
            sink.rewind({LINEAGE: 3}, RESTORING)
        assert self.ids_visible() == [0, 1]
        assert newer.history().committed == {LINEAGE: 4}
        newer.close()

    def test_a_driver_that_does_not_find_its_fence_rewinds_nothing(self, sink: OpenSink) -> None:
        """The target was restored from a backup: no other driver goes on."""
        self.written(sink, [(3, [0]), (4, [1])])
        assert isinstance(sink, CanRewind)
        with pytest.raises(TargetChangedError):
            sink.rewind({LINEAGE: 3}, RESTORING)
        assert self.ids_visible() == [0, 1]
        assert self.opened().history().committed == {LINEAGE: 4}

    def test_a_rewind_leaves_the_fence(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        self.rewind(sink, {LINEAGE: 3})
        assert self.opened().history().generation == RESTORING.generation


class RewindKillContract(ContractBase):
    """Wherever a rewind dies, the next driver finds it undone or ends it.

    Attributes:
        lines_at_most: the number of lines of `rewind` to test; a longer one is sampled in even
            steps.
    """

    lines_at_most: ClassVar[int] = LINES_AT_MOST

    def test_a_kill_at_any_line_of_a_rewind_is_made_good(self, harness: SinkHarness) -> None:
        """The next driver finds the sink ahead, or all of it taken back; it rewinds again."""
        lines = self._rewound()
        assert lines, "rewind is not Python code that can be stopped at a line"
        for line in spread(lines, self.lines_at_most):
            self.use(harness.elsewhere())
            self._rewound(line)

    def _rewound(self, line: int = 0) -> int:
        """Kill a rewind before a line, then rewind again; return how many lines there are."""
        if line:
            self._killed(line)
            self._check_rewound(f"killed before line {line} of rewind", done=False)
        else:
            self._fill()
        code, found = run_driver(rewind, self._rewind(1, 0))
        assert code == 0, f"line {line}: {code}: {found}"
        self._check_rewound(f"killed before line {line} of rewind", done=True)
        return int(found or 0)

    def _killed(self, line: int) -> None:
        """Commit three checkpoints, and kill a rewind to the first of them before a line."""
        self._fill()
        code, found = run_driver(rewind, self._rewind(0, line))
        assert code == -signal.SIGKILL, f"line {line}: {code}: {found}"

    def _fill(self) -> None:
        sink = self.opened()
        sink.fence(FIRST)
        self.written(sink, [(3, [0, 1]), (4, [2])])
        sink.subsume(LINEAGE, 4)
        self.written(sink, [(5, [3])])
        sink.close()

    def _rewind(self, driver: int, line: int) -> Rewind:
        sink, attempt = self.harness_in_use.new_sink(), Attempt(2 + driver, 0)
        assert isinstance(sink, ArrowSink)
        return Rewind(
            sink,
            {LINEAGE: 3},
            attempt,
            line,
            self.packages,
            self.harness_in_use.schema,
            dict(os.environ),
        )

    def _check_rewound(self, after: str, *, done: bool) -> None:
        sink = self.opened()
        ids, history = self.ids_visible(), sink.history()
        committed = history.committed
        sink.close()
        assert done <= (ids == [0, 1]), after
        assert done <= (committed == {LINEAGE: 3}), after
        assert ids[:2] == [0, 1], after
        assert committed[LINEAGE] > 3 or ids == [0, 1], f"{after}: rows are left, and no proof"
        lacks = committed[LINEAGE] > 3 and ids != [0, 1, 2, 3]
        assert lacks <= history.half_rewound <= (not done), f"{after}: half_rewound is wrong"


class UnbegunRewindContract(ContractBase):
    """A rewind that is given up before it has reached the sink changes nothing there.

    For a sink that cannot rewind with the harness's options.
    """

    power: ClassVar[type] = RewindsInSteps

    def settled(self, sink: OpenSink, attempt: Attempt) -> tuple[list[int], Mapping[str, int]]:
        """Settle a rewind to checkpoint 3; return the rows and proofs that are left."""
        assert isinstance(sink, RewindsInSteps)
        sink.fence(attempt)
        for _ in range(2):
            sink.settle_rewind({LINEAGE: 3}, attempt)
        return self.ids_visible(), self.opened().history().committed

    def test_a_sink_that_rewinds_is_settled_after_a_rewind_too(self) -> None:
        rewinds = isinstance(self, RewindContract)
        assert isinstance(self, RewindStepsContract) or not rewinds, "inherit RewindStepsContract"

    def test_a_rewind_that_has_not_reached_the_sink_is_given_up(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        sink.subsume(LINEAGE, 3)
        assert self.settled(sink, RESTORING) == ([0, 1], {LINEAGE: 4})

    def test_a_driver_that_was_fenced_settles_nothing(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        assert isinstance(sink, RewindsInSteps)
        newer = self.opened()
        newer.fence(Attempt(3, 0))
        with pytest.raises(FencedError):
            sink.settle_rewind({LINEAGE: 3}, RESTORING)
        newer.close()


class RewindStepsContract(UnbegunRewindContract):
    """A rewind that is given up is as if it had not begun, or had been finished."""

    def test_a_rewind_that_is_done_in_the_sink_is_given_up(self, sink: OpenSink) -> None:
        self.written(sink, [(3, [0]), (4, [1])])
        RewindContract.rewind(sink, {LINEAGE: 3})
        assert self.settled(sink, Attempt(3, 0)) == ([0], {LINEAGE: 3})


class RewindStepsKillContract(RewindKillContract):
    """Wherever a rewind dies, it can be given up too: rows and proofs agree again."""

    def test_a_kill_at_any_line_of_a_rewind_is_settled(self, harness: SinkHarness) -> None:
        """All rows are there with their proofs, or none; and the sink commits again."""
        lines = self._rewound()
        ends = set[int]()
        for line in spread(lines, self.lines_at_most):
            self.use(harness.elsewhere())
            self._killed(line)
            seen, sink = self.ids_visible(), self.opened()
            ids, committed = RewindStepsContract.settled(self, sink, Attempt(3, 0))  # type: ignore[arg-type]
            after = f"killed before line {line} of rewind: {ids}, {committed}"
            ends.add(len(ids))
            assert (ids, committed) in (
                ([0, 1], {LINEAGE: 3}),
                ([0, 1, 2, 3], {LINEAGE: 5}),
            ), after
            assert {*seen} <= {*ids}, f"{after}: rows went that were there"
            before = Predecessor(LINEAGE, committed[LINEAGE])
            more = self.prepare(sink, [4], transaction_id(6, Attempt(3, 1)))
            assert self.commit(sink, more, before) == [Committed()] * len(more), after
            assert self.ids_visible() == [*ids, 4], after
            sink.close()
        assert ends == {2, 4}, "a rewind is given up before its end, and after it"
