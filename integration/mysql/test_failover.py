"""A job whose MySQL server fails over to another one: what the other lacks is missed, what it
proves is gone on with.

The job's address leads to server A, or, from a failover on, to B. B is a copy of A by a dump, which
has neither what A committed later nor what is only prepared on A. MySQL has an id of its server,
MariaDB has none: there the copy of the bookkeeping tables makes B the same target by its name.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree
from typing import Any
from unittest import mock

import pymysql
import pytest

from harness.branches import branches, roll_back_branches
from harness.memory_driver import JOB, Driver, completed_of, decided, open_sinks
from harness.rights import secret_file
from harness.selection import first_of
from harness.tcp_proxy import Switchboard
from integration.mysql.sink_harness import Server, xid_sql
from twophase.contract.committable import Committable
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    DeclinedError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.events import CheckpointDeclined, PieceCommitted
from twophase.sinks.mysql.sink import MySqlSink
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord, Decision
from twophase.state.journal.history import Record
from twophase.state.journal.log import JobLog
from twophase.testing.services import MySqlService
from twophase.testing.services.access import SqlAccess

pytestmark = pytest.mark.part("mysql")

USER = "failing_over"
TARGET = "CREATE TABLE target (id BIGINT PRIMARY KEY) ENGINE = InnoDB"
DUMPED = (
    "target",
    "twophase_schema",
    "twophase_fence",
    "twophase_ledger",
    "twophase_high_water",
    "twophase_rewind",
    "twophase_target",
)

OTHER_SERVER = r"was the server \S+ when the attempt began, and is \S+ now"
REFUSED = (
    r"Checkpoints from 1 to 2 are missing in it.*Checkpoint 3 is decided and was not committed"
)


class World:
    """One job, its folder, an address that leads to one of two servers.

    Args:
        a: where it begins.
        b: where it fails over to.
        scratch: a folder for everything.
    """

    def __init__(self, a: Server, b: Server, scratch: Path) -> None:
        self.a, self.b = a, b
        self.has_server_id = isinstance(a, MySqlService)
        self.folder = scratch / "job"
        self.database = f"failover_{uuid.uuid4().hex[:12]}"
        password = secrets.token_hex(16)
        self._password_file = secret_file(scratch / "password", password)
        self._left = ExitStack()
        self.address = self._left.enter_context(Switchboard(a.host, a.port))
        for server in (a, b):
            self._give_account(server, password)
            server.create_database(self.database)
        self.sql(a, TARGET)

    def _give_account(self, server: Server, password: str) -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP USER IF EXISTS {USER}@'%'")
            cursor.execute(f"CREATE USER {USER}@'%' IDENTIFIED BY '{password}'")
            cursor.execute(f"GRANT ALL ON *.* TO {USER}@'%'")

    def close(self) -> None:
        self._left.close()
        for server in (self.a, self.b):
            roll_back_branches(server)
            self.sql(server, f"DROP USER {USER}@'%'")

    def driver(self) -> Driver:
        """A driver that has not recovered yet."""
        url = f"mysql://{USER}@127.0.0.1:{self.address.port}/{self.database}"
        options: dict[str, Any] = {"lock_wait_timeout": "1 s", "fence_timeout": "10 s"}
        sink = MySqlSink(url=url, table="target", password_file=str(self._password_file), **options)
        sinks = open_sinks({"facts": sink})
        self._left.callback(sinks["facts"].close)
        return Driver(self.folder, {}, sinks=sinks)

    def dump(self) -> None:
        """Let B have what A shows now, and nothing else."""
        with (
            closing(self.a.connect(self.database)) as a,
            closing(self.b.connect(self.database)) as b,
        ):
            a.begin()
            for table in DUMPED:
                _copy(a, b, table)

    def sql(self, server: SqlAccess, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Run a statement as an administrator."""
        with closing(server.connect(self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def ids(self, server: SqlAccess) -> list[int]:
        """The rows that a server shows."""
        return [row[0] for row in self.sql(server, "SELECT id FROM target ORDER BY id")]

    def everything(self) -> list[object]:
        """All that both servers have of the job, prepared branches too, and the decisions."""
        tables = [
            sorted(self.sql(server, f"SELECT * FROM {name}"))
            for server in (self.a, self.b)
            for name in DUMPED
        ]
        return [tables, sorted(branches(self.a)), sorted(branches(self.b)), self.decisions()]

    def decisions(self) -> list[Decision]:
        """What the log has decided."""
        return list(JobLog(LocalStorage(self.folder), JOB).read().decisions)

    def pieces(self, checkpoint: int) -> tuple[Committable, ...]:
        """The pieces of a decided checkpoint."""
        return tuple(completed_of(self.folder, checkpoint).committables["facts"])


def _copy(source: pymysql.Connection, to: pymysql.Connection, table: str) -> None:
    """As a dump does it: the table's definition, then its rows."""
    with source.cursor() as reading, to.cursor() as writing:
        reading.execute(f"SHOW CREATE TABLE {table}")
        [(_, definition)] = reading.fetchall()
        reading.execute(f"SELECT * FROM {table}")
        rows = reading.fetchall()
        writing.execute(f"DROP TABLE IF EXISTS {table}")
        writing.execute(definition)
        if rows:
            writing.executemany(
                f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows
            )


@pytest.fixture(
    scope="module",
    params=["own_mysql", pytest.param("own_mariadb", marks=pytest.mark.proof)],
    ids=["mysql", "mariadb"],
)
def two_servers(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    a = request.getfixturevalue(request.param)
    with type(a)(local_infile=True, own=True) as b:
        yield a, b


@pytest.fixture
def world(two_servers: tuple[Server, Server], tmp_path: Path) -> Iterator[World]:
    world = World(*two_servers, tmp_path)
    yield world
    world.close()


def run_all(driver: Driver, end: int) -> None:
    for number in range(end):
        driver.run(number)


def dies_decided(driver: Driver, number: int, *, committed: bool) -> None:
    """The driver dies with a checkpoint decided, and its rows committed on the server, or
    only prepared there.
    """
    append = driver.context.log.append

    def dies(record: Record) -> None:
        if isinstance(record, CommittedRecord):
            raise OSError("killed")
        append(record)

    if not committed:
        decided(driver, number)
        return
    with (
        mock.patch.object(driver.context.log, "append", dies),
        pytest.raises(OSError, match="killed"),
    ):
        driver.run(number)


def refused(world: World, error: type[StopJobError], match: str) -> StopJobError:
    """A start stops with an error, and nothing has changed on either server,
    nor in the decisions.
    """
    before = world.everything()
    driver = world.driver()
    with pytest.raises(error, match=match) as caught:
        driver.recover()
    assert world.everything() == before
    return caught.value


def back_on_a(world: World, number: int) -> None:
    """The address leads to A again: the next start goes on there, with every row once."""
    world.address.lead_to(world.a.port)
    driver = world.driver().recover()
    assert world.ids(world.a) == list(range(number * 10))
    driver.run(number)
    assert world.ids(world.a) == list(range(number * 10 + 10))
    assert all(decision.committed for decision in world.decisions())


# -- between two runs ------------------------------------------------------------------------------


def test_the_job_continues_on_a_replica_that_proves_its_decisions(world: World) -> None:
    driver = world.driver().recover()
    run_all(driver, 3)
    dies_decided(driver, 3, committed=True)
    assert not world.decisions()[-1].committed
    world.dump()
    world.address.lead_to(world.b.port)
    driver = world.driver().recover()
    assert [event.proof for event in driver.of(PieceCommitted)] == ["ledger row"] * 2
    assert world.decisions()[-1].committed
    assert world.ids(world.b) == list(range(40))
    driver.run(4)
    world.driver().recover().run(5)
    assert world.ids(world.b) == list(range(60))
    assert world.ids(world.a) == list(range(40))


@pytest.mark.parametrize(
    "waits", first_of(1, [False, True]), ids=["nothing waits", "a piece waits"]
)
def test_a_replica_that_lacks_what_the_log_calls_committed_stops_the_start(
    world: World, waits: bool
) -> None:
    driver = world.driver().recover()
    run_all(driver, 2)
    world.dump()
    driver.run(2)
    if waits:
        dies_decided(driver, 3, committed=True)
    world.address.lead_to(world.b.port)
    refused(
        world,
        TargetChangedError,
        r"checkpoint 2 .* knows up to 1 .*Checkpoints from 2 to 2 are missing in it",
    )
    back_on_a(world, 4 if waits else 3)


@pytest.mark.parametrize("committed", first_of(1, [False, True]), ids=["prepared", "committed"])
def test_a_replica_without_a_decided_piece_stops_the_start_and_the_old_server_has_it(
    world: World, committed: bool
) -> None:
    driver = world.driver().recover()
    run_all(driver, 3)
    world.dump()  # which takes nothing along that is only prepared
    dies_decided(driver, 3, committed=committed)
    assert len(branches(world.a)) == (0 if committed else 2)
    world.address.lead_to(world.b.port)
    if world.has_server_id:
        refused(
            world,
            TargetChangedError,
            r"orders.*which has no proof of it\. Nothing of it is committed here",
        )
    else:
        refused(
            world,
            LostCommittableError,
            "checkpoint 3 is decided, but 2 of its pieces are neither prepared nor committed",
        )
    assert world.ids(world.b) == list(range(30))
    back_on_a(world, 4)


def prepare_on(world: World, piece: Committable) -> None:
    """A replica that repeats what A was told has the same branch prepared, with its
    rows and its proof.
    """
    transaction, attempt = piece.transaction, piece.transaction.attempt
    first = transaction.checkpoint * 10 + piece.subtask.index * 5
    rows = ", ".join(f"({number})" for number in range(first, first + piece.rows))
    key = (
        f"'{transaction.job}', '{transaction.sink}', '{transaction.lineage}', "
        f"{transaction.checkpoint}, {attempt.generation}, {attempt.counter}, "
        f"{piece.subtask.index}, {piece.subtask.task_attempt}"
    )
    columns = (
        "job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt, row_count, "
        "offsets_hash"
    )
    with closing(world.b.connect(world.database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"XA START {xid_sql(piece)}")
        cursor.execute(f"INSERT INTO target VALUES {rows}")
        cursor.execute(f"INSERT INTO twophase_ledger ({columns}) VALUES ({key}, {piece.rows}, '')")
        cursor.execute(f"XA END {xid_sql(piece)}")
        cursor.execute(f"XA PREPARE {xid_sql(piece)}")


def test_a_replica_that_has_a_decided_piece_prepared_too_ends_with_its_rows_once(
    world: World,
) -> None:
    driver = world.driver().recover()
    run_all(driver, 3)
    world.dump()
    dies_decided(driver, 3, committed=False)
    for piece in world.pieces(3):
        prepare_on(world, piece)
    world.address.lead_to(world.b.port)
    world.driver().recover().run(4)
    assert world.ids(world.b) == list(range(50))
    assert branches(world.b) == []
    assert world.ids(world.a) == list(range(30))


# -- under a running driver ------------------------------------------------------------------------


def test_a_failover_between_two_triggers_to_a_replica_that_lags_gets_nothing_more(
    world: World,
) -> None:
    driver = world.driver().recover()
    driver.run(0)
    world.dump()
    driver.run(1)
    driver.run(2)
    world.address.lead_to(world.b.port)
    if world.has_server_id:  # the attempt is declined; the driver's own session is gone as well
        with pytest.raises(TargetUnreachableError) as caught:
            driver.run(3)
        [declined] = driver.of(CheckpointDeclined)
        assert re.search(OTHER_SERVER, declined.cause), caught.value
    else:
        with pytest.raises(TargetChangedError, match=REFUSED):
            driver.run(3)
    assert world.ids(world.b) == list(range(10)), "3 would hide for ever that 1 and 2 are gone"
    refused(
        world,
        TargetChangedError,
        r"checkpoint 2 .* knows up to 0 .*Checkpoints from 1 to 2 are missing",
    )
    catch_up(world)
    driver = world.driver().recover()
    for number in range(len(world.decisions()), 5):
        driver.run(number)
    assert world.ids(world.b) == list(range(50))
    assert world.ids(world.a) == list(range(30))


def catch_up(world: World) -> None:
    """Let B have what A has and it lacks. Of the two, what is prepared stays where it is."""
    for table in ("target", "twophase_ledger"):
        for row in set(world.sql(world.a, f"SELECT * FROM {table}")) - set(
            world.sql(world.b, f"SELECT * FROM {table}")
        ):
            world.sql(world.b, f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", *row)


@pytest.mark.parametrize(
    "lags", first_of(1, [True, False]), ids=["lags", "has all that is committed"]
)
def test_a_failover_between_the_phases_commits_nothing_there_and_the_old_server_has_it(
    world: World, lags: bool
) -> None:
    driver = world.driver().recover()
    driver.run(0)
    if lags:
        world.dump()
    driver.run(1)
    if not lags:
        world.dump()

    def fails_over(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        world.address.lead_to(world.b.port)

    error: type[StopJobError]
    if lags:
        error, said = TargetChangedError, "Checkpoints from 1 to 1 are missing in it"
    else:
        error, said = LostCommittableError, "2 of its pieces are neither prepared nor committed"
    with pytest.raises(error, match=said):
        driver.run(2, fails_over)
    assert world.ids(world.b) == list(range(10 if lags else 20))
    assert len(branches(world.a)) == 2
    back_on_a(world, 3)


def test_a_failover_between_the_phases_to_a_server_with_the_same_data_is_gone_on_with(
    world: World,
) -> None:
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)
    world.dump()

    def fails_over(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        for piece in pending.completed(0).committables["facts"]:
            prepare_on(world, piece)
        world.address.lead_to(world.b.port)

    driver.run(2, fails_over)
    if world.has_server_id:  # the tasks follow when the driver has raised the fence there
        with pytest.raises(DeclinedError, match=OTHER_SERVER):
            driver.run(3)
    driver.run(3)
    world.driver().recover().run(4)
    assert world.ids(world.b) == list(range(50))
    assert branches(world.b) == []


def copy_of_disk(server: Server, name: str) -> Path:
    """Kill the server and take a copy of its data before it comes back."""
    data = server.log.with_name("data")
    server.kill()
    copytree(data, data.with_name(name), ignore=ignore_patterns("*.sock*"))
    server.restart()
    return data.with_name(name)


def restore_disk(server: Server, copy: Path) -> None:
    data = server.log.with_name("data")
    server.kill()
    rmtree(data)
    copy.rename(data)
    server.restart()


@pytest.mark.proof
def test_a_server_that_comes_back_with_an_older_copy_of_its_data_gets_nothing_more(
    world: World,
) -> None:
    """It is the same one by every name and id that it has."""
    world.sql(world.b, TARGET)
    world.address.lead_to(world.b.port)
    driver = world.driver().recover()
    driver.run(0)
    older = copy_of_disk(world.b, "older")
    driver.run(1)
    driver.run(2)
    restore_disk(world.b, older)
    with pytest.raises(TargetChangedError, match=REFUSED):
        driver.run(3)
    assert world.ids(world.b) == list(range(10))
    assert len(branches(world.b)) == 2
