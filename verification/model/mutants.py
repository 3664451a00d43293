"""Deliberate mistakes: for each what it is, the world in which it shows, and the
claim that finds it.

A checker that finds nothing wrong is worth what it finds when something is. The last group is no
invention: the protocol was first built like that, and this model, or a review, found it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from verification.model import configurations as worlds
from verification.model.explore import Exploration, Label, Violation, explore
from verification.model.protocol import specification
from verification.model.state import Budget, Decision, History, Lineage, State
from verification.model.world import MARIADB, MEMORY, MYSQL_80, Mistake, World

I1 = "I1 nothing is committed before its decision"
I2 = "I2 nothing decided is aborted"
I3 = "I3 nothing undecided becomes visible"
I4 = "I4 committed is said on proof"
I5 = "I5 identities are unique"
I6 = "I6 a store without history stops"
I7 = "I7 one driver writes"
I8 = "I8 losses are real"
ROWS = "rows are committed exactly once"
SAVED_ALL = "a savepoint of a stopped job has all"
HALF_REWOUND = "no driver goes on over half a rewind"
FORK_COMMITTED = "a fork begins committed"

_CRASH = World("crash", "", (MEMORY,), budget=Budget(crashes=1))
_RIVAL = World("rival", "", (MEMORY,), budget=Budget(rivals=1))
_DECLINE = World("decline", "", (MEMORY, MEMORY), budget=Budget(declines=1))
_BEHIND = World("commits behind", "", (MEMORY,), max_concurrent=2, budget=Budget(crashes=1))
_ON_MYSQL = World("crash on MySQL 8.0", "", (MYSQL_80,), budget=Budget(crashes=1))
_ON_MARIADB = World("crash on MariaDB", "", (MARIADB,), budget=Budget(crashes=1))
_LOST = World("folder lost", "", (MEMORY,), budget=Budget(crashes=1, losses=1))
_ADOPTED = World("adopted", "", (MEMORY,), budget=Budget(crashes=1, losses=1, repairs=1))
_RESTORE = World(
    "restore", "", (MEMORY,), checkpoints=4, budget=Budget(crashes=1, restores=1, subsumptions=1)
)


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        mistake: the switch.
        what: what is done wrong.
        world: where it shows.
        claim: what it violates.
    """

    mistake: Mistake
    what: str
    world: World
    claim: str

    def explore(self) -> Exploration[State]:
        """Look for the first violation."""
        return explore(specification(replace(self.world, mistake=self.mistake)))


