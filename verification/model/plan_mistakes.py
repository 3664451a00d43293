"""Mistakes in the plan of a start: functions of `twophase.coordinator.recovery.plan`, and what asks
it, replaced by others that forget something. For each what finds it.

A world of the model finds it by a claim, as the mistakes of `mutants`; a test finds it where the
model has no such thing: names of sinks and jobs, other targets, paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from harness.folder_sink import OpenFolderSink
from twophase.coordinator.recovery import plan
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    LeftBehind,
    Observed,
    Refusal,
    Restore,
    RestoreBehind,
    RestoredMeanwhile,
    RewindUnfinished,
    StartPlan,
    TakenBack,
    TargetLacks,
    TargetReplaced,
    Way,
    Wish,
)
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.operations.savepoint import restore
from twophase.options.job_options import SinkAhead
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.journal.entries import AbandonedRewind
from twophase.state.journal.history import History
from verification.model import configurations as worlds
from verification.model import planning, ways_on
from verification.model.explore import Exploration, explore
from verification.model.mutants import HALF_REWOUND, I6, I8, ROWS
from verification.model.protocol import specification
from verification.model.state import State
from verification.model.world import World

DEAD_END = "no state is a dead end"

Patch = tuple[object, str, Any]
Refusals = Callable[..., Iterator[Refusal]]

_ABANDON = "tests/operations/repair/test_abandon_rewind.py"
_TABLE = "tests/coordinator/recovery/test_plan.py"


def _refused(case: str) -> str:
    """A case of the table of refusals."""
    return f"{_TABLE}::test_a_beginning_that_would_lose_or_repeat_rows_is_refused[{case}]"


@dataclass(frozen=True)
class PlanMistake:
    """One mistake.

    Attributes:
        patches: owner, attribute, and what is there instead.
        world: in which the model finds it.
        claim: by which.
        test: that finds it where the model cannot.
    """

    patches: Sequence[Patch]
    world: World | None = None
    claim: str = ""
    test: str = ""

    def explore(self) -> Exploration[State]:
        """Look for the first violation."""
        assert self.world is not None
        with self.made():
            return explore(specification(self.world))

    @contextmanager
    def made(self) -> Iterator[None]:
        """The product with the mistake in it."""
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(mock.patch.object(*patch))
            _forget()
            stack.callback(_forget)
            yield


def _forget() -> None:
    """What was planned before is planned again."""
    planning.forget()
    ways_on.ways_on.cache_clear()


# -- what is done wrong ----------------------------------------------------------------------------


def _nothing(*_: Any) -> Iterator[Any]:
    return iter(())


def _deaf(real: Refusals, *kinds: type, when: Callable[[Any], bool] = lambda _: True) -> Refusals:
    """The rule without some of its refusals."""

    def rule(*arguments: Any) -> Iterator[Refusal]:
        for why in real(*arguments):
            if not isinstance(why, kinds) or not when(why):
                yield why

    return rule


def _deaf_to_a_restore(real: Refusals, *kinds: type) -> Refusals:
    def rule(observed: Observed, wish: Wish, *rest: Any) -> Iterator[Refusal]:
        for why in real(observed, wish, *rest):
            if not (isinstance(wish, Restore) and isinstance(why, kinds)):
                yield why

    return rule


def _deaf_to_a_rewind_that_keeps_more(observed: Observed, wish: Restore) -> Iterator[Refusal]:
    for why in _real_not_restorable(observed, wish):
        if not (isinstance(why, RewindUnfinished) and wish.sink_ahead is SinkAhead.REWIND):
            yield why


def _taken_back_in_the_first(observed: Observed, wish: Restore) -> Iterator[TakenBack]:
    first = next(iter(observed.sinks))
    return (one for one in _real_taken_back(observed, wish) if one.sink == first)


def _taken_back_of_what_is_there(observed: Observed, wish: Restore) -> Iterator[TakenBack]:
    return _real_taken_back(replace(observed, waiting=()), wish)


def _planned_without_a_record(observed: Observed, wish: Wish) -> StartPlan:
    return replace(_real_plan(observed, wish), rewinding=None)


def _abandoned_without_losses(self: History, repair: AbandonedRewind) -> History:
    return replace(self, rewinding=None, repairs=(*self.repairs, replace(repair, losses=())))


def _moved_to_any_other(observed: Observed, wish: Restore, proof: Any) -> bool:
    sink = observed.sinks.get(proof.sink)
    return sink is not None and sink.target != proof.target


def _known_without_ends(self: Any, sink: str, lineage: str, checkpoint: int) -> Any:
    found = _real_known_behind(self, sink, lineage, checkpoint)
    return None if found is not None and found.continued else found


def _known_whichever_sink_is_ahead(self: Any, sink: str, lineage: str, checkpoint: int) -> Any:
    if any(one.is_of(lineage, checkpoint) for one in self.history.sink_decisions):
        return None
    return _real_known_behind(self, sink, lineage, checkpoint)


def _of_a_sink(why: RestoreBehind) -> bool:
    return bool(why.sink) and not why.will_be


def _not_planned_again(self: StartPlanner, *_: Any) -> StartPlan:
    self._context.log.check_fence()
    return StartPlan()


_real_behind = plan._behind
_real_changed = plan._changed
_real_known_behind = plan._Known.behind
_real_not_restorable = plan._not_restorable
_real_plan = plan._plan
_real_taken_back = plan._taken_back


MISTAKES = {
    "a sink that was renamed is forgotten": PlanMistake(
        [(plan, "_under_other_names", _nothing)],
        test=_refused("a restore behind rows of the renamed sink"),
    ),
    "a sink that has the target of one that has left is not noticed": PlanMistake(
        [(plan, "_left", _nothing)], test=_refused("a sink with another name")
    ),
    "the log is not looked at in a restore": PlanMistake(
        [(plan, "_log_ahead", _nothing)], test=_refused("a restore behind its own log")
    ),
    "a sink that is ahead of a restore is overlooked": PlanMistake(
        [(plan, "_not_restorable", _deaf(_real_not_restorable, RestoreBehind, when=_of_a_sink))],
        worlds.SAVED,
        ROWS,
    ),
    "what is bound to come is not counted in a rewind": PlanMistake(
        [(plan, "_taken_back", _taken_back_of_what_is_there)],
        test=f"{_TABLE}::test_a_rewind_takes_back_what_is_there_and_what_is_bound_to_come",
    ),
    "a rewind takes back from the first sink only": PlanMistake(
        [(plan, "_taken_back", _taken_back_in_the_first)], worlds.REWOUND, ROWS
    ),
    "a rewind is planned without its record": PlanMistake(
        [(plan, "_plan", _planned_without_a_record)], worlds.REWOUND, ROWS
    ),
    "half a rewind is ignored": PlanMistake(
        [(plan, "_behind", _deaf(_real_behind, RewindUnfinished))], worlds.REWOUND, HALF_REWOUND
    ),
    "half a rewind is ended by a restore that keeps more": PlanMistake(
        [(plan, "_not_restorable", _deaf_to_a_rewind_that_keeps_more)],
        worlds.REWOUND_ELSEWHERE,
        HALF_REWOUND,
    ),
    "a target is taken for a new one although it knows the lineage": PlanMistake(
        [(plan, "_has_moved", _moved_to_any_other)],
        test=_refused("a restore beside an older copy of the target on another server"),
    ),
    "no proof is asked for": PlanMistake(
        [(plan, "_changed", _deaf(_real_changed, TargetLacks))], worlds.RESTORED_TARGET, I8
    ),
    "a restore does not ask for the proofs of its checkpoint": PlanMistake(
        [(plan, "_changed", _deaf_to_a_restore(_real_changed, TargetLacks))],
        worlds.SAVED_OVER_SWAPPED,
        I8,
    ),
    "a target without the rows of its proofs is accepted": PlanMistake(
        [(plan, "_changed", _deaf(_real_changed, TargetReplaced))],
        test=_refused("a table that was recreated"),
    ),
    "a generation that the folder has not seen is overlooked": PlanMistake(
        [(plan, "_behind", _deaf(_real_behind, DriverMissed))],
        test=_refused("a folder that has not seen the newest driver"),
    ),
    "a lineage that the log does not know is overlooked": PlanMistake(
        [(plan, "_behind", _deaf(_real_behind, FolderBehind))], worlds.LOST_FOLDER, I6
    ),
    "what a rewind has taken back is restored": PlanMistake(
        [(plan, "_not_restorable", _deaf(_real_not_restorable, LeftBehind))],
        test=_refused("a restore of what a rewind has taken back"),
    ),
    "what another driver has restored meanwhile is restored again": PlanMistake(
        [(plan, "_not_restorable", _deaf(_real_not_restorable, RestoredMeanwhile))],
        test=_refused("a restore that another driver has done meanwhile"),
    ),
    "a lineage that went on elsewhere is not compared with where it was left": PlanMistake(
        [(plan._Known, "behind", _known_without_ends)],
        test=_refused("a target with more of a lineage than the job continues"),
    ),
    "any sink may have what one sink commits ahead": PlanMistake(
        [(plan._Known, "behind", _known_whichever_sink_is_ahead)],
        test=f"{_TABLE}::test_a_sink_that_commits_ahead_is_no_reason_to_refuse",
    ),
    "the second look behind the fences is left out": PlanMistake(
        [(StartPlanner, "plan_again", _not_planned_again)],
        test="tests/coordinator/recovery/test_copied_folder.py::"
        "test_what_the_original_commits_before_the_fences_are_up_stops_the_copy",
    ),
    "a folder that is behind is refused without a way on": PlanMistake(
        [(FolderBehind, "ways", ())], worlds.LOST_FOLDER, DEAD_END
    ),
    "a folder that has missed a driver is refused without a way on": PlanMistake(
        [(DriverMissed, "ways", ())], worlds.FOLDER_RESTORED, DEAD_END
    ),
    "a target that lacks rows is refused without a way on": PlanMistake(
        [(TargetLacks, "ways", ())], worlds.SWAPPED, DEAD_END
    ),
    "half a rewind is refused without a way to give it up": PlanMistake(
        [(RewindUnfinished, "ways", (Way.FINISH_REWIND,))], worlds.HALF_REWOUND_FORGOTTEN, DEAD_END
    ),
    "half a rewind is given up in the newest folder only": PlanMistake(
        [(ways_on, "ABANDON_LEADS_ON", (RewindUnfinished, TargetLacks))],
        worlds.HALF_REWOUND_FOLDER_RESTORED,
        DEAD_END,
    ),
    "what a rewind that is given up has taken back is no loss": PlanMistake(
        [(History, "_abandoned", _abandoned_without_losses)],
        test=f"{_ABANDON}::test_the_job_goes_on_with_what_each_sink_has_wherever_the_rewind_died",
    ),
    "a rewind is given up without a fence in the sinks": PlanMistake(
        [(OpenFolderSink, "fence", _nothing)],
        test=f"{_ABANDON}::test_a_driver_that_is_still_rewinding_takes_back_no_more",
    ),
    "no source is asked before rows are taken back": PlanMistake(
        [(OperatorStates, "unproven", lambda *_: [])],
        test="tests/beginnings/test_rewind.py::"
        "test_rows_that_the_source_has_lost_are_not_taken_back",
    ),
    "what was restored is known by its path": PlanMistake(
        [(restore, "_origin_of", lambda *_: "")],
        test="tests/beginnings/test_which_savepoint.py::"
        "test_a_new_savepoint_at_the_path_of_an_older_one_is_restored",
    ),
}
