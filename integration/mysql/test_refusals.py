"""How a job ends that the server refuses something: by the number of the error, by when it comes
and by the server; each through the whole engine, with its exit code.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from harness.rights import secret_file
from harness.selection import first_of
from harness.tcp_proxy import RewritingProxy
from integration.mysql.plain_job import MySqlJob
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.coordinator.commit.failure_manager import SAME_FAILURES
from twophase.errors import (
    DeclinedError,
    PreflightError,
    RejectedRowsError,
    RepeatedFailureError,
    TargetUnreachableError,
)
from twophase.events import CheckpointDecided, CheckpointTriggered, CommitRetried, JobRestarting
from twophase.internals.redaction import shown
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(3)]

IDS = "id BIGINT PRIMARY KEY"
ONE = pa.schema([("id", pa.int64())])


@pytest.fixture
def harness(sql_server_in_proof: Server) -> MySqlHarness:
    return MySqlHarness(sql_server_in_proof, IDS, ONE)


# -- while rows are written ------------------------------------------------------------------------

AT_ONCE, REPEATED, FOR_EVER = RejectedRowsError, RepeatedFailureError, DeclinedError


@pytest.mark.parametrize("table", first_of(1, ["target", "twophase_ledger"]))
@pytest.mark.parametrize(
    ("state", "number", "end"),
    first_of(
        4,
        [
            ("22012", 1365, AT_ONCE),
            ("HY000", 1366, AT_ONCE),
            ("HY000", 1467, REPEATED),
            ("HY000", 1290, FOR_EVER),
            ("22001", 1406, AT_ONCE),
            ("23000", 1048, AT_ONCE),
            ("45000", 1644, AT_ONCE),
            ("HY000", 1301, AT_ONCE),
            ("HY000", 3819, AT_ONCE),
            ("HY000", 1205, REPEATED),
            ("40001", 1213, REPEATED),
            ("42S02", 1146, REPEATED),
            ("42000", 1142, REPEATED),
            ("HY000", 1665, REPEATED),
            ("HY000", 9999, REPEATED),
            ("HY000", 1114, FOR_EVER),
            ("42000", 1226, FOR_EVER),
            ("08S01", 1053, FOR_EVER),
        ],
    ),
)
def test_a_reply_to_a_writer(
    harness: MySqlHarness,
    tmp_path: Path,
    table: str,
    state: str,
    number: int,
    end: type[DeclinedError],
) -> None:
    harness.opened().close()
    harness.sql(
        f"CREATE TRIGGER refuses BEFORE INSERT ON {table} FOR EACH ROW"
        f" SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'on purpose'"
    )
    job = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]], load="insert")
    error = job.run()
    assert error is not None
    assert (type(error), error.exit_code) == (end, 1 if end is FOR_EVER else 3)
    assert f"on purpose' ({number})" in str(error)
    assert "Next: " in str(error)
    assert job.restarts == {AT_ONCE: 0, REPEATED: SAME_FAILURES - 1, FOR_EVER: 15}[end]
    assert job.leaves_nothing()
    harness.sql("DROP TRIGGER refuses")
    assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None
    assert harness.ids() == [1]


def test_what_a_trigger_lacks_is_named_and_the_job_goes_on_when_it_has_it(
    harness: MySqlHarness, tmp_path: Path
) -> None:
    audit, auditor = f"{harness.database}_audit", f"{harness.database}@'%'"
    harness.server.create_database(audit)
    harness.sql(f"CREATE TABLE {audit}.seen (id BIGINT) ENGINE = InnoDB")
    harness.sql(f"CREATE USER {auditor}")
    harness.sql(f"GRANT TRIGGER, INSERT ON {harness.database}.* TO {auditor}")
    harness.sql(
        f"CREATE DEFINER = {auditor} TRIGGER audits BEFORE INSERT ON target FOR EACH ROW"
        f" INSERT INTO {audit}.seen VALUES (1)"
    )
    error = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run()
    assert isinstance(error, RepeatedFailureError)
    assert f"INSERT command denied to user '{harness.database}'@" in error.what
    assert "change what the message names" in error.remedy
    harness.sql(f"GRANT INSERT ON {audit}.seen TO {auditor}")
    assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None
    assert harness.sql(f"SELECT id FROM {audit}.seen") == [(1,)]


# -- tasks that wait for each other ----------------------------------------------------------------

KEYED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.int64())])


MARK = "twophase_checkpoint"
MARKED = f"{MARK} VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin"


def keyed(*rows: tuple[int, str | None, int | None]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "v", "p"), row, strict=True)) for row in rows]


@pytest.mark.parametrize("load", first_of(1, ["local", "insert"]))
@pytest.mark.parametrize(
    ("ddl", "one", "other", "key", "columns"),
    [
        ("id BIGINT PRIMARY KEY, v TEXT, p BIGINT", keyed((1, "a", 1)), keyed((1, "b", 2)),
            "PRIMARY", ["id"]),
        ("id BIGINT, v VARCHAR(9), p BIGINT, UNIQUE KEY vs (v)", keyed((1, "a", 1), (2, "b", 1)),
            keyed((3, "c", 2), (4, "b", 1)), "vs", ["v"]),
        ("id BIGINT, v VARCHAR(9) COLLATE utf8mb4_general_ci, p BIGINT, UNIQUE KEY vs (v)",
            keyed((1, "straße", 1)), keyed((2, "STRASE", 1)), "vs", ["v"]),
        ("id BIGINT, v VARCHAR(9), p BIGINT, UNIQUE KEY both_of (p, v)", keyed((1, "a", 7)),
            keyed((2, "a", 7)), "both_of", ["p", "v"]),
        ("id BIGINT, v VARCHAR(9) COLLATE utf8mb4_unicode_ci PRIMARY KEY, p BIGINT",
            keyed((1, "Ä\\'", 7)), keyed((2, "a\\'", 7)), "PRIMARY", ["v"]),
    ],
    ids=["primary", "unique", "collation", "composite", "escapes"],
)  # fmt: skip
def test_one_key_in_two_tasks_ends_the_job_and_is_named(
    sql_server_in_proof: Server,
    tmp_path: Path,
    ddl: str,
    one: Any,
    other: Any,
    key: str,
    columns: list[str],
    load: str,
) -> None:
    """Which of the two tasks is first is chance. The rows tell whose they are."""
    harness = MySqlHarness(sql_server_in_proof, f"{ddl}, {MARKED}", KEYED, checkpoint_column=MARK)
    job = MySqlJob(harness, tmp_path / "job", [[one, other]], load=load)
    error = job.run()
    assert isinstance(error, RejectedRowsError)
    values = [shown([rows[-1][column] for column in columns]) for rows in (one, other)]
    where = f"`{harness.database}`.`target`, key `{key}`: "
    assert any(f"{where}{value}." in str(error) for value in values)
    assert "drop duplicates" in error.remedy
    assert job.restarts == 0
    assert job.leaves_nothing()
    assert MySqlJob(harness, tmp_path / "job", [[one, other[:-1]]], load=load).run() is None


def test_a_key_in_two_tasks_that_may_be_a_strangers_ends_the_job_at_the_third_attempt(
    harness: MySqlHarness, tmp_path: Path
) -> None:
    job = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}], [{"id": 1}]]])
    error = job.run()
    assert isinstance(error, RepeatedFailureError)
    assert "another task of the same attempt has written it, or somebody else" in str(error)
    assert job.restarts == 2
    assert job.leaves_nothing()
    assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None


@pytest.mark.parametrize("load", first_of(1, ["local", "insert"]))
def test_rows_of_one_table_that_refer_to_each_other_belong_in_one_task(
    sql_server_in_proof: Server, tmp_path: Path, load: str
) -> None:
    ddl = (
        f"id BIGINT PRIMARY KEY, v TEXT, p BIGINT, {MARKED}, FOREIGN KEY (p) REFERENCES target (id)"
    )
    harness = MySqlHarness(sql_server_in_proof, ddl, KEYED, checkpoint_column=MARK)
    parents, children = keyed((1, "a", None)), keyed((2, "b", 1))
    job = MySqlJob(harness, tmp_path / "job", [[parents, children]], load=load, io_timeout="3 s")
    error = job.run()
    assert isinstance(error, RejectedRowsError)
    assert "coalesce(1) and sortWithinPartitions" in error.remedy
    assert job.restarts == 0
    assert job.leaves_nothing()
    assert MySqlJob(harness, tmp_path / "job", [[parents + children]], load=load).run() is None
    assert harness.ids() == [1, 2]


@pytest.mark.parametrize("load", first_of(1, ["local", "insert"]))
def test_rows_that_refer_to_others_pass_when_these_are_written_first(
    sql_server_in_proof: Server, tmp_path: Path, load: str
) -> None:
    ddl = "id BIGINT PRIMARY KEY, v TEXT, p BIGINT, FOREIGN KEY (p) REFERENCES target (id)"
    harness = MySqlHarness(sql_server_in_proof, ddl, KEYED)
    parents, children = keyed((1, "a", None)), keyed((2, "b", 1))
    error = MySqlJob(harness, tmp_path / "job", [[children]], load=load).run()
    assert isinstance(error, RejectedRowsError)
    assert error.remedy.endswith("otherwise write the rows that are referred to first.")
    assert MySqlJob(harness, tmp_path / "job", [[parents], [children]], load=load).run() is None
    assert harness.ids() == [1, 2]


@pytest.mark.proof
def test_a_row_that_a_trigger_writes_for_all_tasks_ends_the_job_in_the_end(
    harness: MySqlHarness, tmp_path: Path
) -> None:
    harness.sql("CREATE TABLE counter (n BIGINT) ENGINE = InnoDB")
    harness.sql("INSERT INTO counter VALUES (0)")
    harness.sql(
        "CREATE TRIGGER counts AFTER INSERT ON target FOR EACH ROW UPDATE counter SET n = n + 1"
    )
    tasks = [[{"id": 1}], [{"id": 2}]]
    job = MySqlJob(harness, tmp_path / "job", [tasks])
    error: RepeatedFailureError = job.run_until_repeated()
    assert f"the AFTER INSERT trigger `{harness.database}`.`counts`" in error.remedy
    assert job.leaves_nothing()
    assert MySqlJob(harness, tmp_path / "job", [[tasks[0] + tasks[1]]]).run() is None
    assert harness.sql("SELECT n FROM counter") == [(2,)]


def test_a_key_that_somebody_else_holds_is_waited_for(
    harness: MySqlHarness, tmp_path: Path
) -> None:
    other = harness.server.connect(harness.database)
    other.begin()
    other.cursor().execute("INSERT INTO target VALUES (1)")
    job = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]])
    job.on(JobRestarting, other.rollback, at=2)
    assert job.run() is None
    assert job.restarts == 2
    assert harness.ids() == [1]
    other.close()


# -- rows and counters -----------------------------------------------------------------------------


@pytest.fixture
def small_packets(sql_server_in_proof: Server) -> Iterator[int]:
    """The longest packet that the server takes meanwhile, in bytes."""
    limit = 512 * 1024
    with closing(sql_server_in_proof.connect()) as admin, admin.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        [(before,)] = cursor.fetchall()
        cursor.execute(f"SET GLOBAL max_allowed_packet = {limit}")
        yield limit
        cursor.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_row_longer_than_a_packet_is_named_with_both_sizes(
    sql_server_in_proof: Server, tmp_path: Path, small_packets: int
) -> None:
    schema = pa.schema([("v", pa.string())])
    harness = MySqlHarness(sql_server_in_proof, "v LONGTEXT", schema)
    limit = small_packets
    head = len(f"INSERT INTO `{harness.database}`.`target` (`v`) VALUES ('')")
    fits = "x" * (limit - head - 2)
    batches = [[[{"v": "short"}, {"v": text}]] for text in (fits, fits + "x")]
    assert MySqlJob(harness, tmp_path / "job", batches[:1], load="insert").run() is None
    job = MySqlJob(harness, tmp_path / "job", batches, load="insert")
    error = job.run()
    assert isinstance(error, RejectedRowsError)
    assert f"a statement of {limit - 1:,} bytes" in str(error)
    assert f"the server takes less than {limit:,}" in str(error)
    assert "{'v': 'xxxx" in str(error)
    assert job.restarts == 0
    assert MySqlJob(harness, tmp_path / "job", batches, load="local").run() is None
    assert harness.sql("SELECT COUNT(*) FROM target") == [(4,)]


@pytest.mark.parametrize("load", ["insert", "local"])
def test_a_document_about_as_long_as_a_packet_is_stored_or_named(
    sql_server_in_proof: Server, tmp_path: Path, small_packets: int, load: str
) -> None:
    """Each has a number that MySQL is asked about."""
    schema = pa.schema([("v", pa.string())])
    is_mysql, is_local = isinstance(sql_server_in_proof, MySqlService), load == "local"
    documents = [
        ("0.100000000000000000", -60, "" if is_local else "takes less than"),
        (
            "0.100000000000000000",
            60,
            "raise max_allowed_packet" if is_mysql or not is_local else "",
        ),
        ("1e-400", 60, "MySQL would store" if is_mysql else "" if is_local else "takes less than"),
    ]
    for number, (value, more, said) in enumerate(documents):
        document = f'{{"d": {value}, "t": "{"x" * (small_packets + more)}"}}'
        harness = MySqlHarness(sql_server_in_proof, "v JSON", schema)
        job = MySqlJob(harness, tmp_path / f"{number}", [[[{"v": document}]]], load=load)
        error = job.run()
        assert type(error) is (RejectedRowsError if said else type(None)), str(error)
        assert said in str(error)
        assert job.restarts == 0
        if error is not None and "raise max_allowed_packet" in error.remedy:
            harness.sql(f"SET GLOBAL max_allowed_packet = {8 * small_packets}")
            assert MySqlJob(harness, tmp_path / f"{number}", [[[{"v": document}]]]).run() is None
            harness.sql(f"SET GLOBAL max_allowed_packet = {small_packets}")
        if not said:
            [(stored,)] = harness.sql("SELECT v FROM target")
            assert json.loads(stored) == json.loads(document)


@pytest.mark.proof
@pytest.mark.parametrize("kind", [MySqlService, MariaDbService])
def test_a_counter_that_serialises_the_tasks_makes_them_slower_and_declines_nothing(
    kind: type[Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ["--innodb-autoinc-lock-mode=1"]
    with kind(own=True, local_infile=True, server_options=options) as server:
        schema = pa.schema([("v", pa.string())])
        harness = MySqlHarness(server, "id BIGINT AUTO_INCREMENT PRIMARY KEY, v TEXT", schema)
        harness.sql(
            "CREATE TRIGGER slow AFTER INSERT ON target FOR EACH ROW SET @slept = SLEEP(0.7)"
        )
        tasks = [[{"v": f"{task} {row}"} for row in range(2)] for task in range(4)]
        job = MySqlJob(harness, tmp_path / "job", [tasks])
        assert job.run() is None
        assert job.restarts == 0
        assert harness.sql("SELECT COUNT(*) FROM target") == [(8,)]
    assert "innodb_autoinc_lock_mode is not 2" in caplog.text


# -- before the sink is open -----------------------------------------------------------------------

PASSWORD, OTHER_PASSWORD = "first-7e1d", "second-99a0"


class Account:
    """An account of a careful administrator, with a password file.

    Attributes:
        name: of it.
        harness: its table.
    """

    def __init__(self, harness: MySqlHarness, folder: Path) -> None:
        self.harness, self.name = harness, f"{harness.database}"
        self.file = secret_file(folder / "password", PASSWORD)
        self.sql(f"CREATE USER {self} IDENTIFIED BY '{PASSWORD}'")
        self.sql(f"GRANT ALL ON {harness.database}.* TO {self}")
        if isinstance(harness.server, MySqlService):
            self.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {self}")

    def __str__(self) -> str:
        return f"{self.name}@'%'"

    def sql(self, statement: str) -> None:
        self.harness.sql(statement)

    def options(self, **others: str) -> dict[str, Any]:
        server = self.harness.server
        url = f"mysql://{self.name}@{server.host}:{server.port}/{self.harness.database}"
        given = {"url": url, "password_env": None, "password_file": str(self.file)}
        return given | others

    def end_sessions(self) -> None:
        self.harness.end_sessions(self.name)


@pytest.fixture
def account(harness: MySqlHarness, tmp_path: Path) -> Iterator[Account]:
    account = Account(harness, tmp_path)
    yield account
    account.sql(f"DROP USER {account}")


@dataclass(frozen=True)
class Refusal:
    """A state of the server, or of the account `{}`, in which it refuses.

    Attributes:
        breaks: SQL that an administrator runs.
        mends: SQL that ends it.
        remedy: a part of what the error says about it.
        on: the servers that have it.
        password: what is written to the file when it is mended.
    """

    breaks: str
    mends: str
    remedy: str
    on: tuple[type[Server], ...] = (MySqlService, MariaDbService)
    password: str = PASSWORD


LOGIN = {
    "password": Refusal(
        f"ALTER USER {{}} IDENTIFIED BY '{OTHER_PASSWORD}'",
        "DO 0",
        "password_file",
        password=OTHER_PASSWORD,
    ),
    "locked": Refusal("ALTER USER {} ACCOUNT LOCK", "ALTER USER {} ACCOUNT UNLOCK", "UNLOCK"),
    "expired": Refusal(
        "ALTER USER {} PASSWORD EXPIRE",
        f"ALTER USER {{}} IDENTIFIED BY '{OTHER_PASSWORD}'",
        "new password",
        password=OTHER_PASSWORD,
    ),
    "tls of the account": Refusal("ALTER USER {} REQUIRE SSL", "ALTER USER {} REQUIRE NONE", "tls"),
    "rights": Refusal(
        "REVOKE ALL ON {0.name}.* FROM {0}", "GRANT ALL ON {0.name}.* TO {0}", "GRANT"
    ),
    "listing branches": Refusal(
        "REVOKE XA_RECOVER_ADMIN ON *.* FROM {}",
        "GRANT XA_RECOVER_ADMIN ON *.* TO {}",
        "GRANT XA_RECOVER_ADMIN",
        on=(MySqlService,),
    ),
}

STATES = {
    "queries": Refusal(
        "ALTER USER {} WITH MAX_QUERIES_PER_HOUR 1",
        "ALTER USER {} WITH MAX_QUERIES_PER_HOUR 0",
        "account's limit",
    ),
    "read-only": Refusal("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "primary"),
    "read-only for administrators": Refusal(
        "SET GLOBAL super_read_only = 1",
        "SET GLOBAL super_read_only = 0, read_only = 0",
        "primary",
        on=(MySqlService,),
    ),
    "offline": Refusal(
        "SET GLOBAL offline_mode = 1",
        "SET GLOBAL offline_mode = 0",
        "remove what the message names",
        on=(MySqlService,),
    ),
}


def refusal_on(account: Account, name: str) -> Refusal:
    """The refusal of that name, if the account's server has it."""
    refusal = (LOGIN | STATES)[name]
    if not isinstance(account.harness.server, refusal.on):
        pytest.skip("this server has no such right")
    return refusal


