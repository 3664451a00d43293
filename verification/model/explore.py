"""The checker: breadth first over every reachable state of a specification.

A specification is a set of first states, a function from a state to its transitions, and
predicates. The checker

    1. visits every reachable state once, nearest first, so that the first violation
       has a shortest trace
    2. checks every invariant in every state
    3. afterwards looks whether the goal can still be reached from each state without a further
       fault (AG EF goal): it walks the transitions that are no faults backwards from all goals, and
       whatever it does not meet is stuck

States are hashable values. Of a visited state the checker keeps the state, its parent and its
outgoing transitions that are no faults; labels are found again by looking at the parent once more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)

Label = tuple[Any, ...]
STUCK = "every started checkpoint ends resolved"


class Transition(NamedTuple, Generic[S]):
    """One step of one actor.

    Attributes:
        label: what happens: a verb, who, and details.
        state: what comes of it.
        fault: whether something goes wrong here, so that nobody may count on it.
    """

    label: Label
    state: S
    fault: bool = False


@dataclass(frozen=True)
class Specification(Generic[S]):
    """What is to be checked.

    Attributes:
        initial: the first states.
        transitions: everything that can happen next.
        invariants: by name; each says whether it holds in a state.
        goal: a state in which nothing is left to do; None if there is no such claim.
    """

    initial: Sequence[S]
    transitions: Callable[[S], Iterable[Transition[S]]]
    invariants: Mapping[str, Callable[[S], bool]] = field(default_factory=dict)
    goal: Callable[[S], bool] | None = None


@dataclass(frozen=True)
class Violation(Generic[S]):
    """A claim that does not hold.

    Attributes:
        claim: the name of the invariant, or `STUCK`.
        trace: the shortest way to a state that violates it, from a first state on; the
            first label is empty.
    """

    claim: str
    trace: tuple[tuple[Label, S], ...]


@dataclass(frozen=True)
class Exploration(Generic[S]):
    """What was found.

    Attributes:
        states: how many distinct states were visited.
        transitions: how many transitions were looked at.
        depth: how far the farthest state is from a first one.
        complete: whether every reachable state was visited.
        violation: the first violation; None if every claim holds in what was visited.
    """

    states: int
    transitions: int
    depth: int
    complete: bool
    violation: Violation[S] | None = None


def explore(specification: Specification[S], limit: int | None = None) -> Exploration[S]:
    """Visit states until all are visited, `limit` is reached, or a claim is violated.

    Args:
        specification: what is to be checked.
        limit: how many states to visit at the most. The goal is looked for only
            if all were visited.
    """
    return _Search(specification, limit).run()


class _Search(Generic[S]):
    """One exploration."""

    def __init__(self, specification: Specification[S], limit: int | None) -> None:
        self._specification = specification
        self._limit = limit
        self._numbers: dict[S, int] = {}
        self._states: list[S] = []
        self._parents = array("i")
        self._sources = array("i")
        self._targets = array("i")
        self._transitions = 0

    def run(self) -> Exploration[S]:
        depth, complete, violation = self._forwards()
        if complete and violation is None and self._specification.goal is not None:
            violation = self._backwards(self._specification.goal)
        return Exploration(len(self._states), self._transitions, depth, complete, violation)

    # -- 1 and 2 -----------------------------------------------------------------------------------

    def _forwards(self) -> tuple[int, bool, Violation[S] | None]:
        for state in self._specification.initial:
            if self._visit(state, -1) and (claim := self._violated(state)):
                return 0, False, self._violation(claim, 0)
        depth, reached, number = 0, len(self._states), 0
        while number < len(self._states):
            if number == reached:
                depth, reached = depth + 1, len(self._states)
            if self._limit is not None and len(self._states) >= self._limit:
                return depth, False, None
            violation = self._expand(number)
            if violation is not None:
                return depth + 1, False, violation
            number += 1
        return depth, True, None

    def _expand(self, number: int) -> Violation[S] | None:
        for transition in self._specification.transitions(self._states[number]):
            self._transitions += 1
            new = self._visit(transition.state, number)
            if not transition.fault and self._specification.goal is not None:
                self._sources.append(number)
                self._targets.append(self._numbers[transition.state])
            if new and (claim := self._violated(transition.state)):
                return self._violation(claim, len(self._states) - 1)
        return None

    def _visit(self, state: S, parent: int) -> bool:
        if state in self._numbers:
            return False
        self._numbers[state] = len(self._states)
        self._states.append(state)
        self._parents.append(parent)
        return True

    def _violated(self, state: S) -> str | None:
        return next(
            (claim for claim, holds in self._specification.invariants.items() if not holds(state)),
            None,
        )

    # -- 3 -----------------------------------------------------------------------------------------

    def _backwards(self, goal: Callable[[S], bool]) -> Violation[S] | None:
        """The nearest state from which the goal is out of reach."""
        starts, sources = self._incoming()
        met = bytearray(len(self._states))
        waiting = [number for number, state in enumerate(self._states) if goal(state)]
        for number in waiting:
            met[number] = 1
        while waiting:
            target = waiting.pop()
            for source in sources[starts[target] : starts[target + 1]]:
                if not met[source]:
                    met[source] = 1
                    waiting.append(source)
        stuck = met.find(0)
        return None if stuck < 0 else self._violation(STUCK, stuck)

    def _incoming(self) -> tuple[array[int], array[int]]:
        """The transitions by their target, as two flat arrays: where each target's sources
        begin, and the sources.
        """
        starts = array("i", bytes(4 * (len(self._states) + 1)))
        for target in self._targets:
            starts[target + 1] += 1
        for number in range(len(self._states)):
            starts[number + 1] += starts[number]
        places = array("i", starts)
        sources = array("i", bytes(4 * len(self._sources)))
        for source, target in zip(self._sources, self._targets, strict=True):
            sources[places[target]] = source
            places[target] += 1
        return starts, sources

    # -- traces ------------------------------------------------------------------------------------

    def _violation(self, claim: str, number: int) -> Violation[S]:
        return Violation(claim, tuple(self._back_from(number))[::-1])

    def _back_from(self, number: int) -> Iterator[tuple[Label, S]]:
        while (parent := self._parents[number]) >= 0:
            state = self._states[number]
            found = self._specification.transitions(self._states[parent])
            yield next(transition.label for transition in found if transition.state == state), state
            number = parent
        yield (), self._states[number]
