"""The plan of a beginning: what a start does about what it finds, or why it does nothing.

`plan_start` is a pure function of what was observed and what is wished. It decides every beginning:
a driver plans with it before it writes anything, again behind each fence, and a dry run shows what
it returns. `verification/model` explores the function itself.

    observed   the log, and what every target records of the job, under whatever name
    wish       go on, or restore a checkpoint or savepoint, by a policy for what is ahead of it
    plan       what is committed, taken back and begun, in this order
    refusal    why that would lose rows or write them twice, and the ways that lead on

The words of a refusal are in `coordinator.recovery.refusal`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from twophase.contract.sink import OpenSink, SinkHistory
from twophase.coordinator.commit.proofs import knows
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import Decision, Lineage, Proof, Rewinding
from twophase.state.journal.history import History

# -- observed --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservedSink:
    """What one target of the job records of it.

    Attributes:
        target: `OpenSink.target`.
        memory: `OpenSink.history`.
        can_rewind: whether the sink can take rows back at all.
        others: what the target records of the same rows under another name: the highest proven
            checkpoint of each lineage, by job and sink; None if it cannot tell (`KnowsOtherNames`).
        in_doubt: of each lineage the newest checkpoint with pieces in doubt; asked for only if the
            log has no lineage, for then any of them may be decided elsewhere.
    """

    target: str
    memory: SinkHistory
    can_rewind: bool = False
    others: Mapping[tuple[str, str], Mapping[str, int]] | None = None
    in_doubt: Mapping[str, int] = field(default_factory=dict)

    @property
    def committed(self) -> Mapping[str, int]:
        """The highest proven checkpoint of each lineage."""
        return self.memory.committed


@dataclass(frozen=True)
class Observed:
    """What a start finds.

    Attributes:
        job: the job's name.
        history: of the log in the job's folder.
        sinks: by name, in the order of the job.
        waiting: the bodies of what the log has still to commit; needed for a rewind only.
        folders: the lineages that the job's folder holds something of, whatever its log says.
        skips_existing: whether a source of the job begins after the records that exist, or may.
    """

    job: str
    history: History
    sinks: Mapping[str, ObservedSink]
    waiting: Sequence[CompletedCheckpoint] = ()
    folders: frozenset[str] = frozenset()
    skips_existing: bool = False

    @property
    def memories(self) -> Mapping[str, SinkHistory]:
        """The history of each sink."""
        return {name: sink.memory for name, sink in self.sinks.items()}

    def with_proof(self, proof: Proof) -> Observed:
        """Return it with a proof that a sink turned out to have when it was asked again."""
        one = self.sinks[proof.sink]
        committed = {**one.committed, proof.lineage: proof.checkpoint}
        sink = replace(one, memory=replace(one.memory, committed=committed))
        return replace(self, sinks={**self.sinks, proof.sink: sink})


# -- wishes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoOn:
    """Continue the current lineage; begin a fresh one if the log has none.

    Attributes:
        may_rename: a sink may have another name than the one that the target knows.
    """

    may_rename: bool = False


@dataclass(frozen=True)
class Restore:
    """Begin a lineage with a completed checkpoint, of which the log may know less than the sinks.

    Attributes:
        checkpoint: the restored checkpoint.
        lineage: the lineage that begins with it.
        adopting: the checkpoints, up to the restored one, that are decided but not committed in
            their own log; oldest first. They are committed under their own identity (H30), before
            orphans are aborted.
        sink_ahead: what becomes of checkpoints after it in the sinks.
        original: for a fork: the sinks of the pieces in `adopting`, opened in the name of the job
            that has written them. Only `commit` is called.
        may_rename: as for `GoOn`.
        open_as: opens a sink of the job once more, in the name of a job and sink: to take back what
            the target has under that.
        begins: where each source of the plan begins, if not where the lineage or the checkpoint
            says.
        prove: called before the fence, and again behind all fences before a row is taken back, with
            whether one is: raises if what the restore goes on with cannot be read.
        goes_back: called when a rewind is recorded, before a row is taken back: tells others that
            the job goes back. Raises nothing.
    """

    checkpoint: CompletedCheckpoint
    lineage: Lineage
    adopting: tuple[CompletedCheckpoint, ...] = ()
    sink_ahead: SinkAhead = SinkAhead.REFUSE
    original: Mapping[str, OpenSink] = field(default_factory=dict)
    may_rename: bool = False
    open_as: Callable[[str, str, str], OpenSink] | None = None
    begins: tuple[str | None, ...] = ()
    prove: Callable[[bool], None] = lambda _: None
    goes_back: Callable[[], None] = lambda: None

    @property
    def keep(self) -> Mapping[str, int]:
        """The last checkpoint of each lineage that stays in the sinks."""
        return self.lineage.ancestors

    @property
    def start(self) -> tuple[str | None, ...]:
        """Where each source of the plan begins; None if its options say."""
        return self.lineage.start or self.begins or self.checkpoint.offsets.end

    @property
    def committed(self) -> tuple[Proof, ...]:
        """Return each sink's newest committed checkpoint, by the log that it is from."""
        if self.sink_ahead is SinkAhead.FORK:
            return ()  # of another job
        return self.adopting[0].predecessors if self.adopting else self.checkpoint.proofs