@contextmanager
def broken(account: Account, refusal: Refusal) -> Iterator[None]:
    account.sql(refusal.breaks.format(account))
    try:
        yield
    finally:
        mend(account, refusal)


def mend(account: Account, refusal: Refusal) -> None:
    account.sql(refusal.mends.format(account))
    account.file.write_text(refusal.password)


@pytest.mark.parametrize("refused", first_of(1, LOGIN))
def test_what_refuses_a_start_is_named_with_its_number_and_the_way_on(
    account: Account, tmp_path: Path, refused: str
) -> None:
    refusal = refusal_on(account, refused)
    run = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
    with broken(account, refusal):
        error = run.run()
    assert isinstance(error, PreflightError), repr(error)
    assert error.exit_code == 2
    assert refusal.remedy in str(error)
    assert re.search(r" \(\d{4}\)\.", str(error)), "it has the number"
    again = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
    assert again.run() is None
    assert account.harness.ids() == [1]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("state", first_of(1, STATES))
def test_a_server_that_takes_nothing_for_now_has_a_start_repeated(
    account: Account, tmp_path: Path, state: str, *, begun: bool
) -> None:
    """As the one of a failover does that is not the primary yet."""
    refusal = refusal_on(account, state)

    def job(last: int) -> MySqlJob:
        batches = [[[{"id": number}]] for number in range(last)]
        return MySqlJob(account.harness, tmp_path / "job", batches, **account.options())

    if begun:
        assert job(1).run() is None
    with broken(account, refusal):
        error = job(2).run()
    assert isinstance(error, TargetUnreachableError), repr(error)
    assert error.exit_code == 1
    assert refusal.remedy in str(error)
    assert job(2).run() is None
    assert account.harness.ids() == [0, 1]


