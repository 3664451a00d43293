"""One tiny job, one SIGKILL: what the tests do, and what the mutants are run through."""

from __future__ import annotations

from integration.nemesis import Ended, held_at
from integration.plain import source
from integration.plain.arena import BATCH, Arena, State
from integration.plain.points import Leaves, in_checkpoint, in_recovery, in_workers
from integration.plain.targets import Pieces

PIECE = BATCH // source.PARTITIONS


def expected(arena: Arena, number: int, leaves: Leaves) -> State:
    """The state that a kill in checkpoint `number` leaves; all before it are committed."""

    def pieces(prepared: int, visible: int) -> Pieces:
        return Pieces(prepared, leaves.begun, number * BATCH + visible * PIECE)

    targets = [pieces(*leaves.first), *(pieces(*leaves.rest) for _ in arena.kinds[1:])]
    return State(number + leaves.decided, number + leaves.committed, number + 1, number, tuple(targets))


def killed(ended: Ended, point: str) -> None:
    """It was SIGKILL, and there."""
    assert ended.killed, f"exit code {ended.code}:\n{ended.output}"
    assert {*ended.points} == {point}, f"{point} was planned, {ended.points} acted:\n{ended.output}"


def die_in_workers(arena: Arena, point: str, number: int) -> None:
    """Every worker of checkpoint `number` is held at a point; then all processes are killed at once."""
    arena.produce(number + 1)
    driver = arena.start(held_at([point], "*"), arm_from=number)
    everyone = source.PARTITIONS * len(arena.kinds)
    try:
        driver.wait_for(lambda: driver.points() == [point] * everyone, f"{everyone} workers at {point}")
    finally:
        ended = driver.kill()
    killed(ended, point)
    assert arena.state() == expected(arena, number, in_workers(arena.kinds)[point])


def die_in_checkpoint(arena: Arena, point: str, number: int, leaves: Leaves | None = None) -> None:
    """The driver kills itself at a point of checkpoint `number`."""
    arena.produce(number + 1)
    killed(arena.run(f"{point}=kill", arm_from=number), point)
    assert arena.state() == expected(arena, number, leaves or in_checkpoint(arena.kinds)[point])


def die_in_recovery(arena: Arena, point: str, number: int) -> None:
    """A driver leaves checkpoint `number` unfinished, the next one kills itself at a point of its recovery."""
    left_by, leaves = in_recovery(arena.kinds)[point]
    die_in_checkpoint(arena, left_by, number)
    killed(arena.run(f"{point}=kill"), point)
    assert arena.state() == expected(arena, number, leaves)


def lose_a_worker(arena: Arena, point: str, number: int) -> Ended:
    """A worker of checkpoint `number` kills itself at a point; the driver lives and takes the checkpoint again."""
    arena.produce(number + 1)
    ended = arena.run(f"{point}=kill", arm_from=number)
    assert ended.points == [point], ended.output
    assert ended.code == 0, f"exit code {ended.code}:\n{ended.output}"
    assert f"CheckpointDeclined(job='{arena.job}', checkpoint={number}" in ended.output, ended.output
    arena.verify()
    return ended
