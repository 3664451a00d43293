"""States in which a job refuses to start, and that no `twophase repair` leads out of: it says
what to do by hand.

Each is provoked over a real table and real files, what the error says is done, and the job goes on
with exactly its rows. `integration/repair/test_ways_on.py` walks through those that a
repair leads out of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.memory_driver import (
    Driver,
    completed_of,
    open_sinks,
    restoring,
)
from harness.selection import representatives
from integration.mysql.sink_harness import remade, xid_sql
from integration.repair.world import World
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    PreflightError,
    RejectedRowsError,
    RestoreRefusedError,
    StopJobError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.sinks.common.staging.names import file_name
from twophase.sinks.file.sink import FileSink
from twophase.testing.services import MySqlService

pytestmark = pytest.mark.part("repair")

Step = Callable[[World], object]


@dataclass(frozen=True)
class Way:
    """A state in which the job refuses to start.

    Attributes:
        provoke: brings a new job into it.
        error: what a start raises.
        remedy: words of its remedy: what to do.
        out: does it.
        facts: the ids that the table has then.
        lake: those that the folder of files has.
        start: the start that is refused.
    """

    provoke: Step
    error: type[TwoPhaseError]
    remedy: str
    out: Step
    facts: list[int]
    lake: list[int]
    start: Step = World.start


def two_checkpoints(world: World) -> None:
    """0 and 1 are committed."""
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)


def decided(world: World) -> None:
    """0 is committed, 1 is decided and in no target."""
    world.driver().recover().run(0)
    world.dies(1, "C11")


def nothing(world: World) -> None:
    """The next start is as it was: with the old option, sink or driver."""


def start_with_table(name: str) -> Step:
    """A start whose options name another table."""

    def start(world: World) -> None:
        with ExitStack() as left:
            lake = FileSink(path=str(world.lake), format="json")
            sinks = open_sinks({"facts": world.table.new_sink(table=name), "lake": lake})
            for sink in sinks.values():
                left.callback(sink.close)
            Driver(world.folder, {}, sinks=sinks).recover()

    return start


def start_without_the_table(world: World) -> None:
    """A start of the job with only the sink of the files."""
    with ExitStack() as left:
        sinks = open_sinks({"lake": FileSink(path=str(world.lake), format="json")})
        left.callback(sinks["lake"].close)
        Driver(world.folder, {}, sinks=sinks).recover()


def drop_and_create(world: World) -> None:
    two_checkpoints(world)
    remade(world.table, "DROP TABLE target", "CREATE TABLE target (id BIGINT) ENGINE = InnoDB")


def give_the_table_another_engine(world: World) -> None:
    two_checkpoints(world)
    world.table.sql("ALTER TABLE target ENGINE = MyISAM")


def delete_the_row_and_go_on(world: World) -> None:
    world.table.sql("DELETE FROM target WHERE id = 13")
    world.start().run(1)


def make_another_table(world: World) -> None:
    two_checkpoints(world)
    world.table.sql("CREATE TABLE other (id BIGINT) ENGINE = InnoDB")


def restore(world: World, folder: str = "job", number: int = 1) -> None:
    """A start with `restore.path` at a checkpoint in this folder; of the job's
    own it is the newest.
    """
    found = restoring(completed_of(world.root / folder, number), committed=True)
    driver = world.driver()
    driver.coordinator.recover(restore=found)
    driver.coordinator.begin_lineage(found.lineage)


def go_beyond_a_copy(world: World) -> None:
    """A copy of the folder, in `backup`, ends at checkpoint 0."""
    driver = world.driver().recover()
    driver.run(0)
    world.back_up_folder()
    driver.run(1)


def restore_from_the_copy(world: World) -> None:
    restore(world, "backup", 0)


def commit_by_hand(world: World) -> None:
    """The driver dies before it decides 1, and somebody commits one of its branches."""
    driver = world.driver().recover()
    driver.run(0)
    driver.dies_undecided(1)
    [first, _] = sorted(driver.sinks["facts"].in_doubt(), key=lambda piece: piece.subtask.index)
    world.table.sql(f"XA COMMIT {xid_sql(first)}")
    assert world.table.ids() == list(range(15))


def delete_what_was_committed(world: World) -> None:
    """Rows and proof together, as the error says; then checkpoint 1 is written again.

    Its other branch is rolled back first: this table has no key, so the DELETE would wait for the
    locks of that branch.
    """
    [other] = world.driver().sinks["facts"].in_doubt()
    world.table.sql(f"XA ROLLBACK {xid_sql(other)}")
    world.table.sql("DELETE FROM target WHERE id >= 10")
    world.table.sql("DELETE FROM twophase_ledger WHERE checkpoint = 1")
    world.start().run(1)


def foreign_file(world: World) -> Path:
    """Where somebody else's file takes the name of a file of a staged piece."""
    piece = completed_of(world.folder, 1).committables["lake"][0]
    return world.lake / file_name(piece.transaction, piece.subtask, 0, ".json")