Wish = GoOn | Restore


# -- plans -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenBack:
    """The checkpoints of a lineage that a sink takes back: those after `kept`, up to `newest`.

    Attributes:
        name: the job and sink under which the target has them, if those are others by now.
    """

    sink: str
    lineage: str
    newest: int
    kept: int
    name: tuple[str, str] | None = None


@dataclass(frozen=True)
class StartPlan:
    """What a start does, in this order.

    Attributes:
        commits: the decisions of the job's own log, oldest first.
        adopts: the checkpoints that a restore commits besides.
        rewinding: the record of a rewind that begins; None without one.
        takes_back: what that takes back, sink by sink.
        begins: the lineage that begins; None to go on, or to begin a fresh one.
        moved: the proofs that stay behind, in a target that the sink no longer has.
        left: the proofs of sinks that have left the job, with the sink that has their target now,
            if one has.
    """

    commits: Sequence[Decision] = ()
    adopts: Sequence[CompletedCheckpoint] = ()
    rewinding: Rewinding | None = None
    takes_back: Sequence[TakenBack] = ()
    begins: Lineage | None = None
    moved: Sequence[Proof] = ()
    left: Sequence[tuple[Proof, str | None]] = ()

    def notes(self) -> Iterator[str]:
        """Say which sinks have left the job, have another name, or begin in another target."""
        for proof, name in self.left:
            now = "has left the job" if name is None else f"is sink {name!r} from now on"
            yield (
                f"sink {proof.sink!r}, whose last rows in {proof.target} are those of checkpoint "
                f"{proof.checkpoint}, {now}"
            )
        for proof in self.moved:
            yield (
                f"sink {proof.sink!r} begins in another target, without its rows up to checkpoint "
                f"{proof.checkpoint} of lineage {proof.lineage}: they are in {proof.target}"
            )


# -- refusals --------------------------------------------------------------------------------------


class Way(Enum):
    """A way that leads on from a refusal."""

    GO_ON = auto()
    RESTORE_NEWEST = auto()
    RESTORE_FOLDER = auto()
    RESTORE_TARGET = auto()
    REWIND = auto()
    FINISH_REWIND = auto()
    ABANDON_REWIND = auto()
    FORK = auto()
    BEGIN_THERE = auto()
    RENAME = auto()
    ACCEPT_NAME = auto()
    ADOPT = auto()
    ACCEPT_LOSS = auto()


@dataclass(frozen=True)
class RewindUnfinished:
    """A rewind has begun: rows may be gone from one sink and still be in another."""

    begun: Rewinding
    ways = (Way.FINISH_REWIND, Way.ABANDON_REWIND)


@dataclass(frozen=True)
class HalfRewound:
    """A rewind that was begun in another folder has taken back a part of a sink's rows, and died.

    Attributes:
        sink: the sink's name.
    """

    sink: str
    ways = (Way.RESTORE_FOLDER, Way.FINISH_REWIND, Way.ABANDON_REWIND)


@dataclass(frozen=True)
class FolderBehind:
    """A target knows more of the job than its folder: going on would write rows twice.

    Attributes:
        sink: the sink's name.
        lineage: of the checkpoint that the folder lacks.
        checkpoint: its number.
        known: the last checkpoint of the lineage by the log; None if the log does not know it.
        continued: whether `known` is where this job has left the lineage.
    """

    sink: str
    lineage: str
    checkpoint: int
    known: int | None = None
    continued: bool = False
    ways = (Way.RESTORE_FOLDER, Way.ADOPT)