MUTANTS = (
    Mutant(
        Mistake.COMMIT_BEFORE_SYNC, "commits before the decision is synced", worlds.POWER_LOSS, I1
    ),
    Mutant(
        Mistake.NOTA_MEANS_DONE, "takes XAER_NOTA for a commit that was done before", _ON_MYSQL, I4
    ),
    Mutant(
        Mistake.SKIP_BY_NUMBER,
        "skips a batch whose number is decided in any lineage",
        _RESTORE,
        ROWS,
    ),
    Mutant(Mistake.CHECK_THEN_CREATE, "looks whether a number is free, then writes", _RIVAL, I5),
    Mutant(
        Mistake.ABORT_AFTER_UNCLEAR_CREATE,
        "aborts when the create of a decision is unclear",
        _CRASH,
        I2,
    ),
    Mutant(
        Mistake.XID_WITHOUT_GENERATION,
        "leaves the generation out of the xid",
        replace(_RIVAL, budget=Budget(rivals=1, declines=1)),
        I2,
    ),
    Mutant(Mistake.RECOVER_NEWEST_ONLY, "recovers the newest decision only", _BEHIND, I4),
    Mutant(
        Mistake.SCAN_BEFORE_FENCE, "scans for orphans before its fence is in the log", _RIVAL, I2
    ),
    Mutant(
        Mistake.LEDGER_OUTSIDE_BRANCH, "writes the ledger row outside the branch", _ON_MYSQL, I4
    ),
    Mutant(Mistake.FENCE_OUTSIDE_BRANCH, "reads the fence outside the branch", _ON_MYSQL, I7),
    Mutant(
        Mistake.RETRY_SINGLE_TASKS,
        "retries only the sinks that have not acknowledged",
        _DECLINE,
        I2,
    ),
    Mutant(Mistake.NO_FINAL_SCAN, "does not scan again after the fence is raised", _ON_MARIADB, I7),
    Mutant(Mistake.PLAIN_LEDGER_READ, "reads the ledger without a lock", _ON_MYSQL, I8),
    Mutant(
        Mistake.OK_BELIEVED,
        "believes the OK of XA COMMIT while the session still leaves",
        _ON_MYSQL,
        I4,
    ),
    Mutant(Mistake.FOLD_DESCENDING, "deletes folded records newest first", worlds.FOLDED_TWICE, I7),
    Mutant(
        Mistake.NO_CHECK_AFTER_CREATE,
        "does not look at the log after an append",
        worlds.FOLDED_TWICE,
        I7,
    ),
    Mutant(
        Mistake.MARK_ACROSS_LINEAGES,
        "takes the high-water mark of another lineage for proof",
        _RESTORE,
        I4,
    ),
    Mutant(
        Mistake.RESTORE_WITHOUT_ADOPTING,
        "restores without adopting decided checkpoints",
        worlds.COPIED,
        I2,
    ),
    Mutant(Mistake.COMMIT_OUT_OF_ORDER, "commits the newest decision first", _BEHIND, I4),
    Mutant(
        Mistake.DECIDE_WITHOUT_ALL, "decides although an acknowledgement is missing", _DECLINE, I2
    ),
    Mutant(
        Mistake.GENERATION_REUSED,
        "starts again with the same generation, counting from 1",
        _CRASH,
        I2,
    ),
    Mutant(
        Mistake.COLLAPSE_BEFORE_MARK,
        "collapses the ledger before the mark is raised",
        worlds.SUBSUMED,
        I8,
    ),
    Mutant(
        Mistake.NO_FENCE_AFTER_DECLINE,
        "does not raise the fence after a declined attempt",
        _DECLINE,
        I7,
    ),
    Mutant(
        Mistake.STORE_NOT_VALIDATED_AGAINST_SINKS,
        "starts afresh although a sink remembers the job",
        _LOST,
        I6,
    ),
    Mutant(
        Mistake.LOST_SAID_DONE, "takes a piece that is nowhere for committed", worlds.BY_HAND, I4
    ),
    Mutant(
        Mistake.COMMIT_WITHOUT_PREDECESSOR,
        "commits in a target without asking it for the checkpoint before",
        worlds.RESTORED_TARGET,
        I4,
    ),
    Mutant(
        Mistake.TARGETS_NOT_VALIDATED_AGAINST_LOG,
        "starts over a target that was restored from a backup or swapped",
        worlds.RESTORED_TARGET,
        I8,
    ),
    Mutant(
        Mistake.EMPTY_TAKEN_FOR_NEW,
        "takes a target that remembers nothing for one that has had no rows yet",
        worlds.SWAPPED,
        I8,
    ),
    Mutant(
        Mistake.SINKS_NOT_ASKED_AGAIN,
        "does not ask the sinks again when its fences are up",
        worlds.COPY_BESIDE,
        ROWS,
    ),
    Mutant(
        Mistake.ABORT_WITHOUT_ASKING,
        "aborts in one sink what another shows as committed",
        worlds.COPY_BESIDE,
        I2,
    ),
    Mutant(
        Mistake.LOSS_NOT_LEFT_OUT,
        "commits a piece that was given up when it comes back",
        worlds.LOST_PIECES,
        I3,
    ),
    Mutant(
        Mistake.REWRITE_WITHOUT_FENCE,
        "writes lost pieces again without taking the job over",
        worlds.LOST_PIECES,
        I5,
    ),
    Mutant(
        Mistake.ADOPT_BY_THE_FOLDER,
        "adopts what the targets have, and begins where the folder ends",
        _ADOPTED,
        ROWS,
    ),
    Mutant(
        Mistake.ADOPT_WITHOUT_COMMITTING,
        "adopts a checkpoint, and leaves its pieces in other sinks",
        replace(_ADOPTED, servers=(MEMORY, MEMORY)),
        I2,
    ),
    Mutant(
        Mistake.SAVEPOINT_WITHOUT_PENDING,
        "leaves out of a savepoint what waits to be committed",
        worlds.SAVED,
        I2,
    ),
    Mutant(
        Mistake.SAVEPOINT_OF_COMMITTED,
        "makes the savepoint of a stopped job of its newest committed checkpoint",
        worlds.SAVED,
        SAVED_ALL,
    ),
    Mutant(
        Mistake.SAVEPOINT_ABORTED_FIRST,
        "aborts what a savepoint holds before it commits it",
        worlds.SAVED,
        I2,
    ),
    Mutant(
        Mistake.SAVEPOINT_NOT_COMPARED,
        "restores a savepoint without asking whether a sink is ahead",
        worlds.SAVED,
        ROWS,
    ),
    Mutant(
        Mistake.FINISHED_UNCOMMITTED,
        "calls a savepoint finished before it is committed",
        worlds.SAVED,
        I2,
    ),
    Mutant(
        Mistake.FINISHED_IN_AN_OLDER_FOLDER,
        "calls a savepoint finished in a folder that does not know its checkpoint",
        worlds.HALF_REWOUND_FOLDER_RESTORED,
        I8,
    ),
    Mutant(
        Mistake.REWIND_BEFORE_TAKEOVER,
        "takes rows back before it has taken the job over",
        worlds.REWOUND_BESIDE,
        HALF_REWOUND,
    ),
    Mutant(
        Mistake.REWIND_BEFORE_COMMIT,
        "rewinds, and leaves decided checkpoints to be committed after that",
        worlds.REWOUND,
        I2,
    ),
    Mutant(
        Mistake.REWIND_UNRECORDED,
        "takes rows back, and notes nowhere that it has begun to",
        replace(worlds.REWOUND, servers=(MEMORY,)),
        HALF_REWOUND,
    ),
    Mutant(
        Mistake.REWIND_FIRST_SINK_ONLY,
        "takes rows back in the first of two sinks that are ahead",
        worlds.REWOUND,
        ROWS,
    ),
    Mutant(
        Mistake.ABANDON_WITHOUT_FENCE,
        "gives a rewind up without a fence in the sinks",
        worlds.ABANDONED,
        HALF_REWOUND,
    ),
    Mutant(
        Mistake.ABANDON_UNSETTLED,
        "gives a rewind up over proofs without rows",
        worlds.ABANDONED,
        HALF_REWOUND,
    ),
    Mutant(
        Mistake.FORK_ABORTS,
        "starts another job with a savepoint, and aborts what the old one has pre-committed",
        worlds.FORKED,
        I2,
    ),
    Mutant(
        Mistake.FORK_BEGINS_FIRST,
        "begins another job before what its savepoint holds is committed",
        worlds.FORKED,
        FORK_COMMITTED,
    ),
    # As first built:
    Mutant(
        Mistake.MARK_WITHOUT_PROOF,
        "raises the mark of a target that was restored from a backup or swapped to what it lacks",
        replace(
            worlds.RESTORED_TARGET,
            servers=(MEMORY,),
            budget=Budget(crashes=1, target_restores=1, subsumptions=1),
        ),
        I8,
    ),
    Mutant(
        Mistake.CHECK_PREDECESSOR_ONLY,
        "checks nothing after the first record of a log",
        worlds.FOLDED,
        I5,
    ),
    Mutant(
        Mistake.CHECK_PREDECESSOR_AND_FIRST,
        "trusts a predecessor that an interrupted fold has left behind",
        worlds.FOLDED_TWICE,
        I5,
    ),
    Mutant(
        Mistake.RESTORE_OVERLOOKS_COMMITTED,
        "restores behind a checkpoint that was committed between the look at "
        "the sinks and at the log",
        worlds.RESTORED,
        ROWS,
    ),
    Mutant(
        Mistake.RESTORE_BEHIND_DECIDED,
        "restores from a copy that has a later decision to commit",
        worlds.COPIED,
        I2,
    ),
    Mutant(
        Mistake.AHEAD_UNRECORDED,
        "commits a sink ahead of the others without a record of it",
        worlds.AHEAD,
        I1,
    ),
    Mutant(
        Mistake.AHEAD_ASKED_AGAIN,
        "asks a sink that is ahead to write once more",
        worlds.AHEAD,
        I3,
    ),
    Mutant(
        Mistake.AHEAD_TAKEN_FOR_ORPHANS,
        "takes the pieces of a sink that is ahead for orphans",
        worlds.AHEAD,
        I2,
    ),
    Mutant(
        Mistake.AHEAD_NOT_LISTED,
        "decides a checkpoint without the pieces that a sink has ahead of it",
        worlds.AHEAD,
        I8,
    ),
)