def put_foreign_file(world: World) -> None:
    decided(world)
    foreign_file(world).write_text("theirs")


def refuse_rows(world: World) -> None:
    """Somebody makes a key of the ids, and writes one that checkpoint 1 has."""
    world.driver().recover().run(0)
    world.table.sql("ALTER TABLE target ADD UNIQUE KEY (id)")
    world.table.sql("INSERT INTO target VALUES (13)")


ALL = list(range(20))
WAYS = {
    "the table was dropped and created again": Way(
        drop_and_create, TargetChangedError, "begin there with restore.path", restore, [], ALL
    ),
    "the options name another table": Way(
        make_another_table,
        TargetChangedError,
        "name the old one",
        nothing,
        ALL,
        ALL,
        start=start_with_table("other"),
    ),
    "an undecided piece was committed by hand": Way(
        commit_by_hand,
        CheckpointMissingError,
        "delete their rows",
        delete_what_was_committed,
        ALL,
        ALL,
    ),
    "a sink left the job while its pieces wait": Way(
        decided, StopJobError, "put the sink back", nothing, ALL, ALL, start=start_without_the_table
    ),
    "restore.path names an older checkpoint": Way(
        go_beyond_a_copy,
        RestoreRefusedError,
        "without restore.path",
        nothing,
        ALL,
        ALL,
        start=restore_from_the_copy,
    ),
    "a foreign file has the name of a piece's file": Way(
        put_foreign_file,
        StopJobError,
        "move that file away",
        lambda world: foreign_file(world).unlink(),
        ALL,
        ALL,
    ),
    "the target lacks what the sink needs": Way(
        give_the_table_another_engine,
        PreflightError,
        "ENGINE = InnoDB",
        lambda world: world.table.sql("ALTER TABLE target ENGINE = InnoDB"),
        ALL,
        ALL,
    ),
    "an option is wrong": Way(
        two_checkpoints,
        ConfigError,
        "correct the option 'table'",
        nothing,
        ALL,
        ALL,
        start=start_with_table("nothing"),
    ),
    "the target refuses rows": Way(
        refuse_rows,
        RejectedRowsError,
        "the rows that are in the table already",
        delete_the_row_and_go_on,
        ALL,
        ALL,
        start=lambda world: world.start().run(1),
    ),
}


@pytest.fixture
def world(tmp_path: Path, mysql: MySqlService) -> Iterator[World]:
    with ExitStack() as left:
        yield World(tmp_path, mysql, left)


def goes_on(world: World, facts: list[int], lake: list[int]) -> None:
    """The next checkpoint is written once, and the start after it finds nothing wrong."""
    world.start_and_write(range(20, 30))
    world.start()
    assert world.ids() == ([*facts, *range(20, 30)], [*lake, *range(20, 30)])


@pytest.mark.parametrize(
    "name",
    representatives(
        WAYS,
        ["an undecided piece was committed by hand", "a sink left the job while its pieces wait"],
    ),
)
def test_what_the_error_says_leads_out_of_it(world: World, name: str) -> None:
    way = WAYS[name]
    way.provoke(world)
    for _ in range(2):  # a start that was refused has accepted nothing
        with pytest.raises(way.error) as caught:
            way.start(world)
        assert way.remedy in caught.value.remedy
    way.out(world)
    goes_on(world, way.facts, way.lake)


@pytest.mark.proof
def test_a_driver_that_was_overtaken_is_left_stopped(world: World) -> None:
    """Another one has started meanwhile, and writes the checkpoint that this one
    was about to write.
    """
    older = world.driver().recover()
    older.run(0)
    world.start().run(1)
    with pytest.raises(FencedError):
        older.run(1)
    goes_on(world, ALL, ALL)