@dataclass(frozen=True)
class RowsReturned:
    """A target has checkpoints again that the job has gone back behind: it is a backup of before.

    Their records may be in other checkpoints by now, or will be: who adopts both writes rows twice.

    Attributes:
        sink: the sink's name.
        lineage: of the checkpoints.
        checkpoint: the newest of them.
        left: the last one that the job has kept; -1 if none.
        newest: the newest checkpoint of the current lineage, to which a rewind takes them back;
            None if it has none: then to what it was restored from.
    """

    sink: str
    lineage: str
    checkpoint: int
    left: int
    newest: Decision | None = None
    ways = (Way.RESTORE_TARGET, Way.REWIND)


@dataclass(frozen=True)
class DriverMissed:
    """A target has seen a driver that the folder does not know of, which has committed nothing.

    It may have decided something in a newer folder, or begun a rewind there.

    Attributes:
        sink: the sink's name.
        generation: of the driver.
    """

    sink: str
    generation: int
    ways = (Way.RESTORE_FOLDER, Way.ABANDON_REWIND, Way.ADOPT)


@dataclass(frozen=True)
class RestoreBehind:
    """Rows after the restored checkpoint are in a target, or decided: they would come twice.

    Attributes:
        lineage: of the first checkpoint found that is ahead.
        checkpoint: its number.
        kept: the last checkpoint of that lineage by the restore; None if it knows none.
        decision: the decision on it, if the job's own log is ahead.
        sink: the sink that is ahead; empty for a decision.
        will_be: whether the sink is bound to get it.
    """

    lineage: str
    checkpoint: int
    kept: int | None = None
    decision: Decision | None = None
    sink: str = ""
    will_be: bool = False
    ways = (Way.GO_ON, Way.RESTORE_NEWEST, Way.REWIND, Way.FORK)


@dataclass(frozen=True)
class RestoredMeanwhile:
    """Another driver has begun this lineage with what is to be restored, since this one has read
    the log. Doing it again would take back what the job has written since.
    """

    lineage: str
    ways = (Way.GO_ON,)


@dataclass(frozen=True)
class LeftBehind:
    """What is to be restored continues a checkpoint that an earlier rewind has taken back.

    Attributes:
        lineage: of the checkpoint.
        checkpoint: its number.
        left: the last checkpoint of the lineage that the job has kept; -1 if none.
    """

    lineage: str
    checkpoint: int
    left: int
    ways = (Way.GO_ON, Way.RESTORE_NEWEST)


@dataclass(frozen=True)
class NamedOtherwise:
    """A target has rows of this job under another name: they would be written twice, or stay.

    Attributes:
        sink: the sink that writes to the target now.
        name: the job and sink under which the target has them.
        lineage: of the newest checkpoint of them that the log, or the restore, does not know.
        checkpoint: its number.
    """

    sink: str
    name: tuple[str, str]
    lineage: str
    checkpoint: int
    ways = (Way.RENAME,)


@dataclass(frozen=True)
class CannotTakeBack:
    """A sink is ahead of the restored checkpoint, and no sink of its kind takes rows back."""

    sink: str
    ways = (Way.RESTORE_NEWEST, Way.FORK)


@dataclass(frozen=True)
class TargetReplaced:
    """A target has proofs of the job, but not the rows that they are for."""

    sink: str
    ways = (Way.RESTORE_TARGET, Way.BEGIN_THERE)


@dataclass(frozen=True)
class TargetLacks:
    """A target has lost proof of a committed checkpoint: rows are missing there."""

    proof: Proof
    ways = (Way.RESTORE_TARGET, Way.BEGIN_THERE, Way.ACCEPT_LOSS)


@dataclass(frozen=True)
class SinkRenamed:
    """A new sink has the target of one that has left."""

    proof: Proof
    name: str
    ways = (Way.RENAME, Way.ACCEPT_NAME)


@dataclass(frozen=True)
class RenamedLacks:
    """The target of a renamed sink has lost proof of what was committed under the older name."""

    proof: Proof
    name: str
    ways = (Way.RENAME,)