def described(violation: Violation[State]) -> str:
    """A trace for people."""
    lines = [
        f"{number:4d}  {describe(label)}"
        for number, (label, _) in enumerate(violation.trace)
        if label
    ]
    return "\n".join([f"violates: {violation.claim}", *lines])


def describe(label: Label) -> str:
    """One step in words."""
    verb, who, *details = label
    if isinstance(who, int):
        who = f"driver {who}"
    elif who == "sink":
        who = f"sink {details.pop(0)}"
    return " ".join([who, verb, *_words(details)])


def _words(details: list[Any]) -> list[str]:
    """Checkpoints are written lineage/number, attempts generation.counter."""
    numbers = all(isinstance(detail, int) for detail in details)
    match details:
        case [place, lineage, number, generation, counter, branch] if numbers:
            return [
                f"sink {place}:",
                f"{lineage}/{number}",
                f"{generation}.{counter}",
                f"branch {branch}",
            ]
        case [lineage, number, generation, counter, branch] if numbers:
            return [f"{lineage}/{number}", f"{generation}.{counter}", f"branch {branch}"]
        case [lineage, number, generation, counter] if numbers:
            return [f"{lineage}/{number}", f"{generation}.{counter}"]
        case _:
            return [_word(detail) for detail in details]


def _word(detail: object) -> str:
    match detail:
        case Decision(lineage, number, generation, counter):
            return f"{lineage}/{number} {generation}.{counter}"
        case Lineage(lineage, base):
            return f"{lineage} from range {base}"
        case History():
            return "of all before"
        case tuple():
            return " ".join(_word(part) for part in detail)
        case _:
            return str(detail)
