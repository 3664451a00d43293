"""What a state of the model is made of: the job's log, the sinks, the drivers, and what
may still go wrong.

Everything is a frozen tuple of small values, so that a state is its own identity. Names
are the product's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from verification.model.pieces import NOTHING, Attempt, Sink, Xid

# -- the log ---------------------------------------------------------------------------------------


Proofs = tuple[tuple[int, int, int], ...]
"""Place of a sink, lineage and number of its newest checkpoint with pieces."""


class Lineage(NamedTuple):
    """One unbroken history of the job.

    Attributes:
        id: the owner that began it: one driver begins one lineage at the most.
        base: its checkpoint n reads the range `base + n`.
        first: the number of its first checkpoint.
        ancestors: the last checkpoint of each lineage that it continues.
        proofs: what each sink has of them.
    """

    id: int
    base: int = 0
    first: int = 0
    ancestors: tuple[tuple[int, int], ...] = ()
    proofs: Proofs = ()


class Decision(NamedTuple):
    """A decided checkpoint as the log keeps it.

    Attributes:
        given_up: sinks whose pieces an operator has given up.
        rewritten: sinks whose pieces are of another attempt: place, generation and counter.
    """

    lineage: int
    number: int
    generation: int
    counter: int
    committed: bool = False
    given_up: tuple[int, ...] = ()
    rewritten: tuple[tuple[int, int, int], ...] = ()

    @property
    def attempt(self) -> Attempt:
        return self[2:4]

    def attempt_in(self, place: int) -> Attempt:
        """The attempt that its pieces in a sink are of."""
        return next((found[1:] for found in self.rewritten if found[0] == place), self.attempt)

    def xids(self, place: int, branches: int) -> list[Xid]:
        """Its pieces in a sink."""
        attempt = self.attempt_in(place)
        listed = 0 if place in self.given_up else branches
        return [(self.lineage, self.number, *attempt, branch) for branch in range(listed)]


Ahead = tuple[int, int, int, int, int, int, int]
"""What a sink is ahead with, as in `History`, then who has decided it and which rows it has."""


class History(NamedTuple):
    """What the log adds up to.

    Attributes:
        rewinding: what a rewind keeps of each lineage that has begun, and whose lineage has not.
        ahead: the sinks that commit ahead of the next checkpoint: place, lineage, number,
            generation and counter.
    """

    generation: int = 0
    lineages: tuple[Lineage, ...] = ()
    decisions: tuple[Decision, ...] = ()
    rewinding: tuple[tuple[int, int], ...] = ()
    ahead: tuple[tuple[int, int, int, int, int], ...] = ()


class Saved(NamedTuple):
    """A savepoint.

    Attributes:
        lineage: of its checkpoint.
        number: of its checkpoint.
        pending: what a restore has to commit, oldest first.
        proofs: what each sink has of it, or will have.
        before: what each sink has before the first of those that are pending.
        drivers: for the invariants: how many drivers had been started when it was made, if none
            of them was alive.
    """

    lineage: Lineage
    number: int
    pending: tuple[Decision, ...]
    proofs: Proofs = ()
    before: Proofs = ()
    drivers: int = 0


class Fence(NamedTuple):
    """A driver has taken the job over."""

    kind: Literal["FENCE"]
    generation: int


class Begin(NamedTuple):
    """A lineage begins."""

    kind: Literal["LINEAGE"]
    lineage: Lineage


class Decide(NamedTuple):
    """The decision."""

    kind: Literal["DECIDED"]
    decision: Decision


class DecideSink(NamedTuple):
    """One sink commits ahead of the others."""

    kind: Literal["SINK_DECIDED"]
    place: int
    decision: Decision


class Commit(NamedTuple):
    """Every sink has proven the checkpoint committed."""

    kind: Literal["COMMITTED"]
    lineage: int
    number: int


class Rewinding(NamedTuple):
    """Sinks are about to take back what is after a savepoint."""

    kind: Literal["REWINDING"]
    keep: tuple[tuple[int, int], ...]


class Subsume(NamedTuple):
    """The history of everything before."""

    kind: Literal["SUBSUMED"]
    history: History


class Repaired(NamedTuple):
    """An operator has given up or written again the pieces of a checkpoint in a sink, begun a
    lineage behind the targets, or given up a rewind.

    Attributes:
        losses: what a rewind that is given up has taken back: place, lineage and number.
    """

    kind: Literal["REPAIRED"]
    verb: str
    lineage: int = 0
    number: int = 0
    place: int = 0
    attempt: Attempt = NOTHING
    begins: Lineage | None = None
    losses: tuple[tuple[int, int, int], ...] = ()


Record = Fence | Begin | Decide | DecideSink | Commit | Rewinding | Subsume | Repaired


class Slot(NamedTuple):
    """One file of the log.

    Attributes:
        nonce: who wrote it. A driver tries a number once at the most, so its owner will do.
        synced: whether it survives a power loss.
        stray: for the invariants: its number was free because the log had been folded beyond it.
    """

    nonce: int
    record: Record
    synced: bool = True
    stray: bool = False


class Decided(NamedTuple):
    """For the invariants: a decision that was durable at its place in the log, whatever
    became of the log since.

    Attributes:
        range: which rows it has.
        lost: the folder was lost, and the copy that the job goes on from does not have it.
        given_up: sinks whose pieces an operator has given up.
        instead: sinks whose pieces are others now: place, generation, counter and owner.
    """

    lineage: int
    number: int
    generation: int
    counter: int
    owner: int
    range: int
    lost: bool = False
    given_up: tuple[int, ...] = ()
    instead: tuple[tuple[int, int, int, int], ...] = ()

    def name_in(self, place: int) -> tuple[int, ...]:
        """What its pieces in a sink begin with: up to the counter, and the owner."""
        later = next(
            (found[1:] for found in self.instead if found[0] == place), (*self[2:4], self.owner)
        )
        return (self.lineage, self.number, *later)


# -- a driver --------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """What a sink remembers.

    Attributes:
        generation: the highest that has fenced it.
        committed: the highest checkpoint of each lineage, sorted.
        target, half_rewound: as in `Sink`.
    """

    generation: int
    committed: tuple[tuple[int, int], ...] = ()
    target: int = 0
    half_rewound: bool = False


Remembered = tuple[Memory, ...]


class Driver(NamedTuple):
    """One process that believes the job to be its own.

    Attributes:
        owner: its number among all that were ever started.
        step: what it does next, see `steps`.
        then: the step after an append in steps, or after all sinks are closed.
        tries: how often it has tried to take over in vain.
        generation: with which it has taken over; 0 before.
        counter: of its newest attempt.
        last: the number of the newest record that it knows.
        nonce: who wrote that.
        history: what it knows of the log.
        record: what it has just created and not accepted yet.
        remembered: what each sink remembered.
        begins: the lineage that an explicit restore is about to begin.
        adopting: decided checkpoints that the restore has to commit, of another folder perhaps.
        adopted: how many of them it has committed.
        before: what each sink has before the first of them.
        recommitted: (lineage, number) of the newest checkpoint that its recovery has committed.
        number: the checkpoint that Spark runs next, or runs.
        acknowledged: the sinks that have acknowledged it.
        proven: (sink, branch) proven committed, of the checkpoint whose commit is under way.
        closing: the attempt below which it closes everything, while it does so.
        sink: the sink that it is at.
        work: the pieces that it found and has yet to abort.
        numbers: the records that it has yet to delete.
        folder: 1 over a copy of the job's folder, beside a driver over the original.
        repair: it is no driver, but an operator's repair: which one.
        repairs: lineage and number of the checkpoint and the place of the sink that it is about.
        savepoint: it restores a savepoint.
        rewinds: 1 if its restore takes back what is after the savepoint, 2 when it has.
        takes_back: the sinks that have to, while it does so.
    """

    owner: int
    step: str
    then: str = ""
    tries: int = 0
    generation: int = 0
    counter: int = 0
    last: int = 0
    nonce: int = 0
    history: History = History()
    record: Record | None = None
    remembered: Remembered = ()
    begins: Lineage | None = None
    adopting: tuple[Decision, ...] = ()
    adopted: int = 0
    before: Proofs = ()
    recommitted: tuple[int, ...] = ()
    number: int = 0
    acknowledged: tuple[int, ...] = ()
    proven: tuple[tuple[int, int], ...] = ()
    closing: Attempt = NOTHING
    sink: int = 0
    work: tuple[Xid, ...] = ()
    numbers: tuple[int, ...] = ()
    folder: int = 0
    repair: str = ""
    repairs: tuple[int, int, int] = (0, 0, 0)
    savepoint: bool = False
    rewinds: int = 0
    takes_back: tuple[int, ...] = ()

    @property
    def to_adopt(self) -> tuple[Decision, ...]:
        """What the restore has still to commit."""
        return self.adopting[self.adopted :]


ACCEPT, REWRITE, ADOPT = "accepts the loss", "writes again", "adopts"
ABANDON = "gives up the rewind"
CONFIRM = "confirms the folder"
"""What an adoption is where the log lacks nothing but a driver."""
DEAD = "dead"
"""It crashed, or it was fenced and has stopped."""
REFUSED = "refused"
"""It has stopped because the store knows less than a sink, or a restore would write rows twice."""
LOST = "lost"
"""It has stopped because a decided piece is gone."""
CHANGED = "changed"
"""It has stopped because a target lacks what the log calls committed."""


class Budget(NamedTuple):
    """How often each thing may still go wrong or be done.

    Attributes:
        crashes: a driver dies; also a driver that stops because an outcome is in doubt.
        rivals: a second driver is started while another one lives.
        declines: an attempt fails before its decision.
        server_crashes: a sink's server dies and comes back.
        power_losses: the machine with the log and the drivers loses its power.
        folds: a driver folds the log.
        subsumptions: a driver lets the sinks collapse their proofs.
        restores: a driver is started with an explicit restore.
        copies: the operator copies the job's folder.
        losses: the job's folder is lost.
        folder_restores: the job's folder is restored from the copy.
        rollbacks: somebody rolls a prepared branch back by hand.
        folders: a driver is started over a copy of the folder while another one lives.
        target_restores: a target is restored from a backup, or swapped for an empty one.
        swaps: a target is swapped for an empty one.
        failovers: a target is swapped for an older copy of it, on another server.
        repairs: an operator runs a repair.
        returns: a piece that was rolled back is prepared again.
        savepoints: a savepoint is made, in place of the one before.
        moves: it is carried to where an empty folder waits.
        deletions: it is deleted.
        saved_restores: a driver is started that restores it.
        rewinds: a driver is started that rewinds to it.
        forks: another job is started with it.
    """

    crashes: int = 0
    rivals: int = 0
    declines: int = 0
    server_crashes: int = 0
    power_losses: int = 0
    folds: int = 0
    subsumptions: int = 0
    restores: int = 0
    copies: int = 0
    losses: int = 0
    folder_restores: int = 0
    rollbacks: int = 0
    folders: int = 0
    target_restores: int = 0
    swaps: int = 0
    failovers: int = 0
    repairs: int = 0
    returns: int = 0
    savepoints: int = 0
    moves: int = 0
    deletions: int = 0
    saved_restores: int = 0
    rewinds: int = 0
    forks: int = 0


class State(NamedTuple):
    """Everything there is.

    Attributes:
        log: number 1 first; None where a file was deleted.
        sinks: in the order of the job.
        drivers: all that were ever started; a word for one that has ended.
        decided: for the invariants.
        budget: what may still go wrong.
        copy: the operator's copy of the job's folder.
        other: the log in a copy that has a driver of its own.
        standby: whether that driver was started.
        backup: the operator's backup of a target: its place, and what was in it.
        changed: whether a target was restored from a backup or swapped.
        overlooked: for the invariants: a driver has recovered over a target that lacks
            what is committed.
        rolled_back: for the invariants: a decided piece was aborted while another sink
            showed its checkpoint.
        returned: whether a piece that was rolled back is there again.
        saved: the savepoint that there is.
        moved: whether the job has left its folder for an empty one.
        taken_back: place, lineage and number of what rewinds have taken back.
        ahead: for the invariants: of what is durable and not in a decision yet.
        forked: for the invariants: what was pending in the savepoint that another job began with.
    """

    log: tuple[Slot | None, ...]
    sinks: tuple[Sink, ...]
    drivers: tuple[Driver | str, ...]
    decided: tuple[Decided, ...]
    budget: Budget
    copy: History | None = None
    other: tuple[Slot | None, ...] | None = None
    standby: bool = False
    backup: tuple[int, Sink] | None = None
    changed: bool = False
    overlooked: bool = False
    rolled_back: bool = False
    returned: bool = False
    saved: Saved | None = None
    moved: bool = False
    taken_back: tuple[tuple[int, int, int], ...] = ()
    ahead: tuple[Ahead, ...] = ()
    forked: tuple[Decision, ...] = ()
