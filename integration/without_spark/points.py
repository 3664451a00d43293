"""What a kill at each crash point leaves, as a table: a failpoint that drifts across the decision
does not match it.

A checkpoint has two pieces in each sink. `first` is what the sink that commits first holds of it,
(prepared pieces, pieces whose rows are visible), `rest` what each other one holds, and `last` what
the last of three holds, if that is something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NONE, PREPARED, VISIBLE = (0, 0), (2, 0), (0, 2)


@dataclass(frozen=True)
class Leaves:
    """What a kill leaves of the checkpoint that was under way.

    Attributes:
        decided: whether the log says that it is.
        first: pieces in the first sink: prepared, visible.
        rest: the same for every other sink.
        committed: whether the log says that it is.
        begun: pieces of files that are there and not prepared.
        last: the same for the last sink; None for that of `rest`.
    """

    decided: bool
    first: tuple[int, int] = NONE
    rest: tuple[int, int] = NONE
    committed: bool = False
    begun: int = 0
    last: tuple[int, int] | None = None


# Where a worker is: all workers are held there, then the driver and all of them are killed at once.
IN_WORKERS = {
    "E01": Leaves(decided=False),
    "C04": Leaves(decided=False),
    "C05": Leaves(False, PREPARED, PREPARED),
    "C03": Leaves(False, PREPARED, PREPARED),
    "E02": Leaves(False, PREPARED, PREPARED),
}
# Where the driver is in a checkpoint: it kills itself there.
IN_CHECKPOINT = {
    "C01": Leaves(decided=False),
    "C02": Leaves(decided=False),
    **{point: Leaves(False, PREPARED, PREPARED) for point in ("C06", "C07", "C08", "C09")},
    **{point: Leaves(True, PREPARED, PREPARED) for point in ("C10", "C11", "C12")},
    "C13": Leaves(True, (1, 1), PREPARED),
    "C14": Leaves(True, (1, 1), PREPARED),
    "C15": Leaves(True, VISIBLE, PREPARED),
    "C16": Leaves(True, VISIBLE, VISIBLE, committed=True),
    "C17": Leaves(True, VISIBLE, VISIBLE, committed=True),
}
# Where the driver is in its recovery: the point at which the driver before it was killed, and
# what is left then.
IN_RECOVERY = {
    "C18": ("C11", Leaves(True, PREPARED, PREPARED)),
    "C12": ("C11", Leaves(True, PREPARED, PREPARED)),
    "C13": ("C11", Leaves(True, (1, 1), PREPARED)),
    "C14": ("C11", Leaves(True, (1, 1), PREPARED)),
    "C15": ("C11", Leaves(True, VISIBLE, PREPARED)),
    "C19": ("C11", Leaves(True, VISIBLE, VISIBLE, committed=True)),
    "C22": ("C06", Leaves(False, PREPARED, PREPARED)),
    "C20": ("C06", Leaves(False, (1, 0), PREPARED)),
}

# A chain: one worker is held there, at the hit of its first or its second sink, and the other has
# prepared its pieces; then all are killed.
_HELD_AT_FIRST = Leaves(False, (1, 0), (1, 0))
_BETWEEN = Leaves(False, PREPARED, (1, 0))
_HELD_AT_SECOND = Leaves(False, PREPARED, PREPARED)
IN_CHAIN = {
    ("E01", 1): _HELD_AT_FIRST,
    ("E01", 2): _HELD_AT_FIRST,
    ("C04", 1): _HELD_AT_FIRST,
    ("C05", 1): _BETWEEN,
    ("C03", 1): _BETWEEN,
    ("E02", 1): _BETWEEN,
    ("C04", 2): _BETWEEN,
    ("C05", 2): _HELD_AT_SECOND,
    ("C03", 2): _HELD_AT_SECOND,
    ("E02", 2): _HELD_AT_SECOND,
}
# The second sink is of files.
IN_CHAIN_WITH_FILES = {
    **{at: replace(leaves, begun=2 - leaves.rest[0]) for at, leaves in IN_CHAIN.items()},
    ("F01", 1): replace(_HELD_AT_FIRST, begun=1),
    ("F02", 1): _HELD_AT_SECOND,
}

# Files: a piece is there before it is prepared; all files of a checkpoint are visible before the
# first proof is given.
FILES_IN_WORKERS = IN_WORKERS | {
    "E01": Leaves(decided=False, begun=2),
    "F01": Leaves(decided=False, begun=2),
    "C04": Leaves(decided=False, begun=2),
    "F02": Leaves(False, PREPARED),
}
_FILES_IN_COMMIT = {
    "C12": Leaves(True, PREPARED),
    "F03": Leaves(True, (2, 1)),
    "F04": Leaves(True, (2, 2)),
    "C13": Leaves(True, (1, 2)),
    "C14": Leaves(True, VISIBLE),
    "C15": Leaves(True, VISIBLE),
}
FILES_IN_CHECKPOINT = IN_CHECKPOINT | _FILES_IN_COMMIT
FILES_IN_RECOVERY = IN_RECOVERY | {
    point: ("C11", leaves) for point, leaves in _FILES_IN_COMMIT.items()
}
FILES_IN_RECOVERY["F06"] = ("C06", Leaves(False, PREPARED, PREPARED))

# Iceberg: pieces as of files; all of a checkpoint are visible at once, and only then their folders
# are removed.
_ICEBERG_IN_COMMIT = {
    "C12": Leaves(True, PREPARED),
    "C13": Leaves(True, PREPARED),
    "D01": Leaves(True, PREPARED),
    "D02": Leaves(True, (2, 2)),
    "C14": Leaves(True, (2, 2)),
    "C15": Leaves(True, VISIBLE),
}
ICEBERG_IN_CHECKPOINT = IN_CHECKPOINT | _ICEBERG_IN_COMMIT
ICEBERG_IN_RECOVERY = IN_RECOVERY | {
    point: ("C11", leaves) for point, leaves in _ICEBERG_IN_COMMIT.items()
}
ICEBERG_IN_RECOVERY["F06"] = ("C06", Leaves(False, PREPARED))

# Rows in a staging topic: each piece is copied in a transaction of its own.
_COPY = {"K01": Leaves(True, PREPARED), "K02": Leaves(True, PREPARED)}
STAGED_KAFKA_IN_CHECKPOINT = IN_CHECKPOINT | _COPY
STAGED_KAFKA_IN_RECOVERY = IN_RECOVERY | {point: ("C11", leaves) for point, leaves in _COPY.items()}

# Paimon: as Iceberg; what was committed is noted before the pieces are moved away.
_NOTED = {"F04": Leaves(True, (2, 2))}
PAIMON_IN_CHECKPOINT = ICEBERG_IN_CHECKPOINT | _NOTED
PAIMON_IN_RECOVERY = ICEBERG_IN_RECOVERY | {
    point: ("C11", leaves) for point, leaves in _NOTED.items()
}

# Three sinks: a topic, a table of MySQL, and one of Iceberg, whose pieces are visible at once. The
# hit of a point says which of them commits.
IN_THREE = {
    ("C06", 1): Leaves(False, PREPARED, PREPARED),
    ("C11", 1): Leaves(True, PREPARED, PREPARED),
    ("C13", 1): Leaves(True, (1, 1), PREPARED),
    ("C15", 1): Leaves(True, VISIBLE, PREPARED),
    ("C12", 2): Leaves(True, VISIBLE, PREPARED),
    ("C13", 2): Leaves(True, VISIBLE, (1, 1), last=PREPARED),
    ("C15", 2): Leaves(True, VISIBLE, VISIBLE, last=PREPARED),
    ("D01", 1): Leaves(True, VISIBLE, VISIBLE, last=PREPARED),
    ("D02", 1): Leaves(True, VISIBLE, VISIBLE, last=(2, 2)),
    ("C15", 3): Leaves(True, VISIBLE, VISIBLE),
    ("C16", 1): Leaves(True, VISIBLE, VISIBLE, committed=True),
}
THREE_IN_RECOVERY = {
    ("C20", 1): ("C06", Leaves(False, (1, 0), PREPARED)),
    ("C20", 3): ("C06", Leaves(False, NONE, (1, 0), last=PREPARED)),
    **{
        at: ("C11", leaves) for at, leaves in IN_THREE.items() if at[0] not in ("C06", "C11", "C16")
    },
}

_STAGED = ("files", "iceberg", "paimon")


def is_staged(kind: str) -> bool:
    """Return whether the pieces of a kind of target are folders from the first row on."""
    return _family(kind) in _STAGED


def _family(kind: str) -> str:
    """Return the kind of target, whatever catalog it is in."""
    return "iceberg" if kind.startswith("iceberg_") else kind


# There is nothing to delete before the second checkpoint.
NEEDS_OLDER = {"C17"}


_IN_CHECKPOINT = {
    "files": FILES_IN_CHECKPOINT,
    "iceberg": ICEBERG_IN_CHECKPOINT,
    "staged_kafka": STAGED_KAFKA_IN_CHECKPOINT,
    "paimon": PAIMON_IN_CHECKPOINT,
}
_IN_RECOVERY = {
    "files": FILES_IN_RECOVERY,
    "iceberg": ICEBERG_IN_RECOVERY,
    "staged_kafka": STAGED_KAFKA_IN_RECOVERY,
    "paimon": PAIMON_IN_RECOVERY,
}


def in_workers(kinds: tuple[str, ...]) -> dict[str, Leaves]:
    """The table of a job with such targets."""
    return FILES_IN_WORKERS if is_staged(kinds[0]) else IN_WORKERS


def in_checkpoint(kinds: tuple[str, ...]) -> dict[str, Leaves]:
    """The table of a job with such targets."""
    return _IN_CHECKPOINT.get(_family(kinds[0]), IN_CHECKPOINT)


def in_recovery(kinds: tuple[str, ...]) -> dict[str, tuple[str, Leaves]]:
    """The table of a job with such targets."""
    return _IN_RECOVERY.get(_family(kinds[0]), IN_RECOVERY)
