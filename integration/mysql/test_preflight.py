"""What cannot work is said before the first row, with what to do about it."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import pyarrow as pa
import pytest

from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import (
    ConfigError,
    PreflightError,
    RejectedRowsError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.internals.json_values import to_json
from twophase.sinks.mysql import metadata_tables
from twophase.testing.harness import LINEAGE
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(2)]

PASSWORD = "canary-password-7e1d"
VARIABLE = "TWOPHASE_TEST_APP_PASSWORD"


@pytest.fixture
def harness(sql_server_in_proof: Server) -> MySqlHarness:
    return MySqlHarness(sql_server_in_proof)


def refuse(
    harness: MySqlHarness,
    kind: type[Exception],
    said: str,
    context: dict[str, Any] | None = None,
    **options: Any,
) -> str:
    sink = harness.new_sink(**options)
    with pytest.raises(kind, match=said) as caught:
        sink.open(harness.context(**(context or {})))
    assert "Next: " in str(caught.value) or kind is PreflightError
    assert harness.server.password not in str(caught.value)
    return str(caught.value)


def refuse_early(harness: MySqlHarness, kind: type[Exception], said: str, **options: Any) -> str:
    """`open` refuses, and a look at the server without Spark has reported the same before."""
    late = refuse(harness, kind, said, **options)
    with pytest.raises(kind) as caught:
        harness.new_sink(**options).check_connection()
    assert str(caught.value) == late
    return late


class TestReachingTheServer:
    def test_nobody_there(self, harness):
        harness.options["url"] = f"mysql://root@127.0.0.1:1/{harness.database}"
        refuse_early(harness, TargetUnreachableError, "127.0.0.1:1 .*correct host and port in url")
        harness.options["url"] = harness.server.url(harness.database)
        harness.opened().close()

    def test_a_host_that_has_no_address(self, harness):
        harness.options["url"] = f"mysql://root@no-such-host.invalid/{harness.database}"
        refuse_early(harness, TargetUnreachableError, "no-such-host")

    def test_a_wrong_password(self, harness):
        os.environ[VARIABLE] = "wrong"
        refuse_early(harness, PreflightError, "password_env", password_env=VARIABLE)

    def test_a_schema_that_is_not_there(self, harness):
        refuse_early(
            harness, PreflightError, "create the schema", url=harness.server.url("nowhere")
        )

    def test_tls_that_the_server_does_not_have_or_prove(self, harness):
        refuse_early(harness, PreflightError, "tls_ca", tls="verify_identity")


def test_the_early_look_takes_a_table_whose_first_column_is_generated(sql_server):
    harness = MySqlHarness(sql_server, "doubled BIGINT AS (2 * id) STORED, id BIGINT")
    harness.new_sink().check_connection()


def test_the_early_look_writes_nothing(harness):
    harness.new_sink().check_connection()
    assert harness.sql("SHOW TABLES") == [("target",)]


class TestTheTable:
    def test_that_is_not_there(self, harness):
        refuse_early(harness, ConfigError, "no table .*: create it", table="nothing")
        harness.sql("CREATE TABLE nothing LIKE target")
        harness.opened(table="nothing").close()

    def test_of_another_engine(self, harness):
        harness.sql("CREATE TABLE other (id BIGINT, name TEXT, amount DOUBLE) ENGINE = MyISAM")
        said = refuse_early(harness, PreflightError, "InnoDB", table="other")
        [statement] = re.findall(r"ALTER TABLE .* ENGINE = InnoDB", said)
        harness.sql(statement)
        harness.opened(table="other").close()

    def test_that_is_a_view(self, harness):
        harness.sql("CREATE VIEW other AS SELECT * FROM target")
        said = refuse_early(harness, PreflightError, "VIEW: .*name another table", table="other")
        assert "ALTER TABLE" not in said, "no statement makes a table of it"
        harness.opened(table="target").close()

    def test_that_keeps_the_history_of_its_rows(self, own_mariadb):
        harness = MySqlHarness(own_mariadb)
        harness.sql("CREATE SEQUENCE counter")
        said = refuse_early(harness, PreflightError, "SEQUENCE.*another table", table="counter")
        assert "ALTER TABLE" not in said
        harness.sql("ALTER TABLE target ADD SYSTEM VERSIONING")
        said = refuse_early(harness, PreflightError, "history of its rows.*deletes the history")
        [statement] = re.findall("ALTER TABLE .* DROP SYSTEM VERSIONING", said)
        harness.sql(statement)
        harness.opened().close()

    def test_that_does_not_fit_is_described_whole(self, harness):
        harness.sql(
            "CREATE TABLE narrow (id DATE, name INT, twice INT GENERATED ALWAYS AS (id * 2) "
            "VIRTUAL, must INT NOT NULL,"
            " may INT NOT NULL DEFAULT 1, `at` DATE) ENGINE = InnoDB"
        )
        schema = pa.schema(
            [("id", pa.int64()), ("name", pa.string()), ("twice", pa.int32()), ("gone", pa.int32()),
                ("at", pa.timestamp("us")),
             ("AT", pa.date32())]
        )  # fmt: skip
        said = refuse(harness, ConfigError, "narrow", {"schema": schema}, table="narrow")
        for part in (
            "id: int64",
            "name: string",
            "twice:",
            "gone: the table has no",
            "at: timestamp",
            "must: it is NOT NULL",
        ):
            assert part in said
        assert "may:" not in said
        assert "select and cast the columns before the sink" in said
        selected = [("id", pa.date32()), ("name", pa.int32()), ("must", pa.int32())]
        context = harness.context(schema=pa.schema([*selected, ("AT", pa.date32())]))
        harness.new_sink(table="narrow").open(context).close()

    def test_with_a_unique_key_and_speculation(self, harness):
        refuse(harness, PreflightError, "switch spark.speculation off", {"speculation": True})
        harness.new_sink().open(harness.context(speculation=False)).close()

    def test_without_a_unique_key_takes_speculation(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, "id BIGINT, name TEXT, amount DOUBLE")
        harness.new_sink().open(harness.context(speculation=True)).close()

    def test_h51_with_a_unique_key_and_commits_behind_the_next_batch(self, harness):
        said = refuse(harness, PreflightError, "has a unique key", {"max_concurrent": 2})
        assert "leave checkpoint.max_concurrent at 1" in said
        harness.new_sink().open(harness.context(max_concurrent=1)).close()

    def test_h51_with_a_foreign_key_and_commits_behind_the_next_batch(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, "id BIGINT, name TEXT, amount DOUBLE")
        harness.sql("CREATE TABLE parent (id BIGINT PRIMARY KEY) ENGINE=InnoDB")
        harness.sql("ALTER TABLE target ADD FOREIGN KEY (id) REFERENCES parent (id)")
        refuse(harness, PreflightError, "has a foreign key", {"max_concurrent": 2})

    def test_without_keys_takes_commits_behind_the_next_batch(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, "id BIGINT, name TEXT, amount DOUBLE")
        harness.new_sink().open(harness.context(max_concurrent=2)).close()


class TestTheServersSettings:
    @pytest.mark.parametrize(("value", "fine"), [(1, True), (0, False), (2, False)])
    def test_a_server_that_forgets_what_it_acknowledged(self, harness, value, fine):
        harness.sql(f"SET GLOBAL innodb_flush_log_at_trx_commit = {value}")
        try:
            if fine:
                harness.opened().close()
            else:
                refuse_early(harness, PreflightError, "innodb_flush_log_at_trx_commit is not 1")
                harness.opened(allow_unsafe_durability=True).close()
        finally:
            harness.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")

    def test_a_setting_that_is_changed_under_a_running_job_is_not_noticed(self, harness):
        sink = harness.opened()
        harness.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        try:
            assert commit(sink, harness.write(sink, harness.rows(range(3)))) == [Committed()]
        finally:
            harness.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        assert harness.ids() == [0, 1, 2]

    def test_more_writers_than_connections(self, harness):
        refuse(harness, PreflightError, "max_connections", {"parallelism": 400})

    def test_load_data_that_the_server_forbids(self, harness):
        harness.sql("SET GLOBAL local_infile = 0")
        try:
            said = refuse_early(harness, PreflightError, "local_infile", load="local")
            sink = harness.opened()
            assert commit(sink, harness.write(sink, harness.rows(range(3)))) == [Committed()]
            [statement] = re.findall(r"SET \w+ local_infile = 1", said)
            harness.sql(statement)
            harness.opened(load="local").close()
        finally:
            harness.sql("SET GLOBAL local_infile = 1")
            if isinstance(harness.server, MySqlService):
                harness.sql("RESET PERSIST IF EXISTS local_infile")
        assert harness.ids() == [0, 1, 2]


@pytest.mark.proof
def test_the_binary_log_of_an_old_mysql_is_refused():
    with MySqlService(own=True, server_options=["--log-bin=binlog", "--server-id=1"]) as server:
        harness = MySqlHarness(server)
        refuse(harness, PreflightError, r"before MySQL 8\.0\.30")


@pytest.mark.proof
def test_mariadb_must_sync_its_binary_log():
    with MariaDbService(own=True, server_options=["--log-bin=binlog", "--server-id=1"]) as server:
        harness = MySqlHarness(server)
        refuse(harness, PreflightError, "sync_binlog")
        harness.sql("SET GLOBAL sync_binlog = 1")
        sink = harness.opened()
        assert commit(sink, harness.write(sink, harness.rows(range(3)))) == [Committed()]


class TestRights:
    """The account of a careful administrator."""

    @pytest.fixture
    def app(self, harness: MySqlHarness) -> MySqlHarness:
        return self.of_account(harness, "%")

    @staticmethod
    def of_account(harness: MySqlHarness, host: str) -> MySqlHarness:
        os.environ[VARIABLE] = PASSWORD
        name = harness.database
        harness.sql(f"CREATE USER {name}@'{host}' IDENTIFIED BY '{PASSWORD}'")
        harness.sql(f"GRANT SELECT, INSERT ON {name}.target TO {name}@'{host}'")
        if isinstance(harness.server, MySqlService):
            harness.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {name}@'{host}'")
        url = f"mysql://{name}@{harness.server.host}:{harness.server.port}/{name}"
        harness.options |= {"url": url, "password_env": VARIABLE}
        return harness

    def give_books(self, app: MySqlHarness) -> None:
        """Run exactly what the error says."""
        said = refuse(app, PreflightError, "metadata tables")
        for statement in said.partition("run: ")[2].split(";"):
            if statement.strip():
                app.sql(statement)

    @pytest.mark.parametrize("marked", [True, False])
    def test_missing_rights_come_with_the_sql_to_run_and_then_all_works(self, app, marked):
        """All of it at once."""
        if marked:
            column = "c VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, ADD INDEX (c)"
            app.sql(f"ALTER TABLE target ADD COLUMN {column}")
            app.options["checkpoint_column"] = "c"
        self.give_books(app)
        sink = app.opened()
        assert commit(sink, app.write(sink, app.rows(range(3)))) == [Committed()]
        late = app.begun(sink, range(5, 7))
        sink.fence(Attempt(1, 2))
        late.abort()
        sink.abort(sink.in_doubt())
        sink.subsume(LINEAGE, 0)
        assert app.ids() == [0, 1, 2]

    def test_the_sql_to_run_names_the_account_with_its_host(self, harness):
        app = self.of_account(harness, "127.0.0.1")
        self.give_books(app)
        app.opened().close()

    def test_rights_on_single_tables_work_or_are_refused_at_once(self, app):
        """MySQL 8.0.12 denies locking reads then."""
        self.give_books(app)
        app.sql(
            f"REVOKE SELECT, INSERT, UPDATE, DELETE ON {app.database}.* FROM {app.database}@'%'"
        )
        for table in ("schema", "fence", "ledger", "high_water", "rewind", "target"):
            app.sql(
                "GRANT SELECT, INSERT, UPDATE, DELETE "
                f"ON {app.database}.twophase_{table} TO {app.database}@'%'"
            )
        if isinstance(app.server, MySqlService):
            refuse(app, PreflightError, "metadata tables.*1143")
        else:
            app.opened().close()

    def test_no_right_to_insert(self, app):
        app.sql(f"REVOKE INSERT ON {app.database}.target FROM {app.database}@'%'")
        said = refuse_early(app, PreflightError, "may not insert")
        [grant] = re.findall(r"GRANT SELECT, INSERT ON \S+ TO", said)
        app.sql(f"{grant} {app.database}@'%'")
        app.new_sink().check_connection()

    def test_a_right_to_insert_into_some_columns_is_enough_for_the_early_look(self, app):
        """Which columns the rows have is known when Spark is up."""
        app.sql(f"REVOKE INSERT ON {app.database}.target FROM {app.database}@'%'")
        app.sql(f"GRANT INSERT (amount) ON {app.database}.target TO {app.database}@'%'")
        app.new_sink().check_connection()

    def test_a_column_that_the_account_cannot_see_is_not_filled_unasked(self, app):
        """LOAD DATA of MySQL gives it a zero, and no warning."""
        name = app.database
        app.server.create_database(f"{name}_metadata")
        app.sql(f"GRANT ALL ON {name}_metadata.* TO {name}@'%'")
        app.options["bookkeeping_schema"] = f"{name}_metadata"
        app.sql("ALTER TABLE target ADD hidden INT NOT NULL")
        app.sql(f"REVOKE SELECT, INSERT ON {name}.target FROM {name}@'%'")
        seen = "(id, name, amount)"
        app.sql(f"GRANT SELECT {seen}, INSERT {seen} ON {name}.target TO {name}@'%'")
        with pytest.raises(RejectedRowsError, match="'hidden' doesn't have a default value") as no:
            app.write(app.opened(), app.rows(range(3)))
        assert "give it a default" in no.value.remedy
        app.sql("ALTER TABLE target ALTER hidden SET DEFAULT 7")
        sink = app.opened()
        piece = app.write(sink, app.rows(range(3)), subtask=Subtask(0, 1))
        assert commit(sink, piece) == [Committed()]
        assert app.sql("SELECT DISTINCT hidden FROM target") == [(7,)]

    def test_no_right_to_see_the_table(self, app):
        app.sql(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {app.database}@'%'")
        refuse_early(app, PreflightError, "GRANT")

    def test_no_right_to_list_branches(self, app):
        if isinstance(app.server, MariaDbService):
            pytest.skip("any account may on MariaDB")
        self.give_books(app)
        app.sql(f"REVOKE XA_RECOVER_ADMIN ON *.* FROM {app.database}@'%'")
        refuse_early(app, PreflightError, "XA_RECOVER_ADMIN")

    def test_an_account_of_mariadb_that_cannot_see_transactions_is_warned(self, app, caplog):
        is_mariadb = isinstance(app.server, MariaDbService)
        self.give_books(app)
        app.opened().close()
        assert ("GRANT PROCESS" in caplog.text) == is_mariadb
        caplog.clear()
        app.sql(f"GRANT PROCESS ON *.* TO {app.database}@'%'")
        app.opened().close()
        assert "GRANT PROCESS" not in caplog.text

    def test_a_server_that_became_read_only_keeps_the_branch(self, app):
        self.give_books(app)
        sink = app.opened()
        piece = app.write(sink, app.rows(range(3)))
        app.sql("SET GLOBAL read_only = 1")
        try:
            [outcome] = commit(sink, piece)
            assert isinstance(outcome, RetryLater | Committed)
        finally:
            app.sql("SET GLOBAL read_only = 0")
        if isinstance(outcome, RetryLater):
            assert commit(sink, piece, retries=1) == [Committed()]
        assert app.ids() == [0, 1, 2]

    def test_no_artefact_shows_the_password(self, app, caplog):
        self.give_books(app)
        sink = app.opened()
        piece = app.write(sink, app.rows(range(3)))
        shown = (
            f"{sink!r} {sink.writers()!r} {piece!r} {to_json(piece)} {caplog.text} "
            f"{app.sql('SHOW FULL PROCESSLIST')}"
        )
        assert PASSWORD not in shown


@pytest.mark.parametrize(
    "table", ["schema", "fence", "ledger", "high_water", "rewind", "target", "marked"]
)
def test_metadata_tables_of_another_engine_are_refused(sql_server_in_proof, table):
    ddl = "id BIGINT, c VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, INDEX (c)"
    schema = pa.schema([("id", pa.int64())])
    harness = MySqlHarness(sql_server_in_proof, ddl, schema, checkpoint_column="c")
    harness.opened().close()
    harness.sql(f"ALTER TABLE twophase_{table} ENGINE = MyISAM")
    refuse(harness, PreflightError, "MyISAM")
    harness.sql(f"ALTER TABLE twophase_{table} ENGINE = InnoDB")
    harness.opened().close()


def test_books_may_be_kept_in_another_schema(harness):
    books = f"{harness.database}_metadata"
    harness.server.create_database(books)
    sink = harness.opened(bookkeeping_schema=books)
    assert commit(sink, harness.write(sink, harness.rows(range(3)))) == [Committed()]
    assert harness.sql(f"SELECT COUNT(*) FROM {books}.twophase_ledger") == [(1,)]
    assert harness.sql("SHOW TABLES") == [("target",)]


def test_the_target_is_the_same_for_every_sink_on_the_table_and_no_other(harness):
    harness.sql("CREATE TABLE other LIKE target")
    one, two, other = (
        harness.new_sink(table=table).open(harness.context(sink=name))
        for name, table in (("a", "target"), ("b", "target"), ("c", "other"))
    )
    assert one.target() == two.target() != other.target()
    assert harness.database in one.target()


class TestItsOwnTables:
    def test_that_another_job_is_making_at_this_moment_are_waited_for(self, harness):
        """It may take longer than the one second that the driver's session waits for a lock."""
        harness.opened().close()
        harness.sql("DELETE FROM twophase_schema")
        maker = harness.server.connect(harness.database)
        maker.begin()
        with maker, maker.cursor() as cursor:
            cursor.execute("INSERT INTO twophase_schema (one, id) VALUES (1, 'of the other job')")
            done = threading.Timer(2.5, maker.commit)
            done.start()
            sink = harness.new_sink().open(harness.context())
            done.join()
            sink.close()
        assert harness.sql("SELECT id FROM twophase_schema") == [("of the other job",)]

    def test_that_a_session_keeps_locked_are_free_when_it_is_ended(self, harness, monkeypatch):
        harness.opened().close()
        harness.sql("DELETE FROM twophase_schema")
        maker = harness.server.connect(harness.database)
        maker.begin()
        maker.cursor().execute("INSERT INTO twophase_schema (one, id) VALUES (1, 'never')")
        monkeypatch.setattr(metadata_tables, "_LOCKED_TIMEOUT_S", 0.0)
        refuse(harness, TargetUnreachableError, "have been locked for .*SHOW PROCESSLIST.*KILL")
        listed = {row[0]: row[3] for row in harness.sql("SHOW PROCESSLIST")}
        assert listed[maker.thread_id()] == harness.database
        harness.sql(f"KILL {maker.thread_id()}")
        monkeypatch.undo()  # the session may take its time to end
        harness.opened().close()


@pytest.mark.parametrize("name", ["ledger", "schema"])
def test_a_look_takes_no_half_of_the_metadata_tables_for_none(harness, name):
    """A repair would take what it cannot see for lost. The start of a job makes them whole."""
    harness.opened().close()
    harness.sql(f"DROP TABLE twophase_{name}")
    before = harness.contents()
    with pytest.raises(PreflightError, match=f"twophase_{name}"):
        harness.new_sink().open(harness.context(schema=None))
    assert harness.contents() == before
    harness.opened().close()
    harness.new_sink().open(harness.context(schema=None)).close()