def test_the_rights_of_a_role_count_once_it_is_the_default(
    account: Account, tmp_path: Path
) -> None:
    role, database = f"{account.name}_role", account.harness.database
    account.sql(f"CREATE ROLE {role}")
    account.sql(f"GRANT ALL ON {database}.* TO {role}")
    account.sql(f"GRANT {role} TO {account}")
    account.sql(f"REVOKE ALL ON {database}.* FROM {account}")
    is_mysql = isinstance(account.harness.server, MySqlService)
    try:
        run = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
        error = run.run()
        assert isinstance(error, PreflightError)
        assert "SET DEFAULT ROLE" in error.remedy
        account.sql(f"SET DEFAULT ROLE {role} {'TO' if is_mysql else 'FOR'} {account}")
        again = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
        assert again.run() is None
    finally:
        account.sql(f"DROP ROLE {role}")
    assert account.harness.ids() == [1]


def test_a_server_without_a_free_connection_is_named_and_takes_the_job_when_it_has_more(
    account: Account, tmp_path: Path
) -> None:
    def job() -> MySqlJob:
        return MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())

    server, taken = account.harness.server, ExitStack()

    def take_all() -> None:
        for _ in range(11):
            one = pymysql.connect(
                host=server.host, port=server.port, user=account.name, password=PASSWORD
            )
            taken.enter_context(one)

    with taken:
        with changing(server, "max_connections", "10") as change:
            change()
            with pytest.raises(pymysql.OperationalError, match="1040"):
                take_all()
            error = job().run()
        assert isinstance(error, TargetUnreachableError), repr(error)
        assert "(1040)" in error.what
        assert "raise max_connections" in error.remedy
        assert job().run() is None
    assert account.harness.ids() == [1]