Refusal = (
    RewindUnfinished
    | HalfRewound
    | FolderBehind
    | RowsReturned
    | DriverMissed
    | RestoreBehind
    | RestoredMeanwhile
    | LeftBehind
    | NamedOtherwise
    | CannotTakeBack
    | TargetReplaced
    | TargetLacks
    | SinkRenamed
    | RenamedLacks
)


# -- the function ----------------------------------------------------------------------------------


def plan_start(observed: Observed, wish: Wish) -> StartPlan | Refusal:
    """Return what a start does, or the first reason why it must not.

    Args:
        observed: the log read after the targets were asked, or both behind a fence.
        wish: what the operator wants.
    """
    return next(refusals(observed, wish), None) or _plan(observed, wish)


def refusals(observed: Observed, wish: Wish) -> Iterator[Refusal]:
    """Yield every reason why a wish cannot be carried out, the most telling first."""
    match wish:
        case GoOn():
            yield from _behind(observed)
            yield from _changed(observed, wish, observed.history.committed_proofs())
        case Restore():
            yield from _not_restorable(observed, wish)
            stays = [one for one in wish.committed if not _has_moved(observed, wish, one)]
            yield from _changed(observed, wish, stays)


def _plan(observed: Observed, wish: Wish) -> StartPlan:
    commits = tuple(observed.history.uncommitted())
    if isinstance(wish, GoOn):
        left = _left(observed, observed.history.committed_proofs())
        return StartPlan(commits, left=tuple(left))
    takes_back: tuple[TakenBack, ...] = ()
    if wish.sink_ahead is SinkAhead.REWIND:
        takes_back = tuple(_taken_back(observed, wish))
    rewinds = bool(takes_back) or _is_to_rewind(observed.history, wish)
    proofs = wish.lineage.proofs
    moved = tuple(one for one in proofs if _has_moved(observed, wish, one))
    return StartPlan(
        commits,
        adopts=wish.adopting,
        rewinding=Rewinding(wish.lineage.restored_from, wish.keep) if rewinds else None,
        takes_back=takes_back,
        begins=replace(wish.lineage, proofs=tuple(one for one in proofs if one not in moved)),
        moved=moved,
        left=tuple(_left(observed, wish.committed)),
    )


# -- is the folder the newest? ---------------------------------------------------------------------


def _behind(observed: Observed) -> Iterator[Refusal]:
    """Yield why the folder knows less than a target: it is empty, outdated, or another one (I6)."""
    history = observed.history
    if history.rewinding is not None:
        yield RewindUnfinished(history.rewinding)
    else:
        yield from _half_rewound(observed)
    known = _Known.of(history)
    ours = known.lineages | observed.folders
    has_committed = False
    for sink, found in observed.sinks.items():
        for lineage, checkpoint in (*found.committed.items(), *found.in_doubt.items()):
            if behind := known.behind(sink, lineage, checkpoint):
                has_committed = True
                yield _returned(observed, behind) or behind
        for name, lineage, checkpoint in _under_other_names(observed, sink, ours):
            has_newer = found.committed.get(lineage, -1) >= checkpoint
            if not has_newer and known.behind(name[1], lineage, checkpoint):
                has_committed = True
                yield NamedOtherwise(sink, name, lineage, checkpoint)
    # What a driver elsewhere has committed tells of it. One that has left nothing in any target may
    # be forgotten with its folder, unless records have come since that a new job would skip.
    is_new = history == History() and not observed.skips_existing
    if not has_committed and not is_new:
        for sink, found in observed.sinks.items():
            if found.memory.generation > history.generation:
                yield DriverMissed(sink, found.memory.generation)


def _returned(observed: Observed, behind: FolderBehind) -> RowsReturned | None:
    """Return the refusal if it is the target that is old, and not the folder.

    When a lineage begins with a restore, no target has more than what that keeps. Whoever goes on
    from another folder after it leaves a newer fence in the target; a backup of before has an older
    one.
    """
    history, left = observed.history, behind.known
    is_old = observed.sinks[behind.sink].memory.generation <= history.generation
    was_restored = any(one.restored_from for one in history.lineages)
    current = history.lineage
    if not (behind.continued and is_old and was_restored) or current is None or left is None:
        return None
    newest = history.newest(current.id)
    if newest is None and not current.restored_from:
        return None
    return RowsReturned(behind.sink, behind.lineage, behind.checkpoint, left, newest)


