"""What only a catalog in MySQL does."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from harness.certificate_authority import Authority
from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import MySqlPlace
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, PreflightError, TargetUnreachableError
from twophase.testing.harness import fresh_name
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("files"), pytest.mark.server]


@pytest.fixture
def harness(mysql: MySqlService, tmp_path: Path) -> IcebergHarness:
    return IcebergHarness(MySqlPlace(tmp_path / "lake", mysql))


def test_a_database_without_a_catalog_is_left_as_it_is(harness: IcebergHarness) -> None:
    before = harness.contents()
    harness.new_sink().check_connection()
    with pytest.raises(ConfigError, match="There is no table") as caught:
        harness.opened(create=False)
    assert "`create=true`" in caught.value.remedy
    assert harness.contents() == before


@pytest.fixture
def account(mysql: MySqlService, tmp_path: Path) -> Iterator[Account]:
    """Of MySQL, without any right."""
    with closing(mysql.connect()) as admin:
        yield Account(admin, fresh_name("reader"), tmp_path / "password")


class Account:
    def __init__(self, admin: pymysql.Connection, name: str, password_file: Path) -> None:
        self.admin, self.name, self.password_file = admin, name, password_file
        self.run(f"CREATE USER {name} IDENTIFIED BY 'sesame'")
        password_file.write_text("sesame")

    def run(self, statement: str) -> None:
        with self.admin.cursor() as cursor:
            cursor.execute(statement)

    def grant(self, schema: str) -> None:
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE"
        self.run(f"GRANT {rights} ON {schema}.* TO {self.name}")

    def end_sessions(self) -> None:
        """A pool keeps them, and with them the rights that they have begun with."""
        with self.admin.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE user = %s", (self.name,)
            )
            found = [number for (number,) in cursor.fetchall()]
        assert found
        for number in found:
            self.run(f"KILL {number}")

    def options(self, uri: str) -> dict[str, Any]:
        """Those with which it uses the catalog that another user's `uri` names."""
        url = make_url(uri).set(username=self.name)
        return {"catalog_uri": str(url), "password_file": str(self.password_file)}


@pytest.mark.parametrize(
    ("what", "says", "remedy"),
    [
        ("another password", "Access denied", "what password_env or password_file names"),
        ("no right", "Access denied", "GRANT the account SELECT, INSERT, UPDATE, DELETE"),
        ("no schema", "Unknown database", "create the schema"),
        ("locked", "is locked", "ACCOUNT UNLOCK"),
    ],
)
def test_a_refusal_ends_the_start_and_its_remedy_helps(
    harness: IcebergHarness, account: Account, what: str, says: str, remedy: str
) -> None:
    uri = harness.place.options["catalog_uri"]
    schema = make_url(uri).database or ""
    if what != "no right":
        account.grant(schema)
    if what == "another password":
        account.password_file.write_text("open-barley")
    elif what == "no schema":
        account.run(f"DROP SCHEMA {schema}")
    elif what == "locked":
        account.run(f"ALTER USER {account.name} ACCOUNT LOCK")
    options = account.options(uri)
    with pytest.raises(PreflightError, match=says) as caught:
        harness.opened(**options)
    assert remedy in caught.value.remedy
    assert account.password_file.read_text() not in f"{caught.value} {caught.value.remedy}"
    if what == "another password":
        account.password_file.write_text("sesame")
    elif what == "no right":
        account.grant(schema)
    elif what == "no schema":
        account.run(f"CREATE SCHEMA {schema}")
    else:
        account.run(f"ALTER USER {account.name} ACCOUNT UNLOCK")
    harness.opened(**options).close()