def test_a_server_that_requires_tls_is_named(account: Account, tmp_path: Path) -> None:
    on = Refusal(
        "SET GLOBAL require_secure_transport = 1", "SET GLOBAL require_secure_transport = 0", "tls"
    )
    run = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
    with closing(account.harness.server.connect()) as admin, admin.cursor() as cursor:
        try:
            cursor.execute(on.breaks)
        except pymysql.Error:
            pytest.skip("this server has no certificate, and refuses the setting")
        try:
            error = run.run()
            options = account.options(tls="insecure")
            again = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **options).run()
        finally:
            cursor.execute(on.mends)
    assert isinstance(error, PreflightError), repr(error)
    assert on.remedy in error.remedy
    if isinstance(account.harness.server, MySqlService):  # MariaDB has no certificate here
        assert "set `tls=verify_identity`" in error.remedy
        assert again is None
        assert account.harness.ids() == [1]


def test_an_account_that_the_server_blocks_is_let_in_by_the_statement_that_its_message_names(
    account: Account, tmp_path: Path
) -> None:
    server = account.harness.server
    if not isinstance(server, MariaDbService):
        pytest.skip("MySQL 8.0.12 blocks no account")
    with changing(server, "max_password_errors", "1") as change:
        change()
        with pytest.raises(pymysql.OperationalError, match="1045"):
            pymysql.connect(
                host=server.host, port=server.port, user=account.name, password=OTHER_PASSWORD
            )
        error = MySqlJob(
            account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options()
        ).run()
        assert isinstance(error, PreflightError), repr(error)
        assert "(4150)" in error.what
        assert "change what the message names" in error.remedy
        [statement] = re.findall("unblock with 'ALTER USER / (.*)'", error.what)
        account.sql(statement)
        again = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
        assert again.run() is None
    assert account.harness.ids() == [1]