def _half_rewound(observed: Observed) -> Iterator[HalfRewound | RowsReturned]:
    """Yield the sinks with half a rewind, of another folder; or of before, if the target is old."""
    known = _Known.of(observed.history)
    for sink, found in observed.sinks.items():
        if found.memory.half_rewound:
            ahead = (known.behind(sink, *newest) for newest in found.committed.items())
            returned = (_returned(observed, behind) for behind in ahead if behind)
            yield next(filter(None, returned), HalfRewound(sink))


@dataclass(frozen=True)
class _Known:
    """What a log knows of each lineage.

    Attributes:
        history: of the log.
        left: where this job has left each lineage that it continues.
        lineages: every lineage.
    """

    history: History
    left: Mapping[str, int]
    lineages: frozenset[str]

    @classmethod
    def of(cls, history: History) -> _Known:
        left = {name: last for one in history.lineages for name, last in one.ancestors.items()}
        return cls(history, left, frozenset({*left, *(one.id for one in history.lineages)}))

    def behind(self, sink: str, lineage: str, checkpoint: int) -> FolderBehind | None:
        """Return the refusal for a checkpoint that a target has and the log does not know."""
        history, found = self.history, FolderBehind(sink, lineage, checkpoint)
        if lineage in self.left:
            left = self.left[lineage]
            return replace(found, known=left, continued=True) if checkpoint > left else None
        if lineage not in self.lineages:
            return found
        if history.lineage is None or history.lineage.id != lineage:
            return None
        newest = history.newest(lineage)
        ends = newest.checkpoint if newest else -1
        is_ahead = any(
            one.sink == sink and one.is_of(lineage, checkpoint) for one in history.sink_decisions
        )
        return replace(found, known=ends) if checkpoint > ends and not is_ahead else None


def _under_other_names(
    observed: Observed, sink: str, ours: frozenset[str]
) -> Iterator[tuple[tuple[str, str], str, int]]:
    """Yield what a target has of this job's rows under another name of the job or the sink.

    A lineage belongs to one job, so its id tells whose the rows are when the job's name does not.
    """
    for (job, other), committed in (observed.sinks[sink].others or {}).items():
        if job == observed.job or ours & committed.keys():
            for lineage, checkpoint in committed.items():
                yield (job, other), lineage, checkpoint


# -- is something ahead of the restored checkpoint? ------------------------------------------------


def _not_restorable(observed: Observed, wish: Restore) -> Iterator[Refusal]:
    """Yield why a restore would write rows twice (H28), or cannot take back those that are ahead.

    The log comes first: it was read after the sinks were asked, and another driver may have gone on
    in between.
    """
    history, keep = observed.history, wish.keep
    rewinds = wish.sink_ahead is SinkAhead.REWIND
    yield from _over(history, wish.lineage)
    if (begun := history.rewinding) and not (rewinds and begun.is_finished_by(keep)):
        yield RewindUnfinished(begun)
    if rewinds:
        for one in _taken_back(observed, wish):
            if not observed.sinks[one.sink].can_rewind:
                yield CannotTakeBack(one.sink)
        return
    if begun is None:
        yield from _half_rewound(observed)
    yield from _log_ahead(history, keep)
    for sink, lineage, newest in ahead_of(keep, observed.memories):
        yield RestoreBehind(lineage, newest, keep.get(lineage), sink=sink)
    for sink, name, lineage, newest in ahead_under_other_names(observed, keep):
        yield NamedOtherwise(sink, name, lineage, newest)


def _over(history: History, begins: Lineage) -> Iterator[Refusal]:
    """Yield why the job has gone on from what is to be restored, or back behind it."""
    for one in history.lineages:
        is_same = (one.origin, one.restore_id) == (begins.origin, begins.restore_id)
        if begins.origin and is_same:
            yield RestoredMeanwhile(one.id)
    if (current := history.lineage) is None:
        return
    older = {one.id for one in history.lineages} - {current.id}
    for lineage, newest in begins.ancestors.items():
        left = current.ancestors.get(lineage, -1)
        if lineage in older and newest > left:
            yield LeftBehind(lineage, newest, left)


def _log_ahead(history: History, keep: Mapping[str, int]) -> Iterator[RestoreBehind]:
    for one in history.decisions:
        if one.checkpoint > keep.get(one.lineage, -1):
            yield RestoreBehind(one.lineage, one.checkpoint, decision=one)
    for ahead in history.ahead_of(keep):
        yield RestoreBehind(ahead.lineage, ahead.checkpoint, sink=ahead.sink, will_be=True)