def test_a_refusal_under_a_running_job_is_waited_for(
    harness: IcebergHarness, account: Account
) -> None:
    uri = harness.place.options["catalog_uri"]
    account.grant(make_url(uri).database or "")
    with closing(harness.opened(**account.options(uri))) as sink:
        piece = harness.write(sink, harness.rows(range(3)))
        account.run(f"ALTER USER {account.name} ACCOUNT LOCK")
        account.end_sessions()
        with pytest.raises(TargetUnreachableError, match="is locked") as caught:
            sink.commit([CommitRequest(piece)])
        assert "ACCOUNT UNLOCK" in caught.value.remedy
        account.run(f"ALTER USER {account.name} ACCOUNT UNLOCK")
        assert sink.commit([CommitRequest(piece)]) == [Committed()]


def test_a_password_that_is_replaced_under_a_running_job_is_read_again(
    harness: IcebergHarness, account: Account
) -> None:
    uri = harness.place.options["catalog_uri"]
    account.grant(make_url(uri).database or "")
    with closing(harness.opened(**account.options(uri))) as sink:
        piece = harness.write(sink, harness.rows(range(3)))
        account.run(f"ALTER USER {account.name} IDENTIFIED BY 'open-barley'")
        account.end_sessions()
        with pytest.raises(TargetUnreachableError, match="Access denied") as refused:
            sink.commit([CommitRequest(piece)])
        assert "what password_env or password_file names" in refused.value.remedy
        account.password_file.write_text("open-barley")
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
        piece = harness.write(sink, harness.rows(range(3, 5)), 1)
        account.password_file.unlink()
        account.end_sessions()
        with pytest.raises(TargetUnreachableError, match="named by password_file, cannot") as lost:
            sink.commit([CommitRequest(piece)])
        assert "give a file with the password" in lost.value.remedy
        account.password_file.write_text("open-barley")
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert len(harness.rows_visible()) == 5


def test_the_password_is_in_no_log_no_text_and_no_file(
    harness: IcebergHarness, mysql: MySqlService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = harness.opened()
    piece = harness.write(sink, harness.rows(range(3)))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    declared = harness.new_sink()
    shown = [caplog.text, repr(declared), repr(sink), repr(sink.table.load()), sink.target()]
    secret = mysql.password
    assert secret
    assert not [text for text in shown if secret in text]
    sent = [pickle.dumps(declared), pickle.dumps(sink.writers())]
    stored = [path.read_bytes() for path in harness.folder.rglob("*") if path.is_file()]
    assert not [data for data in (*sent, *stored) if secret.encode() in data]


def test_the_certificate_of_the_server_is_checked(tmp_path: Path) -> None:
    """By MariaDB: MySQL 8.0.12 takes no certificate with elliptic curves. The file of authorities
    may be replaced while a job runs.
    """
    own, other = Authority.new("test authority"), Authority.new("another authority")
    known, unknown, server = (tmp_path / name for name in ("ca.pem", "other.pem", "server.pem"))
    own.write(known)
    other.write(unknown)
    own.sign_server(server, "127.0.0.1")
    options = [f"--ssl-cert={server}", f"--ssl-key={server}"]
    with MariaDbService(own=True, server_options=options) as database:
        harness = IcebergHarness(MySqlPlace(tmp_path / "lake", database))
        before = harness.contents()
        look = harness.new_sink(tls_ca=str(unknown)).check_connection
        for call in (look, lambda: harness.opened(tls_ca=str(unknown))):
            with pytest.raises(PreflightError, match=r"is not trusted: .*VERIFY_FAILED") as caught:
                call()
            assert "tls_ca" in caught.value.remedy
        assert harness.contents() == before
        with closing(harness.opened(tls_ca=str(known))) as sink:
            piece = harness.write(sink, harness.rows(range(3)))
            known.unlink()
            database.restart()
            with pytest.raises(TargetUnreachableError, match="named by tls_ca, holds no") as lost:
                sink.commit([CommitRequest(piece)])
            assert "give a file in PEM" in lost.value.remedy
            own.write(known)
            assert sink.commit([CommitRequest(piece)]) == [Committed()]
        harness.opened().close()
        assert len(harness.rows_visible()) == 3
