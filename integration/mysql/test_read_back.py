"""Rows are read back before their branch is prepared: what changes them on the way is noticed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.selection import first_of, representatives
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, PreflightError, RejectedRowsError, TwoPhaseError
from twophase.events import CheckpointCommitted, CheckpointDeclined, Event
from twophase.sinks.mysql.rows.read_back import SAMPLE_ROWS
from twophase.testing.plain_host import ListedRows, plain_engine
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(2)]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
KEYED = "id BIGINT PRIMARY KEY, v VARCHAR(20)"
NUMBERED = "k BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT, v VARCHAR(20)"
WITHOUT_KEY = "id BIGINT, v VARCHAR(20)"
LARGE = 10 * SAMPLE_ROWS
EVERY = "SET NEW.v = 'changed'"
ONE = f"SET NEW.v = IF(NEW.id = {LARGE // 2 + 1}, 'changed', NEW.v)"


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": "sent"} for number in range(count)]


def before(harness: MySqlHarness, body: str) -> None:
    harness.sql(f"CREATE TRIGGER trg BEFORE INSERT ON target FOR EACH ROW {body}")


def refused(harness: MySqlHarness, count: int) -> str:
    with pytest.raises(RejectedRowsError) as caught:
        harness.write(harness.opened(), rows(count))
    assert harness.rows_visible() == []
    return str(caught.value)


def blind(harness: MySqlHarness) -> MySqlHarness:
    """The same table for an account that may not see its triggers."""
    name, variable = harness.database, "TWOPHASE_TEST_BLIND_PASSWORD"
    os.environ[variable] = "blind-password"
    harness.sql(f"CREATE USER {name}@'%' IDENTIFIED BY 'blind-password'")
    harness.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON {name}.* TO {name}@'%'")
    if isinstance(harness.server, MySqlService):
        harness.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {name}@'%'")
    url = f"mysql://{name}@{harness.server.host}:{harness.server.port}/{name}"
    harness.options |= {"url": url, "password_env": variable}
    return harness


@pytest.mark.parametrize("load", ["local", "insert"])
class TestATriggerThatChangesRows:
    @pytest.mark.parametrize("body", [EVERY, ONE], ids=["every", "one of many"])
    def test_of_a_table_with_a_key_is_refused_by_column_and_value(
        self, sql_server: Server, load: str, body: str
    ) -> None:
        harness = MySqlHarness(sql_server, KEYED, SCHEMA, load=load)
        before(harness, body)
        said = refused(harness, LARGE)
        assert "'v' holds 'changed' instead of 'sent'" in said
        [(trigger, *_)] = harness.sql("SHOW TRIGGERS")
        harness.sql(f"DROP TRIGGER {trigger}")
        sink = harness.opened()
        piece = harness.write(sink, rows(LARGE), checkpoint=1)
        assert commit(sink, piece) == [Committed()]

    def test_of_the_key_is_refused(self, sql_server: Server, load: str) -> None:
        harness = MySqlHarness(sql_server, KEYED, SCHEMA, load=load)
        before(harness, "SET NEW.id = NEW.id + 1000")
        assert "no such row as it was sent" in refused(harness, 3)

    @pytest.mark.parametrize("ddl", [KEYED, NUMBERED, WITHOUT_KEY])
    def test_of_columns_that_the_rows_lack_is_taken(
        self, sql_server_in_proof: Server, load: str, ddl: str
    ) -> None:
        harness = MySqlHarness(sql_server_in_proof, f"{ddl}, made INT", SCHEMA, load=load)
        before(harness, "IF NEW.v = 'sent' THEN SET NEW.made = 7 + 0 * NEW.id; END IF")
        sink = harness.opened()
        assert commit(sink, harness.write(sink, rows(LARGE))) == [Committed()]
        assert {row["made"] for row in harness.rows_visible()} == {7}

    @pytest.mark.parametrize("ddl", [NUMBERED, WITHOUT_KEY], ids=["numbered", "without key"])
    def test_of_a_table_without_a_key_of_the_rows_is_refused_at_the_start(
        self, sql_server: Server, load: str, ddl: str
    ) -> None:
        harness = MySqlHarness(sql_server, ddl, SCHEMA, load=load)
        before(harness, EVERY)
        with pytest.raises(PreflightError, match="BEFORE INSERT trigger") as caught:
            harness.opened()
        assert "add a key" in caught.value.remedy
        harness.sql("ALTER TABLE target ADD UNIQUE (id), MODIFY id BIGINT NOT NULL")
        assert "instead of 'sent'" in refused(harness, 3)
        harness.sql("ALTER TABLE target DROP KEY id")
        harness.sql("DROP TRIGGER trg")
        sink = harness.opened()
        piece = harness.write(sink, rows(3), checkpoint=1)
        assert commit(sink, piece) == [Committed()]

    def test_of_a_numbered_table_that_the_account_cannot_see_shows_in_the_first_row(
        self, own_mysql: MySqlService, load: str
    ) -> None:
        harness = blind(MySqlHarness(own_mysql, NUMBERED, SCHEMA, load=load))
        before(harness, EVERY)
        assert "instead of 'sent'" in refused(harness, LARGE)

    @pytest.mark.parametrize(("ddl", "body"), [(KEYED, ONE), (NUMBERED, ONE), (WITHOUT_KEY, EVERY)])
    def test_that_the_account_cannot_see_may_change_rows_that_are_not_read_back(
        self,
        own_mysql: MySqlService,
        load: str,
        ddl: str,
        body: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        harness = blind(MySqlHarness(own_mysql, ddl, SCHEMA, load=load))
        before(harness, body)
        sink = harness.opened()
        assert "cannot see whether" in caplog.text
        assert commit(sink, harness.write(sink, rows(LARGE))) == [Committed()]
        assert "changed" in {row["v"] for row in harness.rows_visible()}
        harness.sql(f"GRANT TRIGGER ON target TO {harness.database}@'%'")
        harness.sql("DELETE FROM target")
        with pytest.raises((PreflightError, RejectedRowsError)):
            harness.write(harness.opened(), rows(LARGE), checkpoint=1)


@pytest.mark.parametrize(
    "body",
    [
        "SET NEW . `V` = 'changed'",
        "SET @a = 1, NEW.v := 'changed'",
        "BEGIN /* NEW.made */ IF NEW.id >= 0 THEN SET NEW.made = 1, NEW.v = 'changed'; END IF; END",
        "CALL changes(NEW.v)",
        "/*!50000 SET NEW.v = 'changed' */",
    ],
)
def test_a_trigger_that_changes_rows_of_a_table_without_a_key_is_refused_however_it_is_written(
    sql_server: Server, body: str
) -> None:
    harness = MySqlHarness(sql_server, f"{WITHOUT_KEY}, made INT", SCHEMA)
    harness.sql("CREATE PROCEDURE changes(OUT v VARCHAR(20)) SET v = 'changed'")
    before(harness, body)
    harness.sql("INSERT INTO target (id, v) VALUES (1, 'sent')")
    assert harness.sql("SELECT v FROM target") == [("changed",)]
    with pytest.raises(PreflightError, match="BEFORE INSERT trigger"):
        harness.opened()


GRANTS = {
    "the table": "GRANT TRIGGER ON {0}.target TO {1}",
    "the schema": "GRANT TRIGGER ON {0}.* TO {1}",
    # with the others: of an account's schemas the server takes the most specific name alone
    "schemas like it": "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, TRIGGER ON `t\\_%`.* TO {1}",
    "all": "GRANT TRIGGER ON *.* TO {1}",
}


@pytest.mark.parametrize("granted", representatives([*GRANTS], {"the schema"}))
@pytest.mark.parametrize("by", ["account", "role", "role of a role", "role that is not active"])
def test_mysql_shows_triggers_by_a_right_on_whatever_holds_the_table(
    own_mysql: MySqlService, granted: str, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = blind(MySqlHarness(own_mysql, KEYED, SCHEMA))
    name = harness.database
    inner, outer = f"{name}_inner", f"{name}_outer"
    harness.sql(f"CREATE ROLE {inner}, {outer}")
    harness.sql(f"GRANT {inner} TO {outer}")
    try:
        if by != "account":
            harness.sql(f"GRANT {outer if by == 'role of a role' else inner} TO {name}@'%'")
        if by.startswith("role") and "not" not in by:
            harness.sql(f"SET DEFAULT ROLE ALL TO {name}@'%'")
        to = f"{name}@'%'" if by == "account" else inner
        harness.sql(GRANTS[granted].format(name, to))
        harness.opened().close()
        assert ("cannot see whether" in caplog.text) == ("not" in by)
        harness.sql("CREATE TRIGGER trg AFTER INSERT ON target FOR EACH ROW SET @a = 1")
        caplog.clear()
        harness.opened().close()
        assert ("AFTER INSERT trigger" in caplog.text) == ("not" not in by)
    finally:
        harness.sql(f"DROP ROLE {inner}, {outer}")


def test_an_account_that_sees_no_column_is_told_which_rights_count(own_mysql: MySqlService) -> None:
    harness = blind(MySqlHarness(own_mysql, KEYED, SCHEMA))
    name = harness.database
    harness.sql(f"GRANT TRIGGER ON `t\\_%`.* TO {name}@'%'")
    with pytest.raises(PreflightError, match="none of its columns") as caught:
        harness.opened()
    remedy = re.match("GRANT SELECT, INSERT ON (`.+`) TO the user of the sink", caught.value.remedy)
    assert remedy
    harness.sql(f"GRANT SELECT, INSERT ON {remedy[1]} TO {name}@'%'")
    harness.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `t\\_%`.* TO {name}@'%'")
    harness.opened().close()


def test_mariadb_shows_triggers_to_an_account_without_the_right(
    own_mariadb: MariaDbService,
) -> None:
    """But not what they do."""
    harness = blind(MySqlHarness(own_mariadb, f"{WITHOUT_KEY}, made INT", SCHEMA))
    before(harness, "SET NEW.made = 7")
    with pytest.raises(PreflightError, match="BEFORE INSERT trigger") as caught:
        harness.opened()
    assert "GRANT TRIGGER ON" in caught.value.remedy
    harness.sql(f"GRANT TRIGGER ON target TO {harness.database}@'%'")
    sink = harness.opened()
    assert commit(sink, harness.write(sink, rows(2))) == [Committed()]


@pytest.mark.parametrize("ddl", [KEYED, NUMBERED, WITHOUT_KEY])
@pytest.mark.parametrize("count", first_of(2, [1, LARGE, SAMPLE_ROWS]))
@pytest.mark.parametrize("load", ["local", "insert"])
def test_rows_that_nothing_changes_are_taken(
    sql_server_in_proof: Server, ddl: str, count: int, load: str
) -> None:
    harness = MySqlHarness(sql_server_in_proof, ddl, SCHEMA, load=load, load_rows=200)
    sink = harness.opened()
    assert commit(sink, harness.write(sink, rows(count))) == [Committed()]
    assert harness.ids() == list(range(count))


def test_a_key_of_several_columns_finds_its_rows(sql_server: Server) -> None:
    odd = "a`b%s"
    schema = pa.schema([(odd, pa.string()), ("at", pa.timestamp("us")), ("v", pa.binary())])
    ddl = "`a``b%s` VARCHAR(9) NOT NULL, `at` DATETIME(6) NOT NULL, v BLOB, UNIQUE (`a``b%s`, `at`)"
    harness = MySqlHarness(sql_server, ddl, schema)
    moments = pa.array(range(SAMPLE_ROWS), pa.timestamp("us")).to_pylist()
    sent = [{odd: f"'%s{n % 3}", "at": moment, "v": b"\0'"} for n, moment in enumerate(moments)]
    sink = harness.opened()
    assert commit(sink, harness.write(sink, sent)) == [Committed()]


def test_a_trigger_and_the_tables_that_it_may_write_to_for_ever_are_named_at_the_start(
    sql_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    harness = MySqlHarness(sql_server, KEYED, SCHEMA)
    harness.sql("CREATE TABLE audit (id BIGINT) ENGINE = MyISAM")
    harness.sql(
        "CREATE TRIGGER trg AFTER INSERT ON target FOR EACH ROW INSERT INTO audit VALUES (NEW.id)"
    )
    sink = harness.opened()
    name = harness.database
    assert f"AFTER INSERT trigger `{name}`.`trg`" in caplog.text
    assert f"`{name}`.`audit` (MyISAM)" in caplog.text
    harness.begun(sink, [1]).abort()
    assert commit(sink, harness.write(sink, rows(2))) == [Committed()]
    assert harness.sql("SELECT id FROM audit ORDER BY id") == [(0,), (1,), (1,)]


@pytest.mark.parametrize("load", ["local", "insert"])
def test_a_row_by_which_the_server_divides_by_zero_is_refused(
    sql_server: Server, load: str
) -> None:
    expressions = ["part DOUBLE AS (1 / id) STORED"]
    if isinstance(sql_server, MySqlService):
        expressions += ["part DOUBLE AS (1 / id) VIRTUAL"]  # MariaDB computes it when it is read
    else:  # MySQL 8.0.12 knows neither
        expressions += ["part DOUBLE DEFAULT (1 / id)", "CHECK (1 / id > 0)"]
    for expression in expressions:
        ddl = f"id BIGINT PRIMARY KEY, v VARCHAR(20), {expression}"
        harness = MySqlHarness(sql_server, ddl, SCHEMA, load=load)
        sink = harness.opened()
        piece = harness.write(sink, rows(2)[1:])
        assert commit(sink, piece) == [Committed()]
        with pytest.raises(RejectedRowsError, match="1365"):
            harness.write(sink, rows(1), checkpoint=1)


@pytest.mark.parametrize("load", ["local", "insert"])
def test_a_document_that_would_be_another_one_is_refused_by_name(
    sql_server: Server, load: str
) -> None:
    harness = MySqlHarness(sql_server, "id BIGINT PRIMARY KEY, v JSON", SCHEMA, load=load)
    sink = harness.opened()
    documents = {
        '{"n": 21312332514254356413641614614}': "MySQL would store",
        '{"d": 0.12345678901234567890}': "MySQL would store",
        '{"a": 1, "a": 2}': "one of the values of its key 'a'",
        f'{{"n": 0.{"0" * 400}1}}': "a number in it has 403 characters",
    }
    for number, (document, said) in enumerate(documents.items()):
        sent = [{"id": number, "v": document}]
        if isinstance(sql_server, MySqlService):
            with pytest.raises(RejectedRowsError, match="column 'v' cannot store") as caught:
                harness.write(sink, sent, checkpoint=number)
            assert said in str(caught.value)
        else:
            assert commit(sink, harness.write(sink, sent, checkpoint=number)) == [Committed()]
            assert harness.sql("SELECT v FROM target WHERE id = %s", number) == [(document,)]
    harness.sql("ALTER TABLE target MODIFY v TEXT")
    sink = harness.opened()
    sent = [{"id": 9, "v": document} for document in documents][:1]
    assert commit(sink, harness.write(sink, sent, checkpoint=9)) == [Committed()]


class Altering:
    """Alters the table once the first checkpoint is committed, and keeps what happened."""

    def __init__(self, harness: MySqlHarness, statement: str) -> None:
        self._harness = harness
        self._statement = statement
        self.declined: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted) and event.checkpoint == 0:
            self._harness.sql(self._statement)
        elif isinstance(event, CheckpointDeclined):
            self.declined.append(event.cause)


def run(
    harness: MySqlHarness, folder: Path, statement: str, **options: Any
) -> tuple[TwoPhaseError | None, Sequence[str]]:
    """Run a job of two micro-batches whose table is altered between them."""
    given = {"checkpointLocation": str(folder), **options}
    batches = [[harness.batch(rows(4)[start : start + 2])] for start in (0, 2)]
    seen = Altering(harness, statement)
    sinks = {"facts": harness.new_sink()}
    engine = plain_engine("altered", sinks, ListedRows(batches), given, seen)
    engine.start()
    try:
        engine.await_termination(60)
    except TwoPhaseError as error:
        return error, seen.declined
    return None, seen.declined


@pytest.mark.parametrize("tolerable", [0, 1], ids=["restarted", "retried in place"])
class TestAJob:
    def test_goes_on_by_the_altered_table_after_one_declined_attempt(
        self, sql_server_in_proof: Server, tmp_path: Path, tolerable: int
    ) -> None:
        harness = MySqlHarness(sql_server_in_proof, KEYED, SCHEMA)
        statement = "ALTER TABLE target MODIFY v VARCHAR(30), ADD may INT"
        options = {"checkpoint.tolerable_failures": tolerable}
        error, declined = run(harness, tmp_path, statement, **options)
        assert error is None
        assert len(declined) == 1
        assert "column 'v' is varchar(30)" in declined[0]
        assert harness.ids() == [0, 1, 2, 3]

    def test_ends_by_name_if_rows_no_longer_fit_the_table(
        self, sql_server_in_proof: Server, tmp_path: Path, tolerable: int
    ) -> None:
        harness = MySqlHarness(sql_server_in_proof, KEYED, SCHEMA)
        options = {"checkpoint.tolerable_failures": tolerable}
        error, declined = run(harness, tmp_path, "ALTER TABLE target DROP v", **options)
        assert isinstance(error, ConfigError)
        assert "v: the table has no such column" in str(error)
        assert len(declined) == 1
        assert harness.ids() == [0, 1]