def _is_to_rewind(history: History, wish: Restore) -> bool:
    """Return whether a rewind has begun, or the log has later checkpoints to forget."""
    if wish.sink_ahead is not SinkAhead.REWIND:
        return False
    return history.rewinding is not None or any(_log_ahead(history, wish.keep))


def ahead_of(
    keep: Mapping[str, int], remembered: Mapping[str, SinkHistory]
) -> Iterator[tuple[str, str, int]]:
    """Yield each sink and lineage that is ahead, with its newest committed checkpoint."""
    for name, memory in remembered.items():
        for lineage, newest in memory.committed.items():
            if newest > keep.get(lineage, -1):
                yield name, lineage, newest


def _taken_back(observed: Observed, wish: Restore) -> Iterator[TakenBack]:
    """Yield what each sink has of later checkpoints, or is bound to get before they go."""
    keep, found = wish.keep, dict[tuple[str, str], int]()
    bound = (
        (name, body.lineage, body.checkpoint)
        for body in observed.waiting
        for name, pieces in body.committables.items()
        if pieces and name in observed.sinks and body.checkpoint > keep.get(body.lineage, -1)
    )
    for sink, lineage, newest in (*ahead_of(keep, observed.memories), *bound):
        found[sink, lineage] = max(found.get((sink, lineage), -1), newest)
    for (sink, lineage), newest in found.items():
        yield TakenBack(sink, lineage, newest, keep.get(lineage, -1))
    for sink, name, lineage, newest in ahead_under_other_names(observed, keep):
        yield TakenBack(sink, lineage, newest, keep.get(lineage, -1), name)


def ahead_under_other_names(
    observed: Observed, keep: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, str], str, int]]:
    """Yield what is ahead under another name of the job or the sink.

    Args:
        observed: what was found.
        keep: the last checkpoint of each lineage that stays.

    Yields:
        The sink that writes there now, the job and sink that the target has the rows by, the
        lineage, and its newest checkpoint.
    """
    ours = _Known.of(observed.history).lineages | keep.keys()
    for sink in observed.sinks:
        for name, lineage, newest in _under_other_names(observed, sink, ours):
            if newest > keep.get(lineage, -1):
                yield sink, name, lineage, newest


# -- does every target have what is committed? -----------------------------------------------------


def _changed(observed: Observed, wish: Wish, expected: Sequence[Proof]) -> Iterator[Refusal]:
    """Yield why a target is not what it was; a sink that has left the job is not asked."""
    for proof, name in _left(observed, expected):
        if name is not None and not wish.may_rename:
            yield SinkRenamed(proof, name)
        elif name is not None and (others := observed.sinks[name].others) is not None:
            there = others.get((observed.job, proof.sink), {})
            if there.get(proof.lineage, -1) < proof.checkpoint:
                yield RenamedLacks(proof, name)
    # Even if the log does not call them committed yet: a repeated commit would find their proof.
    for sink, found in observed.sinks.items():
        if found.memory.replaced and found.committed and isinstance(wish, GoOn):
            yield TargetReplaced(sink)
    for proof in expected:
        one = observed.sinks.get(proof.sink)
        if one is not None and not knows(one.memory, proof):
            yield TargetLacks(proof)


def _has_moved(observed: Observed, wish: Restore, proof: Proof) -> bool:
    """Return whether a sink begins in another target without the rows that a proof is for.

    A target of another name that knows of the lineages which the restore continues is no new one:
    it is a replica, which has the proof, or a copy from before it, which has lost rows.
    """
    sink = observed.sinks.get(proof.sink)
    if sink is None or sink.target == proof.target or knows(sink.memory, proof):
        return False
    return sink.memory.replaced != "" or not (wish.keep.keys() & sink.committed.keys())


def _left(observed: Observed, expected: Iterable[Proof]) -> Iterator[tuple[Proof, str | None]]:
    """Yield the proofs of sinks that have left the job, with the new sink at their target."""
    expected = tuple(expected)
    known = {proof.sink for proof in expected}
    added = {one.target: name for name, one in observed.sinks.items() if name not in known}
    for proof in expected:
        if proof.sink not in observed.sinks:
            yield proof, added.get(proof.target)