@pytest.mark.parametrize(
    ("asked", "instead", "said"),
    [
        (rb"time_zone = '\+00:00'", b"time_zone = '+01:00'", "The session did not keep"),
        (rb"CONNECTION_ID\(\), @@sql_mode", b"1, @@sql_mode", "A proxy answered"),
    ],
    ids=["settings", "pool"],
)
def test_a_proxy_that_answers_for_the_session_is_named_and_the_server_itself_is_taken(
    harness: MySqlHarness, tmp_path: Path, asked: bytes, instead: bytes, said: str
) -> None:
    server = harness.server
    with RewritingProxy(server.host, server.port, asked, instead) as proxy:
        url = f"mysql://{server.user}@127.0.0.1:{proxy.port}/{harness.database}"
        error = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]], url=url).run()
    assert isinstance(error, PreflightError), repr(error)
    assert said in error.what
    assert error.remedy.startswith("connect to the server itself")
    assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None
    assert harness.ids() == [1]


def test_a_server_that_does_not_know_xa_is_named(harness: MySqlHarness, tmp_path: Path) -> None:
    server = harness.server
    with RewritingProxy(server.host, server.port, b"XA RECOVER", b"XZ RECOVER") as proxy:
        url = f"mysql://{server.user}@127.0.0.1:{proxy.port}/{harness.database}"
        error = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]], url=url).run()
    assert isinstance(error, PreflightError), repr(error)
    assert "(1064)" in str(error)
    assert "needs XA transactions" in error.remedy
    assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None


