"""Events and steps: which event of the product reports which step of the model, and how large
a trace's world is.

Not compared, because the model has no such thing: durations, rows, offsets, reasons, proofs,
`will_retry`, `executed`, and which task a piece was of that nobody commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from twophase import events, ids
from verification.model.explore import Label
from verification.model.pieces import Attempt, Xid
from verification.model.state import Budget, Decision
from verification.model.world import MEMORY, World
from verification.simulation.options import Options
from verification.simulation.telling import Started

RETRIES, ABORTED, COMMITTED, SUBSUMED = (
    "retries",
    "has aborted",
    "has committed",
    "has subsumed a checkpoint",
)
"""Of more than one step: a round is over, once for each sink with pieces that are not proven yet;
the last orphan is gone of all that a scan had found; COMMITTED is accepted, the sweep is over, the
log folded and the ledgers collapsed; before that, once for each older committed checkpoint.
"""

VERBS: dict[type[events.Event], str] = {
    events.RecoveryStarted: "FENCE",
    events.RecoveryFinished: "has recovered",
    events.CheckpointTriggered: "triggers",
    events.SinkAcknowledged: "hears an acknowledgement",
    events.CheckpointDeclined: "declines",
    events.CheckpointDecided: "DECIDED",
    events.PieceCommitted: "finds committed",
    events.CommitRetried: RETRIES,
    events.CheckpointCommitted: COMMITTED,
    events.CheckpointSubsumed: SUBSUMED,
    events.CheckpointReplayed: "has replayed",
    events.OrphansAborted: ABORTED,
}
"""All that a coordinator and its sinks tell, and the step that it tells of."""

OF_NO_STEP = (
    events.CheckpointNotTriggered,
    events.JobRestarting,
    events.JobStopped,
    events.QueryProgressed,
    events.SavepointMade,
    events.SinkDecided,
    events.SinkRewound,
    events.TolerableFailuresExceeded,
)
"""No trace has a step for them: the first comes before a checkpoint is triggered, the next four
are of the job and not of a driver, then comes one where sinks commit ahead and one in a rewind; the
last is told beside the event of the attempt.
"""

_COMPARED = (
    "sink",
    "generation",
    "checkpoint",
    "attempt",
    "recommitted",
    "aborted",
    "retries",
    "pieces",
)

Trace = Sequence[tuple[int, events.Event]]
_PLENTY = 99
_ELSEWHERE = -2


class Claim(NamedTuple):
    """What an event says, or what a driver has to say of a step.

    Attributes:
        verb: of the step.
        facts: the sink's place and numbers, in the order of `_COMPARED`.
        pieces: (lineage, number, generation, counter, branch): the product's lineages or the
            model's. The branch is -1 for one that nobody commits.
    """

    verb: str
    facts: tuple[int, ...]
    pieces: tuple[tuple[Any, ...], ...] = ()

    def is_like(self, other: Claim) -> bool:
        """Whether both say the same, lineages aside."""
        return self[:2] == other[:2] and [piece[1:] for piece in self.pieces] == [
            piece[1:] for piece in other.pieces
        ]


class _Name(NamedTuple):
    """A piece as events name it: `job/lineage/checkpoint/attempt/sink/subtask`."""

    lineage: str
    number: int
    attempt: Attempt
    sink: str
    text: str

    @classmethod
    def of(cls, text: str) -> _Name:
        _, lineage, number, attempt, sink, _ = text.split("/")
        generation, counter = attempt.split(".")
        return cls(lineage, int(number), (int(generation), int(counter)), sink, text)


Part = tuple[str, Attempt]
"""Sink and attempt: what has pieces of its own."""


@dataclass(frozen=True, eq=False)
class TracedWorld(World):
    """As large as a trace shows, and with everything that can go wrong. Every sink is
    the reference sink.

    Attributes:
        names: of the sinks.
        fold_at: how many records the log has when it is folded.
        subsume_every: how often the sinks are let collapse their proofs, in checkpoints.
        acknowledged: how many pieces a sink has acknowledged.
        committed: the names of the pieces that were committed.
        orphans: the names of others that were aborted. A piece that nobody ever names need
            not have been there.
        decided: the attempts that were.
    """

    names: tuple[str, ...] = ()
    fold_at: int = 3
    subsume_every: int = 1
    acknowledged: dict[Part, int] = field(default_factory=dict)
    committed: dict[Part, list[str]] = field(default_factory=dict)
    orphans: dict[Part, set[str]] = field(default_factory=dict)
    decided: set[Attempt] = field(default_factory=set)

    @classmethod
    def of(cls, trace: Trace, fold_at: int, subsume_every: int, retained: int) -> TracedWorld:
        """The world of a trace."""
        names = next(event.sinks for _, event in trace if isinstance(event, Started))
        world = cls(
            "traced",
            "what a run of the product has reported",
            (MEMORY,) * len(names),
            checkpoints=_PLENTY,
            losers=1,
            splits_append=True,
            replays=True,
            retained=retained,
            asks=False,
            budget=Budget(
                rivals=_PLENTY,
                declines=_PLENTY,
                folds=1,
                subsumptions=1,
                restores=1,
                copies=1,
                losses=1,
            ),
            names=names,
            fold_at=fold_at,
            subsume_every=subsume_every,
        )
        for _, event in trace:
            world._note(event)
        return world

    @staticmethod
    def options(seed: int) -> Options:
        """Of a run that such a world can follow: it has no commits behind the next micro-batch."""
        return replace(Options.of(seed), max_concurrent=1)

    @classmethod
    def of_run(cls, options: Options, trace: Trace) -> TracedWorld:
        """The world of a trace of the simulation."""
        return cls.of(trace, options.fold_at, options.subsume_every, options.num_retained)

    def _note(self, event: events.Event) -> None:
        if isinstance(event, events.SinkAcknowledged):
            self.acknowledged.setdefault((event.sink, _attempt(event)), event.pieces)
        elif isinstance(event, events.CheckpointDecided):
            self.decided.add(_attempt(event))
        elif isinstance(event, events.PieceCommitted):
            name = _Name.of(event.piece)
            known = self.committed.setdefault((name.sink, name.attempt), [])
            known += [] if name.text in known else [name.text]
            self.decided.add(name.attempt)
        elif isinstance(event, events.OrphansAborted):
            for name in map(_Name.of, event.pieces):
                self.orphans.setdefault((name.sink, name.attempt), set()).add(name.text)

    # -- sizes -------------------------------------------------------------------------------------

    def pieces_of(self, place: int, attempt: Attempt) -> int:
        part = self.names[place], attempt
        return self.acknowledged.get(part, len(self.orphans.get(part, ())))

    def losers_of(self, place: int, attempt: Attempt) -> int:
        part = self.names[place], attempt
        others = self.orphans.get(part, set()) - set(self.committed.get(part, ()))
        listed = 0 if attempt in self.decided else self.pieces_of(place, attempt)
        return max(0, len(others) - listed)

    # -- claims ------------------------------------------------------------------------------------

    def pieces(self, place: int, xids: Sequence[Xid]) -> tuple[tuple[int, ...], ...]:
        """The model's pieces, as a claim has them."""

        def branch(xid: Xid) -> int:
            return (
                xid[4]
                if xid[4] < len(self.committed.get((self.names[place], xid[2:4]), ()))
                else -1
            )

        return _in_order((*xid[:4], branch(xid)) for xid in xids)

    def _named(self, sink: str, texts: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
        is_repeated = len({*texts}) < len(texts)

        def branch(name: _Name) -> int:
            if name.sink != sink or is_repeated:
                return _ELSEWHERE
            known = self.committed.get((sink, name.attempt), [])
            return known.index(name.text) if name.text in known else -1

        return _in_order(
            (name.lineage, name.number, *name.attempt, branch(name))
            for name in map(_Name.of, texts)
        )

    def said(self, event: events.Event) -> Claim:
        """What an event says."""
        facts: list[int] = []
        for name in _COMPARED:
            match getattr(event, name, None):
                case int(value):
                    facts.append(value)
                case str(sink):
                    facts.append(self.names.index(sink))
                case ids.Attempt(generation, counter):
                    facts += [generation, counter]
                case _:
                    pass
        pieces: tuple[tuple[Any, ...], ...] = ()
        if isinstance(event, events.PieceCommitted):
            pieces = self._named(event.sink, [event.piece])
        elif isinstance(event, events.OrphansAborted):
            pieces = self._named(event.sink, event.pieces)
        return Claim(VERBS[type(event)], tuple(facts), pieces)

    def of_step(self, label: Label) -> Claim | None:
        """What a driver says of a step before it does anything else; nothing of most."""
        match label:
            case ("FENCE" | "has recovered" as verb, _, int(generation)):
                return Claim(verb, (generation,))
            case ("triggers" | "declines" as verb, _, _, *checkpoint):
                return Claim(verb, tuple(checkpoint))
            case ("hears an acknowledgement" as verb, _, int(place), number, *attempt):
                pieces = self.pieces_of(place, (attempt[0], attempt[1]))
                return Claim(verb, (place, number, *attempt, pieces))
            case ("DECIDED" as verb, _, Decision() as decision):
                return Claim(verb, decision[1:4])
            case ("finds committed" as verb, _, int(place), *xid):
                return Claim(verb, (place, xid[1]), self.pieces(place, [tuple(xid)]))
            case ("has replayed" as verb, _, int(number)):
                return Claim(verb, (number,))
            case _:
                return None


def _in_order(pieces: Iterable[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(sorted(pieces, key=lambda piece: piece[1:]))


_OfAnAttempt = (
    events.CheckpointTriggered
    | events.SinkAcknowledged
    | events.CheckpointDeclined
    | events.CheckpointDecided
)


def _attempt(event: _OfAnAttempt) -> Attempt:
    return event.attempt.generation, event.attempt.counter
