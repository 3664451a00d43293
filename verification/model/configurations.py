"""The worlds that are checked. No single one has everything: together they would
have too many states.

`SMALL` is checked by the tests, every state of it. `LARGE` is the same worlds with more going
wrong; `make model` checks both. What each is there for is its `about`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verification.model.state import Budget
from verification.model.world import MARIADB, MEMORY, MYSQL_80, MYSQL_97, World

WHOLE = World(
    "whole",
    "two sinks of two branches, three checkpoints, two of them under way, "
    "and a driver that dies anywhere",
    (MEMORY, MEMORY),
    branches=2,
    checkpoints=3,
    max_concurrent=2,
    budget=Budget(crashes=1),
)
TWO_DRIVERS = World(
    "two drivers",
    "a second driver starts while the first is anywhere, "
    "and either may pause for as long as it likes",
    (MEMORY, MEMORY),
    max_concurrent=2,
    budget=Budget(rivals=1),
)
OVERTAKEN = World(
    "overtaken",
    "as before, with a declined attempt and a driver that dies: three drivers, late tasks of each",
    (MEMORY,),
    budget=Budget(rivals=1, declines=1, crashes=1),
)
POWER_LOSS = World(
    "power loss",
    "records are linked, then synced, and the power fails in between",
    (MEMORY,),
    splits_sync=True,
    budget=Budget(rivals=1, power_losses=1),
)
FOLDED = World(
    "folded",
    "the log is folded while another driver reads it or appends to it",
    (MEMORY,),
    splits_append=True,
    budget=Budget(rivals=1, folds=2),
)
FOLDED_TWICE = World(
    "folded twice",
    "three drivers, two of which fold: one is still deleting, or has stopped deleting, "
    "while the other begins",
    (MEMORY,),
    checkpoints=1,
    splits_append=True,
    head_start=True,
    budget=Budget(rivals=2, folds=2),
)
RESTORED = World(
    "restored",
    "a restore into a new lineage, also while the old driver is alive; "
    "high-water marks of both lineages",
    (MEMORY,),
    checkpoints=3,
    budget=Budget(rivals=1, restores=1, subsumptions=1),
)
COPIED = World(
    "copied",
    "the job's folder is lost, and the job goes on from a copy of any age, or does not",
    (MEMORY,),
    checkpoints=3,
    max_concurrent=2,
    budget=Budget(crashes=1, restores=1, copies=1, losses=1),
)
AHEAD = World(
    "ahead",
    "sinks commit ahead of each other, or do not; attempts are declined, and drivers die anywhere",
    (MEMORY, MEMORY),
    ahead=True,
    budget=Budget(crashes=1, declines=1),
)
AHEAD_BESIDE = replace(
    AHEAD,
    name="ahead, two drivers",
    about="a second driver takes over while the first has a sink ahead",
    budget=Budget(rivals=1, restores=1),
)
ON_MYSQL_80 = World(
    "on MySQL 8.0",
    "a branch has a session, locks the fence while prepared, "
    "and cannot be committed while its session lives",
    (MYSQL_80,),
    max_concurrent=2,
    budget=Budget(crashes=1, server_crashes=1, declines=1),
)
ON_MARIADB = replace(
    ON_MYSQL_80,
    name="on MariaDB",
    about="the share lock goes with the prepare; a commit right after the session has gone "
    "says OK and does nothing",
    servers=(MARIADB,),
)
ON_MYSQL_97 = replace(
    ON_MYSQL_80,
    name="on MySQL 9.7",
    about="a branch can be committed while its session lives",
    servers=(MYSQL_97,),
)
TWO_ON_MYSQL_80 = World(
    "two drivers on MySQL 8.0",
    "commits of a driver that was overtaken are in flight; "
    "sessions of the new one are ended by the old one",
    (MYSQL_80,),
    budget=Budget(rivals=1),
)
TWO_ON_MARIADB = replace(TWO_ON_MYSQL_80, name="two drivers on MariaDB", servers=(MARIADB,))
MIXED = World(
    "mixed",
    "one sink on each server",
    (MYSQL_80, MARIADB),
    checkpoints=1,
    budget=Budget(crashes=1, server_crashes=1),
)
SUBSUMED = World(
    "subsumed",
    "proofs are collapsed while Spark asks for the newest checkpoint again",
    (MYSQL_80,),
    replays=True,
    budget=Budget(rivals=1, subsumptions=1),
)
WITH_LOSERS = World(
    "with losers",
    "a task has a second attempt, which pre-commits at any time and is in no decision",
    (MEMORY,),
    branches=2,
    losers=1,
    budget=Budget(crashes=1, declines=1),
)
BY_HAND = World(
    "by hand",
    "somebody rolls a prepared branch back",
    (MYSQL_80,),
    branches=2,
    budget=Budget(crashes=1, rollbacks=1),
)

COPY_BESIDE = World(
    "copy beside",
    "a driver over a copy of the folder starts while the one over the original is anywhere; "
    "one set of targets",
    (MEMORY, MEMORY),
    head_start=True,
    budget=Budget(folders=1),
)
RESTORED_TARGET = World(
    "target restored",
    "a target is restored from a backup of any age, or swapped for an empty one, "
    "under a running driver or between two",
    (MEMORY, MEMORY),
    checkpoints=3,
    head_start=True,
    budget=Budget(crashes=1, target_restores=1),
)
SWAPPED = World(
    "swapped",
    "a target is swapped for an empty one, under a running driver or between two",
    (MEMORY, MEMORY),
    checkpoints=3,
    head_start=True,
    budget=Budget(crashes=1, swaps=1),
)

LOST_PIECES = World(
    "lost pieces",
    "a piece is rolled back by hand, given up or written again beside a driver, and comes back",
    (MEMORY,),
    checkpoints=1,
    budget=Budget(crashes=1, rollbacks=1, repairs=1, returns=1),
)
LOST_FOLDER = World(
    "lost folder",
    "the folder is lost, and what the targets have is adopted",
    (MEMORY, MEMORY),
    checkpoints=2,
    budget=Budget(crashes=2, losses=1, repairs=1),
)

SAVED = World(
    "saved",
    "a savepoint is made at any time, finished, and restored in the job's folder or beside an "
    "empty one, too old or not",
    (MEMORY,),
    checkpoints=3,
    max_concurrent=2,
    budget=Budget(crashes=1, savepoints=1, moves=1, saved_restores=1),
)
SAVED_BESIDE = World(
    "saved beside a driver",
    "the same with two sinks and a driver that lives",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(rivals=1, savepoints=1, saved_restores=1),
)
REWOUND = World(
    "rewound",
    "both sinks are ahead of a savepoint, and take back what is after it; the driver dies "
    "anywhere, and the restore is repeated",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=1, rewinds=2),
)
REWOUND_TOLD = replace(
    REWOUND, name="rewound, told", about="the same, and a sink tells of half", tells_half=True
)
REWOUND_BESIDE = World(
    "rewound beside a driver",
    "the same while another driver is anywhere",
    (MEMORY,),
    checkpoints=3,
    head_start=True,
    budget=Budget(rivals=1, savepoints=1, rewinds=1),
)
REWOUND_ELSEWHERE = World(
    "rewound elsewhere",
    "a rewind that has begun, and another savepoint than the one that it goes back to",
    (MEMORY,),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=2, rewinds=2),
)
SAVED_OVER_SWAPPED = World(
    "saved, swapped",
    "a savepoint is restored beside a target that is swapped for an empty one",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=1, savepoints=1, saved_restores=1, swaps=1),
)
FAILED_OVER = World(
    "failed over",
    "a target is swapped for an older copy of it, on another server, and checkpoints are not kept",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=1, failovers=1, folds=1),
)
FORKED = World(
    "forked",
    "another job begins with a savepoint, beside a job that lives, has died or goes on",
    (MEMORY, MEMORY),
    checkpoints=2,
    max_concurrent=2,
    budget=Budget(crashes=1, savepoints=1, forks=1),
)

HALF_REWOUND_SWAPPED = World(
    "half rewound, swapped",
    "a rewind has begun, and a target loses all of its rows",
    (MEMORY,),
    tells_half=True,
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=1, rewinds=1, swaps=1),
)
HALF_REWOUND_FORGOTTEN = World(
    "half rewound, forgotten",
    "a rewind has begun, and what it goes back to is gone",
    (MEMORY,),
    tells_half=True,
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=1, rewinds=1, deletions=1, folds=1),
)
HALF_REWOUND_FOLDER_RESTORED = World(
    "half rewound, folder restored",
    "a rewind has begun that cannot be finished, and the folder is restored from a copy, of before "
    "it or not",
    (MEMORY,),
    finishes_rewinds=False,
    tells_half=True,
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=1, rewinds=1, copies=1, folder_restores=1),
)
AHEAD_FOLDER_RESTORED = World(
    "ahead, folder restored",
    "the folder is restored from a copy in which a sink is ahead; no sink takes rows back",
    (MEMORY, MEMORY),
    ahead=True,
    can_rewind=False,
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=1, copies=1, folder_restores=1),
)
FOLDER_RESTORED = World(
    "folder restored",
    "the folder is restored from a copy, and a target from a backup, or is swapped",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=1, copies=1, folder_restores=1, swaps=1),
)

SAVED_DIED = replace(
    SAVED,
    name="saved, died",
    about="a restore beside an empty folder dies, and a start follows that does not restore",
    budget=Budget(crashes=2, savepoints=1, moves=1, saved_restores=1),
)

ABANDONED = World(
    "abandoned",
    "a rewind of both sinks is given up at any time, by an operator who may die, while its driver "
    "lives or not",
    (MEMORY, MEMORY),
    checkpoints=2,
    head_start=True,
    budget=Budget(crashes=2, savepoints=1, rewinds=1, repairs=1),
)
ABANDONED_TOLD = replace(
    ABANDONED, name="abandoned, told", about="the same, and a sink tells of half", tells_half=True
)
ABANDONED_LATER = replace(
    ABANDONED,
    name="abandoned, rewound again",
    about="the rewind that was given up is asked for again",
    servers=(MEMORY,),
    budget=Budget(crashes=2, savepoints=1, rewinds=2, repairs=1),
)

SMALL = (
    WHOLE,
    TWO_DRIVERS,
    OVERTAKEN,
    POWER_LOSS,
    FOLDED,
    FOLDED_TWICE,
    RESTORED,
    COPIED,
    ON_MYSQL_80,
    ON_MARIADB,
    ON_MYSQL_97,
    TWO_ON_MYSQL_80,
    TWO_ON_MARIADB,
    MIXED,
    SAVED_DIED,
    SUBSUMED,
    WITH_LOSERS,
    BY_HAND,
    COPY_BESIDE,
    RESTORED_TARGET,
    SWAPPED,
    LOST_PIECES,
    LOST_FOLDER,
    SAVED,
    SAVED_BESIDE,
    REWOUND,
    REWOUND_TOLD,
    REWOUND_BESIDE,
    REWOUND_ELSEWHERE,
    ABANDONED,
    ABANDONED_TOLD,
    ABANDONED_LATER,
    HALF_REWOUND_SWAPPED,
    HALF_REWOUND_FORGOTTEN,
    HALF_REWOUND_FOLDER_RESTORED,
    SAVED_OVER_SWAPPED,
    FAILED_OVER,
    FORKED,
    AHEAD,
    AHEAD_BESIDE,
    AHEAD_FOLDER_RESTORED,
    FOLDER_RESTORED,
)


def _larger(world: World, name: str, budget: Budget, **changes: Any) -> World:
    return replace(
        world, name=name, about=f"{world.name}, with more of it", budget=budget, **changes
    )


LARGE = (
    _larger(COPY_BESIDE, "copy beside, restarted", Budget(folders=1, crashes=1), checkpoints=3),
    _larger(
        RESTORED_TARGET,
        "target restored, commits in a queue",
        Budget(target_restores=1, crashes=1, subsumptions=1),
        max_concurrent=2,
    ),
    _larger(
        LOST_PIECES,
        "lost pieces, repaired twice",
        Budget(crashes=1, rollbacks=1, repairs=2, returns=1),
        checkpoints=2,
    ),
    _larger(LOST_FOLDER, "lost folder, repaired twice", Budget(crashes=2, losses=1, repairs=2)),
    _larger(WHOLE, "whole, declined", Budget(crashes=1, declines=1)),
    _larger(TWO_DRIVERS, "two drivers, crashed", Budget(rivals=1, crashes=1)),
    _larger(
        POWER_LOSS, "power loss, checked", Budget(rivals=1, power_losses=1), splits_append=True
    ),
    _larger(
        RESTORED, "restored, crashed", Budget(rivals=1, restores=1, crashes=1), max_concurrent=2
    ),
    _larger(COPIED, "copied, two sinks", COPIED.budget, servers=(MEMORY, MEMORY)),
    _larger(ON_MYSQL_80, "on MySQL 8.0, two branches", ON_MYSQL_80.budget, branches=2),
    _larger(ON_MARIADB, "on MariaDB, two branches", ON_MARIADB.budget, branches=2),
    _larger(
        TWO_ON_MYSQL_80,
        "two drivers on MySQL 8.0, crashed",
        Budget(rivals=1, crashes=1, server_crashes=1),
    ),
    _larger(
        TWO_ON_MARIADB,
        "two drivers on MariaDB, crashed",
        Budget(rivals=1, crashes=1, server_crashes=1),
    ),
    _larger(REWOUND, "rewound, three checkpoints", REWOUND.budget, checkpoints=3),
    _larger(FOLDED_TWICE, "folded twice, two checkpoints", FOLDED_TWICE.budget, checkpoints=2),
)