@pytest.mark.proof
@pytest.mark.parametrize("kind", [MySqlService, MariaDbService])
def test_a_binary_log_of_statements_is_named(kind: type[Server], tmp_path: Path) -> None:
    options = ["--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--binlog-format=STATEMENT"]
    with kind(own=True, server_options=options) as server:
        harness = MySqlHarness(server, IDS, ONE, allow_unsafe_durability=True)
        error = MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run()
        assert isinstance(error, PreflightError), repr(error)
        assert "SET GLOBAL binlog_format = 'ROW'" in str(error)
        harness.sql("SET GLOBAL binlog_format = 'ROW'")
        assert MySqlJob(harness, tmp_path / "job", [[[{"id": 1}]]]).run() is None


# -- after it --------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", first_of(1, LOGIN))
@pytest.mark.parametrize("when", ["write", "commit"])
def test_what_refuses_a_running_job_is_waited_for(
    account: Account, tmp_path: Path, refused: str, when: str
) -> None:
    refusal = refusal_on(account, refused)
    batches = [[[{"id": number}]] for number in range(3)]
    job = MySqlJob(account.harness, tmp_path / "job", batches, **account.options())

    def breaks() -> None:
        account.sql(refusal.breaks.format(account))
        account.end_sessions()

    job.on(CheckpointTriggered if when == "write" else CheckpointDecided, breaks, at=2)
    for failure in (JobRestarting, CommitRetried):
        job.on(failure, lambda: mend(account, refusal), at=3)
    assert job.run() is None
    failures = [event for event in job.events if isinstance(event, JobRestarting | CommitRetried)]
    assert any(refusal.remedy in str(event) for event in failures)
    assert account.harness.ids() == [0, 1, 2]
    assert job.leaves_nothing()


@pytest.mark.parametrize("refused", first_of(1, LOGIN))
def test_a_start_that_is_refused_keeps_what_was_decided_and_the_mended_one_commits_it(
    account: Account, tmp_path: Path, refused: str
) -> None:
    """The job was down when somebody changed the password: a new process has served nobody yet."""
    refusal = refusal_on(account, refused)
    batches = [[[{"id": number}]] for number in range(3)]

    def job() -> MySqlJob:
        return MySqlJob(account.harness, tmp_path / "job", batches, **account.options())

    def breaks() -> None:
        account.sql(refusal.breaks.format(account))
        account.end_sessions()

    first = job()
    first.on(CheckpointDecided, breaks, at=2)
    first.on(CommitRetried, first.stop)
    first.run()
    decided = account.harness.branches()
    assert decided
    error = job().run()
    assert isinstance(error, PreflightError), repr(error)
    assert error.exit_code == 2
    assert refusal.remedy in str(error)
    assert account.harness.branches() == decided
    mend(account, refusal)
    last = job()
    assert last.run() is None
    assert account.harness.ids() == [0, 1, 2]
    assert last.leaves_nothing()


