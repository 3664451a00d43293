"""What a configuration of the model is made of: servers, sizes, faults, and deliberate mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from verification.model.pieces import Attempt
from verification.model.state import Budget

NOTHING_GOES_WRONG = Budget()


@dataclass(frozen=True, eq=False)
class Server:
    """How a sink's server behaves. Measured on real servers; see
    docs/decisions/0010 for the last two.

    Attributes:
        name: of the server.
        has_sessions: a branch lives in a session and its steps are separate; without, a
            pre-commit is one step.
        keeps_share_lock: a prepared branch keeps its share lock on the fence.
        commits_held: XA COMMIT of a branch works while the session that prepared it lives.
        shows_leaving: KILL finds a session until the engine has let go of its branch.
    """

    name: str
    has_sessions: bool = True
    keeps_share_lock: bool = False
    commits_held: bool = False
    shows_leaving: bool = True


MEMORY = Server("memory", has_sessions=False)
"""The reference sink, `twophase.testing.memory`."""
MYSQL_80 = Server("MySQL 8.0", keeps_share_lock=True)
MYSQL_97 = Server("MySQL 9.7", keeps_share_lock=True, commits_held=True)
MARIADB = Server("MariaDB 10.11", shows_leaving=False)


class Mistake(Enum):
    """A deliberate mistake in the protocol. Each has to be caught; see `mutants`."""

    COMMIT_BEFORE_SYNC = auto()
    NOTA_MEANS_DONE = auto()
    SKIP_BY_NUMBER = auto()
    CHECK_THEN_CREATE = auto()
    ABORT_AFTER_UNCLEAR_CREATE = auto()
    XID_WITHOUT_GENERATION = auto()
    RECOVER_NEWEST_ONLY = auto()
    SCAN_BEFORE_FENCE = auto()
    LEDGER_OUTSIDE_BRANCH = auto()
    FENCE_OUTSIDE_BRANCH = auto()
    RETRY_SINGLE_TASKS = auto()
    NO_FINAL_SCAN = auto()
    PLAIN_LEDGER_READ = auto()
    OK_BELIEVED = auto()
    FOLD_DESCENDING = auto()
    NO_CHECK_AFTER_CREATE = auto()
    CHECK_PREDECESSOR_ONLY = auto()
    CHECK_PREDECESSOR_AND_FIRST = auto()
    MARK_ACROSS_LINEAGES = auto()
    RESTORE_WITHOUT_ADOPTING = auto()
    RESTORE_OVERLOOKS_COMMITTED = auto()
    RESTORE_BEHIND_DECIDED = auto()
    COMMIT_OUT_OF_ORDER = auto()
    DECIDE_WITHOUT_ALL = auto()
    GENERATION_REUSED = auto()
    COLLAPSE_BEFORE_MARK = auto()
    NO_FENCE_AFTER_DECLINE = auto()
    STORE_NOT_VALIDATED_AGAINST_SINKS = auto()
    LOST_SAID_DONE = auto()
    COMMIT_WITHOUT_PREDECESSOR = auto()
    TARGETS_NOT_VALIDATED_AGAINST_LOG = auto()
    SINKS_NOT_ASKED_AGAIN = auto()
    ABORT_WITHOUT_ASKING = auto()
    MARK_WITHOUT_PROOF = auto()
    LOSS_NOT_LEFT_OUT = auto()
    REWRITE_WITHOUT_FENCE = auto()
    ADOPT_BY_THE_FOLDER = auto()
    ADOPT_WITHOUT_COMMITTING = auto()
    EMPTY_TAKEN_FOR_NEW = auto()
    SAVEPOINT_WITHOUT_PENDING = auto()
    SAVEPOINT_OF_COMMITTED = auto()
    SAVEPOINT_ABORTED_FIRST = auto()
    SAVEPOINT_NOT_COMPARED = auto()
    FINISHED_UNCOMMITTED = auto()
    FINISHED_IN_AN_OLDER_FOLDER = auto()
    REWIND_BEFORE_TAKEOVER = auto()
    REWIND_BEFORE_COMMIT = auto()
    REWIND_UNRECORDED = auto()
    REWIND_FIRST_SINK_ONLY = auto()
    ABANDON_WITHOUT_FENCE = auto()
    ABANDON_UNSETTLED = auto()
    FORK_ABORTS = auto()
    FORK_BEGINS_FIRST = auto()
    AHEAD_UNRECORDED = auto()
    AHEAD_ASKED_AGAIN = auto()
    AHEAD_TAKEN_FOR_ORPHANS = auto()
    AHEAD_NOT_LISTED = auto()


class Rules(NamedTuple):
    """What a world says of the plan of a start: see `World`."""

    asks: bool = True
    can_rewind: bool = True


@dataclass(frozen=True, eq=False)
class World:
    """One configuration: how large the world is and what may go wrong in it.

    Attributes:
        name: of the configuration.
        about: what it is there for.
        servers: one for each sink.
        branches: tasks of each sink, each with rows.
        checkpoints: how many ranges of rows there are.
        max_concurrent: how many checkpoints may be under way: with 2, n + 1 pre-commits while n is
            not committed yet.
        losers: tasks of the first sink that have a second attempt, which loses.
        splits_append: a record is created, and the check after it is a step of its own.
        splits_sync: a record is linked, and made durable by a step of its own.
        replays: Spark runs the newest checkpoint again after a recovery.
        ahead: sinks may commit ahead of the others.
        head_start: the first driver has committed the first checkpoint before
            anything else can happen.
        retained: how many committed checkpoints a fold keeps: `checkpoint.num_retained`.
        can_rewind: the sinks can take rows back.
        finishes_rewinds: one that has died can be finished; if not, the ways on (`ways_on`) are
            those that take nothing back: a sink, or a source, refuses by then.
        tells_half: the sinks tell that they are half rewound (`SinkHistory.half_rewound`), and not
            the log alone.
        asks: drivers stop over a target that lacks what is committed, and over sinks that are ahead
            when they ask again. Off for traces of the product, in which some checkpoints have no
            pieces: who stops tells nothing, so they are explained either way.
        budget: the faults.
        mistake: what the protocol does wrong.
    """

    name: str
    about: str
    servers: tuple[Server, ...]
    branches: int = 1
    checkpoints: int = 2
    max_concurrent: int = 1
    losers: int = 0
    splits_append: bool = False
    splits_sync: bool = False
    replays: bool = False
    ahead: bool = False
    head_start: bool = False
    retained: int = 1
    can_rewind: bool = True
    finishes_rewinds: bool = True
    tells_half: bool = False
    asks: bool = True
    budget: Budget = NOTHING_GOES_WRONG
    mistake: Mistake | None = None

    def __post_init__(self) -> None:
        if self.max_concurrent > 1 and (self.splits_append or self.splits_sync or self.losers):
            raise ValueError(
                "a driver with commits behind has no steps for an append or a sweep of its own"
            )

    @property
    def rules(self) -> Rules:
        """Of the plan of a start."""
        return Rules(self.asks, self.can_rewind)

    @property
    def rules_of_ways(self) -> Rules:
        """Of the plan of a start that is to lead on."""
        return Rules(self.asks, self.can_rewind and self.finishes_rewinds)

    def pieces_of(self, place: int, attempt: Attempt) -> int:
        """How many pieces an attempt has in a sink, as a decision lists them."""
        return self.branches

    def losers_of(self, place: int, attempt: Attempt) -> int:
        """How many of its task attempts in a sink lose to another of the same task."""
        return 0 if place else self.losers
