"""A MySQL target that loses what is committed in it: restored from a backup or swapped, under a
running job or between two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.memory_driver import SCHEMA, Driver, completed_of, open_sinks, restoring
from harness.selection import representatives
from integration.mysql.sink_harness import TABLES, MySqlHarness, Server, created, remade
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import DeclinedError, FenceLostError, PreflightError, TargetChangedError
from twophase.testing.services import MySqlService

pytestmark = pytest.mark.part("mysql")


class Target(MySqlHarness):
    """A table of ids and its bookkeeping, which can be restored together."""

    def back_up(self) -> None:
        for table in TABLES:
            self.sql(f"DROP TABLE IF EXISTS backup_{table}")
            self.sql(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}")

    def restore_backup(self) -> None:
        for table in TABLES:
            self.sql(f"DELETE FROM {table}")
            self.sql(f"INSERT INTO {table} SELECT * FROM backup_{table}")


@pytest.fixture
def target(sql_server_in_proof: Server) -> Target:
    return Target(sql_server_in_proof, "id BIGINT PRIMARY KEY", SCHEMA)


@pytest.fixture
def new_driver(target: Target, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    with ExitStack() as left:

        def make() -> Driver:
            sinks = open_sinks({"facts": target.new_sink()})
            left.callback(sinks["facts"].close)
            return Driver(tmp_path / "job", {}, sinks=sinks)

        yield make


def no_rows(pending: PendingCheckpoint) -> None:
    pending.acknowledge("facts", ())


def test_a_target_restored_between_two_triggers_gets_nothing_more(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    driver.run(0)
    target.back_up()
    driver.run(1)
    driver.run(2)
    target.restore_backup()
    with pytest.raises(TargetChangedError, match="Checkpoints from 1 to 2 are missing in it"):
        driver.run(3)
    assert target.ids() == list(range(10))
    with pytest.raises(TargetChangedError, match=r"checkpoint 2 .* knows up to 0"):
        new_driver().recover()


def test_a_backup_of_before_the_drivers_fence_is_nobodys_takeover(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    new_driver().recover().run(0)
    target.back_up()
    driver = new_driver().recover()
    driver.run(1)
    target.restore_backup()
    with pytest.raises(FenceLostError, match="the target was restored from a backup"):
        driver.run(2)
    assert target.ids() == list(range(10))
    with pytest.raises(TargetChangedError, match=r"checkpoint 1 .* knows up to 0"):
        driver.recover()


def test_nothing_is_written_under_metadata_tables_that_were_made_again(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    """Branches of the old ones would be nobody's, and would hold their locks for ever."""
    driver = new_driver().recover()
    driver.run(0)
    target.sql("UPDATE twophase_schema SET id = UUID()")
    with pytest.raises(TargetChangedError, match="are not those that the sink was opened with"):
        driver.recover()
    new_driver().recover().run(1)
    assert target.ids() == list(range(20))