@pytest.mark.parametrize("load", ["auto", "local"])
def test_load_data_that_is_forbidden_under_a_job_is_found_by_the_next_attempt(
    harness: MySqlHarness, tmp_path: Path, load: str
) -> None:
    batches = [[[{"id": number}]] for number in range(3)]
    job = MySqlJob(harness, tmp_path / "job", batches, load=load)
    with changing(harness.server, "local_infile", "0") as change:
        job.on(CheckpointDecided, change)
        error = job.run()
        assert job.restarts == (load == "auto")
        assert job.leaves_nothing()
        if load == "local":
            assert isinstance(error, PreflightError)
            assert (error.exit_code, harness.ids()) == (2, [0])
            assert "local_infile = 1, or use `load=auto`" in error.remedy
            error = MySqlJob(harness, tmp_path / "job", batches, load="auto").run()
        assert error is None
    assert harness.ids() == [0, 1, 2]


def test_a_shorter_packet_under_a_job_is_found_by_the_next_attempt(
    harness: MySqlHarness, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    harness = MySqlHarness(harness.server, "id BIGINT PRIMARY KEY, v LONGTEXT", schema)
    rows = [{"id": number, "v": "x" * 30_000} for number in range(20)]
    job = MySqlJob(harness, tmp_path / "job", [[rows[:1]], [rows[1:]]], load="insert")
    with changing(harness.server, "max_allowed_packet", "131072") as change:
        job.on(CheckpointDecided, change)
        assert job.run() is None
    assert job.restarts == 1
    assert harness.ids() == list(range(20))


# -- settings --------------------------------------------------------------------------------------

BOTH, MYSQL, MARIADB = (MySqlService, MariaDbService), (MySqlService,), (MariaDbService,)
HOSTILE = [
    ("completion_type", "'RELEASE'", BOTH),
    ("idle_transaction_timeout", "1", MARIADB),
    ("sql_select_limit", "0", BOTH),
    ("idle_write_transaction_timeout", "1", MARIADB),
    ("idle_readonly_transaction_timeout", "1", MARIADB),
    ("sql_mode", "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", BOTH),
    ("sql_mode", "'PAD_CHAR_TO_FULL_LENGTH'", BOTH),
    ("sql_mode", "'ORACLE'", MARIADB),
    ("sql_mode", "''", BOTH),
    ("transaction_read_only", "1", MYSQL),
    ("tx_read_only", "1", MARIADB),
    ("autocommit", "0", BOTH),
    ("lock_wait_timeout", "1", BOTH),
    ("innodb_lock_wait_timeout", "1", BOTH),
    ("net_read_timeout", "1", BOTH),
    ("net_write_timeout", "1", BOTH),
    ("wait_timeout", "1", BOTH),
    ("interactive_timeout", "1", BOTH),
    ("time_zone", "'+09:00'", BOTH),
    ("max_error_count", "0", BOTH),
    ("transaction_isolation", "'SERIALIZABLE'", MYSQL),
    ("tx_isolation", "'SERIALIZABLE'", MARIADB),
    ("max_execution_time", "1", MYSQL),
    ("max_statement_time", "0.001", MARIADB),
    ("sql_safe_updates", "1", BOTH),
    ("foreign_key_checks", "0", BOTH),
    ("unique_checks", "0", BOTH),
    ("check_constraint_checks", "0", MARIADB),
    ("max_join_size", "1", BOTH),
    ("sql_auto_is_null", "1", BOTH),
    ("sql_buffer_result", "1", BOTH),
    ("sql_notes", "0", BOTH),
    ("sql_quote_show_create", "0", BOTH),
    ("show_create_table_verbosity", "1", MYSQL),
    ("lc_time_names", "'zh_CN'", BOTH),  # ja_JP needs a file of messages that MySQL may lack
    ("character_set_filesystem", "'utf16'", BOTH),
    ("character_set_server", "'latin1'", BOTH),
    ("character_set_client", "'latin1'", BOTH),
    ("character_set_connection", "'latin1'", BOTH),
    ("character_set_results", "'latin1'", BOTH),
    ("collation_connection", "'utf8mb4_bin'", BOTH),
    ("explicit_defaults_for_timestamp", "0", BOTH),
    ("group_concat_max_len", "4", BOTH),
    ("auto_increment_increment", "7", BOTH),
    ("div_precision_increment", "0", BOTH),
    ("max_sort_length", "64", BOTH),
    ("default_week_format", "7", BOTH),
    ("innodb_strict_mode", "0", BOTH),
    ("default_storage_engine", "MyISAM", BOTH),
    ("old_mode", "'NO_DUP_KEY_WARNINGS_WITH_IGNORE,ZERO_DATE_TIME_CAST'", MARIADB),
    ("query_cache_type", "1", MARIADB),
    ("sql_if_exists", "1", MARIADB),
    ("innodb_snapshot_isolation", "1", MARIADB),
    ("system_versioning_asof", "'2001-01-01 00:00:00'", MARIADB),
    ("system_versioning_alter_history", "KEEP", MARIADB),
]
DUE = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.string())])


