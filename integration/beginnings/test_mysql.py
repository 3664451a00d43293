"""A rewind of a MySQL table that other tables or triggers stand in the way of.

It is refused before anything is recorded or removed, or does exactly what it says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.memory_driver import JOB
from harness.savepoint_world import killed, older, restoring
from integration.mysql.sink_harness import DDL, TASK, MySqlHarness, Server, commit
from integration.without_spark.test_old_savepoints import SqlWorld
from twophase.errors import FencedError, RestoreRefusedError, StopJobError
from twophase.ids import Attempt
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.sinks.mysql import rewind as rewind_module
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.harness import LINEAGE, transaction_id
from twophase.testing.services import MySqlService

pytestmark = [pytest.mark.server, pytest.mark.part("mysql"), pytest.mark.thin(2)]

COLUMN = "twophase_checkpoint"
MARK = f"{COLUMN} VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin"
RESTORING = Attempt(2, 0)
KEEP = {LINEAGE: 1}


def filled(harness: MySqlHarness) -> OpenMySqlSink:
    """Checkpoints 0 to 3 have two rows each."""
    sink = harness.opened()
    for number in range(4):
        ids = range(2 * number, 2 * number + 2)
        commit(sink, harness.write(sink, harness.rows(ids), number))
    return sink


@pytest.fixture
def harness(sql_server: Server) -> MySqlHarness:
    return MySqlHarness(sql_server, f"{DDL}, {MARK}, INDEX ({COLUMN})", checkpoint_column=COLUMN)


@pytest.fixture
def sink(harness: MySqlHarness) -> Iterator[OpenMySqlSink]:
    sink = filled(harness)
    yield sink
    sink.close()


def refused_whole(sink: OpenMySqlSink, harness: MySqlHarness, name: str) -> None:
    """The check refuses it and names what is in the way; nothing is removed."""
    before = harness.ids()
    with pytest.raises(RestoreRefusedError, match=name) as caught:
        sink.check_rewind(KEEP)
    assert caught.value.remedy
    assert harness.ids() == before


def rewound(sink: OpenMySqlSink, harness: MySqlHarness) -> None:
    sink.check_rewind(KEEP)
    sink.fence(RESTORING)
    sink.rewind(KEEP, RESTORING)
    assert harness.ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "RESTRICT"])
def test_rows_of_other_tables_stay_as_they_are(
    sink: OpenMySqlSink, harness: MySqlHarness, action: str
) -> None:
    """Another table refers to my table: the rewind is refused while a row that it would remove is
    referred to. When none is, it is done.
    """
    harness.sql(
        "CREATE TABLE notes (id BIGINT PRIMARY KEY, order_id BIGINT NULL, "
        "CONSTRAINT notes_of_order FOREIGN KEY (order_id) REFERENCES target (id) "
        f"ON DELETE {action}) ENGINE = InnoDB"
    )
    harness.sql("INSERT INTO notes VALUES (1, 0), (2, 7)")
    refused_whole(sink, harness, r"rows of .*notes.* refer .*: 1, .*notes_of_order")
    assert harness.sql("SELECT * FROM notes ORDER BY id") == [(1, 0), (2, 7)]
    harness.sql("ALTER TABLE notes DROP FOREIGN KEY notes_of_order")
    rewound(sink, harness)
    assert harness.sql("SELECT * FROM notes ORDER BY id") == [(1, 0), (2, 7)]


def test_a_trigger_does_not_run_unsaid(sink: OpenMySqlSink, harness: MySqlHarness) -> None:
    """My table has a trigger that acts when a row is deleted: the rewind is refused, and names it.
    Without the trigger it is done.
    """
    harness.sql("CREATE TABLE gone (id BIGINT PRIMARY KEY) ENGINE = InnoDB")
    harness.sql(
        "CREATE TRIGGER note_gone AFTER DELETE ON target FOR EACH ROW INSERT INTO gone "
        "VALUES (OLD.id)"
    )
    refused_whole(sink, harness, "note_gone")
    show, drop = re.findall(r"(?:SHOW CREATE|DROP) TRIGGER `\S+`\.`\w+`", refusal(sink))
    kept = harness.sql(show)[0][2]
    harness.sql(drop)
    rewound(sink, harness)
    assert harness.sql("SELECT * FROM gone") == []
    harness.sql(kept)
    harness.sql("DELETE FROM target WHERE id = 3")
    assert harness.sql("SELECT * FROM gone") == [(3,)]


def test_a_table_without_an_index_on_the_column_is_not_locked_whole(sql_server: Server) -> None:
    """My table has no index on the checkpoint column: the rewind is refused, and names the
    statement that adds it. With the index it is done.
    """
    harness = MySqlHarness(sql_server, f"{DDL}, {MARK}", checkpoint_column=COLUMN)
    sink = filled(harness)
    refused_whole(sink, harness, COLUMN)
    statement = refusal(sink).removesuffix(".")
    assert statement.endswith(f"ADD INDEX (`{COLUMN}`)")
    harness.sql(statement)
    rewound(sink, harness)
    sink.close()


def test_rows_of_the_table_that_refer_to_each_other_are_not_taken_back_unsaid(
    sink: OpenMySqlSink, harness: MySqlHarness
) -> None:
    harness.sql(
        "ALTER TABLE target ADD COLUMN parent BIGINT NULL, ADD CONSTRAINT of_parent "
        "FOREIGN KEY (parent) REFERENCES target (id) ON DELETE CASCADE"
    )
    harness.sql("UPDATE target SET parent = 7 WHERE id = 0")
    refused_whole(sink, harness, "of_parent")
    harness.sql("ALTER TABLE target DROP FOREIGN KEY of_parent")
    rewound(sink, harness)


def test_what_the_account_may_not_see_is_refused_and_each_remedy_leads_on(
    harness: MySqlHarness,
) -> None:
    """A careful administrator has granted what the sink needs to write, and follows what is said.

    Names with characters that file names cannot have, as some servers note foreign keys.
    """
    filled(harness).close()
    name, hidden = harness.database, f"{harness.database}-hé"
    harness.server.create_database(hidden)
    harness.sql(
        f"CREATE TABLE `{hidden}`.`no/te-s/` (id BIGINT PRIMARY KEY, `of-1` BIGINT, CONSTRAINT "
        f"`no/t-es` FOREIGN KEY (`of-1`) REFERENCES {name}.target (id)) ENGINE = InnoDB"
    )
    harness.sql(f"INSERT INTO `{hidden}`.`no/te-s/` VALUES (1, 6), (2, 7)")
    os.environ["TWOPHASE_TEST_OPERATOR"] = "pw"
    harness.sql(f"CREATE USER {name}@'%' IDENTIFIED BY 'pw'")
    harness.sql(f"GRANT SELECT, INSERT ON {name}.target TO {name}@'%'")
    for table in harness.sql("SHOW TABLES LIKE 'twophase%'"):
        harness.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.{table[0]} TO {name}@'%'")
    if isinstance(harness.server, MySqlService):
        # 8.0.12 denies locking reads to an account with rights on single tables only
        harness.sql(f"GRANT SELECT, INSERT, UPDATE ON {name}.* TO {name}@'%'")
        harness.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {name}@'%'")
    harness.options |= {
        "url": f"mysql://{name}@{harness.server.host}:{harness.server.port}/{name}",
        "password_env": "TWOPHASE_TEST_OPERATOR",
    }
    with closing(harness.new_sink().open(harness.context())) as sink:
        remedies = []
        while "DROP FOREIGN KEY" not in (remedy := refusal(sink)):
            remedies.append(remedy)
            assert len(remedies) < 5
            grant = remedy.replace("the user of the sink.", f"{name}@'%'")
            harness.sql(grant)
            sink.close()
        assert [remedy.split(" ON ")[0] for remedy in remedies] == (
            ["GRANT DELETE", "GRANT TRIGGER", "GRANT SELECT"]
            if isinstance(harness.server, MySqlService)
            else ["GRANT DELETE", "GRANT PROCESS", "GRANT SELECT"]
        )
        [drop] = re.findall("(ALTER TABLE .* DROP FOREIGN KEY `.*?`)", remedy)
        assert drop == f"ALTER TABLE `{hidden}`.`no/te-s/` DROP FOREIGN KEY `no/t-es`"
        harness.sql(drop)
        rewound(sink, harness)


def refusal(sink: OpenMySqlSink) -> str:
    with pytest.raises(RestoreRefusedError) as caught:
        sink.check_rewind(KEEP)
    return caught.value.remedy


def test_a_table_that_cannot_be_rewound_is_warned_about_when_it_is_opened(
    sql_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    harness = MySqlHarness(sql_server, f"{DDL}, {MARK}", checkpoint_column=COLUMN)
    harness.opened().close()
    [said] = caplog.messages
    [statement] = re.findall("ALTER TABLE .*[)]", said)
    harness.sql(statement)
    caplog.clear()
    harness.opened().close()
    assert caplog.messages == []


def test_rows_and_proofs_that_others_have_locked_are_not_waited_for(
    sink: OpenMySqlSink, harness: MySqlHarness
) -> None:
    """Branches of other jobs are prepared: their rows and proofs are locked."""
    harness.sql("INSERT INTO target (id) VALUES (100)")
    for number, job in ((101, "before-ours"), (102, "of-a-name-after-ours")):
        other = harness.new_sink().open(harness.context(job=job))
        other.fence(Attempt(1, 1))
        writer = other.writers()(transaction_id(3, job=job), TASK)
        writer.write(harness.batch(harness.rows([number])))
        assert writer.pre_commit()
        other.close()
    with closing(harness.server.connect(harness.database)) as somebody:
        somebody.begin()
        with somebody.cursor() as cursor:
            cursor.execute("SELECT * FROM target WHERE id IN (0, 100) FOR UPDATE")
        sink.check_rewind(KEEP)
        sink.fence(RESTORING)
        sink.rewind(KEEP, RESTORING)
    assert harness.ids() == [0, 1, 2, 3, 100]
    assert sink.history().committed == KEEP


class TestInSeveralTransactions:
    """The rows of checkpoints 2 and 3 are taken back, three in a transaction."""

    @pytest.fixture
    def harness(self, sql_server: Server) -> MySqlHarness:
        ddl = f"{DDL}, {MARK}, INDEX ({COLUMN})"
        return MySqlHarness(sql_server, ddl, checkpoint_column=COLUMN, load_rows=3)

    def test_a_kill_between_two_is_made_good(
        self, sink: OpenMySqlSink, harness: MySqlHarness
    ) -> None:
        """The newest rows are gone, and the proofs are there until all of them are."""
        sink.close()
        assert killed("M01", lambda: self.rewind(harness, RESTORING))
        assert len(harness.ids()) == 5
        assert harness.ids()[:4] == [0, 1, 2, 3]
        found = harness.new_sink().open(harness.context())
        assert found.history().committed == {LINEAGE: 3}
        found.fence(Attempt(3, 0))
        with pytest.raises(RestoreRefusedError, match="a part of the rows is removed") as caught:
            found.settle_rewind(KEEP, Attempt(3, 0))
        assert caught.value.remedy.startswith("finish it")
        found.close()
        self.rewind(harness, Attempt(4, 0))
        assert harness.ids() == [0, 1, 2, 3]
        with closing(harness.new_sink().open(harness.context())) as done:
            done.fence(Attempt(5, 0))
            done.settle_rewind(KEEP, Attempt(5, 0))

    @staticmethod
    def rewind(harness: MySqlHarness, attempt: Attempt) -> None:
        with closing(harness.new_sink().open(harness.context())) as sink:
            sink.check_rewind(KEEP)
            sink.fence(attempt)
            sink.rewind(KEEP, attempt)
            assert sink.history().committed == KEEP

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ("DELETE FROM target WHERE id IN (4, 5)", "0 rows, 1 were counted"),
            (
                f"INSERT INTO target SELECT 99, name, amount, {COLUMN} FROM target WHERE id > 3",
                "1 rows more",
            ),
            (
                "INSERT INTO notes SELECT 1, id FROM target WHERE id > 3",
                "rows of .*notes.* refer .*: 1, ",
            ),
        ],
        ids=["deleted", "added", "referred to"],
    )
    def test_a_change_between_two_is_noticed(
        self,
        sink: OpenMySqlSink,
        harness: MySqlHarness,
        monkeypatch: pytest.MonkeyPatch,
        change: str,
        why: str,
    ) -> None:
        harness.sql(
            "CREATE TABLE notes (id BIGINT PRIMARY KEY, order_id BIGINT, FOREIGN KEY (order_id) "
            "REFERENCES target (id) ON DELETE CASCADE) ENGINE = InnoDB"
        )
        sink.check_rewind(KEEP)
        sink.fence(RESTORING)
        self.between(monkeypatch, lambda: harness.sql(change))
        with pytest.raises(RestoreRefusedError, match=f"{why}.*3 rows were removed"):
            sink.rewind(KEEP, RESTORING)
        assert harness.ids()[:4] == [0, 1, 2, 3]
        assert sink.history().committed == {LINEAGE: 3}

    def test_a_newer_driver_takes_over_between_two(
        self, sink: OpenMySqlSink, harness: MySqlHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink.fence(RESTORING)
        newer = harness.new_sink().open(harness.context())
        self.between(monkeypatch, lambda: newer.fence(Attempt(3, 0)))
        with pytest.raises(FencedError):
            sink.rewind(KEEP, RESTORING)
        assert len(harness.ids()) == 5
        newer.rewind(KEEP, Attempt(3, 0))
        assert harness.ids() == [0, 1, 2, 3]
        newer.close()

    @staticmethod
    def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        monkeypatch.setattr(rewind_module, "failpoint", lambda _: act())


class TestOfAJob:
    """Two tables on one server, ten rows for each checkpoint; a savepoint of checkpoint 1."""

    @pytest.fixture
    def world(self, sql_server: Server, tmp_path: Path) -> SqlWorld:
        return SqlWorld(tmp_path, sql_server)

    @pytest.mark.parametrize("way", ["delete", "drop"])
    def test_the_remedy_of_a_foreign_key_leads_to_a_running_job(
        self, world: SqlWorld, way: str
    ) -> None:
        """It is refused before anything is recorded: the job could go on as it was."""
        path, table = older(world), world.tables["lake"]
        table.sql("ALTER TABLE target ADD PRIMARY KEY (id)")
        table.sql(
            "CREATE TABLE notes (id BIGINT PRIMARY KEY, order_id BIGINT, CONSTRAINT of_order "
            "FOREIGN KEY (order_id) REFERENCES target (id) ON DELETE CASCADE) ENGINE = InnoDB"
        )
        table.sql("INSERT INTO notes VALUES (1, 3), (2, 33)")
        with pytest.raises(RestoreRefusedError, match="of_order") as caught:
            world.drive(5, "again", **restoring(path, "rewind"))
        assert world.ids() == [[*range(40)]] * 2
        world.drive(5)
        if way == "delete":
            assert "delete those rows" in caught.value.remedy
            table.sql("DELETE FROM notes WHERE order_id = 33")
        else:
            [drop] = re.findall(r"ALTER TABLE \S+ DROP FOREIGN KEY \S+", caught.value.remedy)
            table.sql(drop)
        world.drive(6, "again", **restoring(path, "rewind"))
        world.is_exact("again", 6)
        if way == "drop":
            table.sql("ALTER TABLE notes ADD FOREIGN KEY (order_id) REFERENCES target (id)")

    def test_a_kill_in_the_middle_of_a_table_is_made_good(self, world: SqlWorld) -> None:
        path = older(world)
        for table in world.tables.values():
            table.options["load_rows"] = 7
        assert killed("M01@4", lambda: world.drive(5, "again", **restoring(path, "rewind")))
        assert [len(ids) for ids in world.ids()] == [20, 26]
        with pytest.raises(StopJobError):
            world.drive(5)
        context = world._driver("job", {}).coordinator.context
        begun_in = JobLog(LocalStorage(world.root / "again"), JOB)
        with pytest.raises(RestoreRefusedError, match="cannot be given up") as caught:
            RewindRepair(context, world.declared, begun_in).plan()
        assert "start with the same restore.path and `restore.sink_ahead=rewind`" in (
            caught.value.remedy
        )
        world.drive(5, "again", **restoring(path, "rewind"))
        world.is_exact("again", 5)

    def test_a_checkpoint_with_half_its_rows_is_not_kept_and_the_same_restore_goes_on(
        self, world: SqlWorld
    ) -> None:
        world.drive(2)
        path = world.make()
        world.drive(3)
        later = world.make("later")
        world.drive(4)
        world.tables["facts"].options["load_rows"] = 7
        assert killed("M01@2", lambda: world.drive(5, "again", **restoring(path, "rewind")))
        assert [len(ids) for ids in world.ids()] == [26, 40]
        with pytest.raises(RestoreRefusedError, match="which would be kept") as caught:
            world.drive(5, "other", **restoring(later, "rewind"))
        assert "the same restore.path and `restore.sink_ahead=rewind` as that one" in (
            caught.value.remedy
        )
        world.drive(5, "again", **restoring(path, "rewind"))
        world.is_exact("again", 5)

    @pytest.mark.parametrize("way", ["newest", "fork"])
    def test_tables_without_the_column_go_on_from_the_newest_checkpoint_or_as_a_fork(
        self, world: SqlWorld, way: str
    ) -> None:
        """With the column from then on, a later restore takes back what has been written since."""
        for table in world.tables.values():
            table.options["checkpoint_column"] = None
        path = older(world)
        with pytest.raises(RestoreRefusedError, match="do not name their checkpoint") as caught:
            world.drive(5, "again", **restoring(path, "rewind"))
        assert "restore from the newest checkpoint, or fork" in caught.value.remedy
        if way == "fork":
            world.drive(5, "again", "orders-fork", **restoring(path, "fork"))
            assert world.ids() == [sorted([*range(50), *range(20, 40)])] * 2
            return
        world.drive(4, "again", **restoring(world.make("newest"), "rewind"))
        for table in world.tables.values():
            table.options["checkpoint_column"] = COLUMN
        world.drive(5, "again")
        path = world.make("later", "again")
        world.drive(6, "again")
        world.drive(6, "third", **restoring(path, "rewind"))
        world.is_exact("third", 6)