def test_rows_of_long_ago_are_missed_when_the_newest_checkpoints_had_none(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    target.back_up()
    driver.run(0)
    for number in range(1, 4):
        driver.run(number, no_rows)
    target.restore_backup()
    with pytest.raises(TargetChangedError, match=r"checkpoint 0 .* knows none"):
        new_driver().recover()


def test_proofs_that_were_collapsed_are_found(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    for number in range(17):  # the sink is told to collapse its proofs after the sixteenth
        driver.run(number)
    assert target.sql("SELECT checkpoint FROM twophase_high_water") == [(15,)]
    again = new_driver().recover()
    again.run(17)
    assert target.ids() == list(range(180))


# -- the table under its name ----------------------------------------------------------------------


DROPPED = ("DROP TABLE target", "CREATE TABLE target (id BIGINT PRIMARY KEY) ENGINE = InnoDB")


def test_a_table_that_was_dropped_and_recreated_stops_the_start(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    new_driver().recover().run(0)
    remade(target, *DROPPED)
    with pytest.raises(TargetChangedError, match="dropped and recreated"):
        new_driver().recover()
    with pytest.raises(TargetChangedError, match="dropped and recreated"):
        new_driver().recover()  # a start that was refused has accepted nothing
    assert target.ids() == []


def test_a_table_that_is_dropped_and_recreated_under_a_running_job_gets_nothing(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    driver.run(0)
    remade(target, *DROPPED)
    with pytest.raises(TargetChangedError, match="dropped and recreated"):
        driver.run(1)
    assert target.ids() == []


def test_another_table_over_the_old_folder_stops_the_start(
    target: Target, new_driver: Callable[[], Driver], tmp_path: Path
) -> None:
    new_driver().recover().run(0)
    target.sql("CREATE TABLE other (id BIGINT PRIMARY KEY) ENGINE = InnoDB")
    sinks = open_sinks({"facts": target.new_sink(table="other")})
    try:
        with pytest.raises(TargetChangedError, match="is another table"):
            Driver(tmp_path / "job", {}, sinks=sinks).recover()
    finally:
        sinks["facts"].close()


def test_a_restore_says_that_another_table_is_meant(
    target: Target, new_driver: Callable[[], Driver], tmp_path: Path
) -> None:
    new_driver().recover().run(0)
    remade(target, *DROPPED)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    driver = new_driver()
    driver.coordinator.recover(restore=restore)
    driver.coordinator.begin_lineage(restore.lineage)
    driver.run(1)
    new_driver().recover().run(2)
    assert target.ids() == list(range(10, 30))


@pytest.mark.parametrize(
    "statement",
    representatives(
        [
            "OPTIMIZE TABLE target",
            "ALTER TABLE target ADD COLUMN note INT",
            "ALTER TABLE target ENGINE = InnoDB",
        ],
        {"OPTIMIZE TABLE target", "ALTER TABLE target ADD COLUMN note INT"},
    ),
)
@pytest.mark.parametrize("running", [True, False], ids=["under a running job", "between two"])
def test_a_table_that_is_rebuilt_is_the_same(
    target: Target, new_driver: Callable[[], Driver], statement: str, running: bool
) -> None:
    driver = new_driver().recover()
    driver.run(0)
    if "note" in statement:
        target.sql(statement)
    else:
        remade(target, statement)
    if not running:
        driver = new_driver().recover()
    elif "note" in statement:
        with pytest.raises(DeclinedError, match="column 'note' is int"):
            driver.run(1)
        driver.recover()
    driver.run(1)
    new_driver().recover().run(2)
    assert target.ids() == list(range(30))


EMPTY = {
    "OPTIMIZE": "OPTIMIZE TABLE target",
    "ENGINE": "ALTER TABLE target ENGINE = InnoDB",
    "COMMENT": "ALTER TABLE target COMMENT = 'outbox'",
    "INDEX": "CREATE INDEX i ON target (id)",
    "DROP": "; ".join(DROPPED),
}


@pytest.mark.parametrize("rebuilds", representatives([*EMPTY], {"OPTIMIZE"}))
@pytest.mark.parametrize("running", [True, False], ids=["under a running job", "between two"])
def test_a_table_that_was_emptied_and_rebuilt_goes_on_after_the_statement_that_is_named(
    target: Target, new_driver: Callable[[], Driver], rebuilds: str, running: bool
) -> None:
    """Its consumer takes the rows out; the statement is for one start."""
    driver = new_driver().recover()
    driver.run(0)
    target.sql("DELETE FROM target")
    undone = ("DROP INDEX i ON target",) if rebuilds == "INDEX" else ()
    remade(target, *EMPTY[rebuilds].split("; "), *undone)
    stopped = (lambda: driver.run(1)) if running else (lambda: new_driver().recover())
    with pytest.raises(TargetChangedError, match="is empty") as caught:
        stopped()
    [accept] = re.findall(r"(UPDATE \S+ SET .* AND sink = '\w+')", caught.value.what)
    target.sql(accept)
    again = new_driver().recover()
    again.run(2 if running else 1)
    assert target.ids() == ([*range(10, 30)] if running else [*range(10, 20)])
    target.sql("DELETE FROM target")
    remade(target, *DROPPED)
    with pytest.raises(TargetChangedError, match="is empty"):
        new_driver().recover()


def test_a_dump_that_is_loaded_again_is_the_same(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    new_driver().recover().run(0)
    target.sql("CREATE TABLE dump AS SELECT * FROM target")
    remade(target, *DROPPED)
    target.sql("INSERT INTO target SELECT * FROM dump")
    new_driver().recover().run(1)
    assert target.ids() == list(range(20))


@pytest.mark.proof
def test_a_table_that_was_dropped_recreated_and_filled_by_others_is_not_noticed(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    """Nothing tells it from a dump that was loaded again."""
    new_driver().recover().run(0)
    remade(target, *DROPPED)
    target.sql("INSERT INTO target VALUES (99)")
    new_driver().recover().run(1)
    assert target.ids() == [*range(10, 20), 99]


def test_an_old_copy_of_the_rows_without_the_bookkeeping_is_not_noticed(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    """The proofs are there, the rows are not: the bookkeeping tables go with the data,
    or nobody can tell.
    """
    driver = new_driver().recover()
    driver.run(0)
    target.sql("CREATE TABLE dump AS SELECT * FROM target")
    driver.run(1)
    target.sql("DELETE FROM target")
    target.sql("INSERT INTO target SELECT * FROM dump")
    new_driver().recover().run(2)
    assert target.ids() == [*range(10), *range(20, 30)]


def test_an_exchange_of_partitions_is_somebody_s_delete(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    """The server says nothing of it: rows that are taken out by SQL are the
    business of who does that.
    """
    target.sql(
        "ALTER TABLE target PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN MAXVALUE)"
    )
    new_driver().recover().run(0)
    target.sql("CREATE TABLE taken (id BIGINT PRIMARY KEY) ENGINE = InnoDB")
    target.sql("ALTER TABLE target EXCHANGE PARTITION p0 WITH TABLE taken")
    new_driver().recover().run(1)
    assert target.ids() == list(range(10, 20))


def test_a_table_that_was_renamed_is_the_same_on_mysql_and_refused_on_mariadb(
    target: Target, new_driver: Callable[[], Driver], tmp_path: Path
) -> None:
    new_driver().recover().run(0)
    before = created(target)
    target.sql("RENAME TABLE target TO renamed")
    target.sql("CREATE TABLE unrelated LIKE renamed")
    sinks = open_sinks({"facts": target.new_sink(table="renamed")})
    keeps_its_time = before == target.sql(
        "SELECT CREATE_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
        "AND TABLE_NAME = 'renamed'",
        target.database,
    )
    try:
        driver = Driver(tmp_path / "job", {}, sinks=sinks)
        if keeps_its_time:
            driver.recover().run(1)
            assert [row[0] for row in target.sql("SELECT id FROM renamed ORDER BY id")] == list(
                range(20)
            )
        else:
            with pytest.raises(TargetChangedError, match="is another table"):
                driver.recover()
    finally:
        sinks["facts"].close()


def test_a_metadata_table_that_was_dropped_is_made_again(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    new_driver().recover().run(0)
    target.sql("DROP TABLE twophase_target")
    new_driver().recover().run(1)
    assert target.sql("SELECT table_name FROM twophase_target WHERE job <> ''") == [("target",)]
    assert target.ids() == list(range(20))


def test_an_account_that_may_not_make_it_is_refused_with_the_sql(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    new_driver().recover().run(0)
    target.sql("DROP TABLE twophase_target")
    name = target.database
    target.sql(f"CREATE USER {name}@'%' IDENTIFIED BY '{target.server.password}'")
    target.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO {name}@'%'")
    if isinstance(target.server, MySqlService):
        target.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {name}@'%'")
    sink = target.new_sink(url=f"mysql://{name}@127.0.0.1:{target.server.port}/{name}")
    with pytest.raises(PreflightError, match=r"CREATE TABLE IF NOT EXISTS .*twophase_target"):
        open_sinks({"facts": sink})
    assert target.ids() == list(range(10))