def due(number: int) -> dict[str, Any]:
    at = datetime(2026, 3, 29, 2, 30, number, 500_000, tzinfo=UTC)
    return {"id": number, "at": at, "v": f"{number}é\\'\""}


@contextmanager
def changing(server: Server, name: str, value: str) -> Iterator[Callable[[], object]]:
    """Give what changes a default of the server; it has the one from before in the end."""
    with closing(server.connect()) as admin, admin.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        [(before,)] = cursor.fetchall()
        before = "DEFAULT" if name == "system_versioning_asof" else admin.escape(before)
        try:
            yield lambda: cursor.execute(f"SET GLOBAL {name} = {value}")
        finally:
            cursor.execute(f"SET GLOBAL {name} = {before}")


@pytest.mark.parametrize("when", ["before the start", "under the job"])
@pytest.mark.parametrize(("name", "value", "on"), first_of(3, HOSTILE))
def test_a_default_of_the_server_changes_no_row_and_ends_no_job(
    sql_server_in_proof: Server,
    tmp_path: Path,
    name: str,
    value: str,
    on: tuple[type[Server], ...],
    when: str,
) -> None:
    """Deadlines of statements are in milliseconds on MySQL, in seconds on MariaDB."""
    if not isinstance(sql_server_in_proof, on):
        pytest.skip("this server has no such setting")
    ddl = "id BIGINT PRIMARY KEY, at TIMESTAMP(6) NOT NULL, v CHAR(9) CHARACTER SET utf8mb4"
    harness = MySqlHarness(sql_server_in_proof, ddl, DUE)
    batches = [[[due(2 * number)], [due(2 * number + 1)]] for number in range(3)]
    job = MySqlJob(harness, tmp_path / "job", batches)
    changed: list[object] = []
    with changing(sql_server_in_proof, name, value) as change:
        if when == "before the start":
            change()
        else:
            job.on(CheckpointDecided, lambda: changed.append(change()))
        assert job.run() is None
    assert len(changed) == (when == "under the job")
    assert job.restarts == 0
    stored = harness.sql("SELECT id, UNIX_TIMESTAMP(at), v FROM target ORDER BY id")
    rows = [due(number) for number in range(6)]
    assert stored == [(row["id"], row["at"].timestamp(), row["v"]) for row in rows]
    assert job.leaves_nothing()


AT_LOGIN = {
    "a transaction": "BEGIN",
    "a transaction without an end": "SET completion_type = CHAIN; BEGIN",
    "read only": "SET SESSION TRANSACTION READ ONLY; START TRANSACTION READ ONLY",
    "a snapshot": "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "an audit": "SET autocommit = 0; INSERT INTO {0.harness.database}.logins SELECT USER()",
    "other texts": "SET NAMES latin1",
    "another database": "USE information_schema",
    "any value": "SET SESSION sql_mode = '', time_zone = '+09:00', unique_checks = 0",
}


@pytest.mark.parametrize("login", first_of(2, AT_LOGIN))
def test_what_an_administrator_begins_at_each_login_is_ended_as_any_client_ends_it(
    account: Account, tmp_path: Path, login: str
) -> None:
    """Accounts with SUPER are spared `init_connect`."""
    account.sql("CREATE TABLE logins (name VARCHAR(300))")
    server = account.harness.server
    statements = AT_LOGIN[login].format(account).replace("'", "''")
    run = MySqlJob(account.harness, tmp_path / "job", [[[{"id": 1}]]], **account.options())
    with changing(server, "init_connect", f"'{statements}'") as change:
        change()
        assert run.run() is None
    assert account.harness.ids() == [1]
    if login == "an audit":
        assert account.harness.sql("SELECT DISTINCT SUBSTRING_INDEX(name, '@', 1) FROM logins") == [
            (account.name,)
        ]


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("wait_timeout", BOTH),
        ("net_read_timeout", BOTH),
        ("idle_transaction_timeout", MARIADB),
        ("idle_write_transaction_timeout", MARIADB),
    ],
)
def test_the_server_waits_for_a_task_that_pauses(
    sql_server_in_proof: Server, name: str, on: tuple[type[Server], ...]
) -> None:
    if not isinstance(sql_server_in_proof, on):
        pytest.skip("this server has no such setting")
    harness = MySqlHarness(sql_server_in_proof, IDS, ONE)
    with changing(sql_server_in_proof, name, "1") as change, closing(harness.opened()) as sink:
        change()
        writer = harness.begun(sink, [1])
        time.sleep(2)  # longer than the default allows
        session = writer._session
        assert session is not None

        def rows() -> Iterator[memoryview]:
            yield memoryview(b"2\n")
            time.sleep(2)
            yield memoryview(b"3\n")

        statement = "LOAD DATA LOCAL INFILE {file} INTO TABLE target (id)"
        assert session.load(statement, rows()).affected == 2
        time.sleep(2)
        piece = writer.pre_commit()
        assert piece is not None
        assert commit(sink, piece) == [Committed()]
    assert harness.ids() == [1, 2, 3]
