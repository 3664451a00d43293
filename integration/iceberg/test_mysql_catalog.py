"""The contract of every sink, on an Iceberg table whose catalog is in MySQL."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import make_url

from harness.iceberg_harness import TABLE, IcebergHarness
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, TargetUnreachableError
from twophase.sinks.iceberg.sink import IcebergSink
from twophase.testing.contract.sink import (
    AbortContract,
    DeclaredContract,
    FenceContract,
    PhasesContract,
    PredecessorContract,
    ProofContract,
)
from twophase.testing.harness import contents_of, fresh_name
from twophase.testing.services import MySqlService

pytestmark = [pytest.mark.part("files"), pytest.mark.server]


class MySqlCatalogHarness(IcebergHarness):
    """One table, its catalog in a database of its own."""

    def __init__(self, folder: Path, server: MySqlService, **options: Any) -> None:
        self.server = server
        self.database = fresh_name("lake")
        server.create_database(self.database)
        password = folder.parent / f"{self.database}.password"
        password.touch(mode=0o600)
        password.write_text(f"{server.password}\n")
        super().__init__(folder, password_file=str(password), **options)

    @property
    def uri(self) -> str:
        url = make_url(self.server.url(self.database)).set(drivername="mysql+pymysql")
        return url.set(password=self.server.password).render_as_string(False)

    def new_sink(self, **options: Any) -> IcebergSink:
        return super().new_sink(catalog_uri=self.server.url(self.database), **options)

    def elsewhere(self) -> MySqlCatalogHarness:
        return MySqlCatalogHarness(self.folder.parent / fresh_name("lake"), self.server)

    def contents(self) -> object:
        with self.server.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            tables = [name for (name,) in cursor.fetchall()]
            rows = []
            for name in tables:
                cursor.execute(f"SELECT * FROM `{name}`")
                rows += sorted(cursor.fetchall())
        return tables, rows, contents_of(self.folder)


@pytest.fixture
def harness(mysql: MySqlService, tmp_path: Path) -> MySqlCatalogHarness:
    return MySqlCatalogHarness(tmp_path / "lake", mysql)


class TestIcebergSinkWithACatalogInMySql(
    DeclaredContract,
    PhasesContract,
    PredecessorContract,
    AbortContract,
    FenceContract,
    ProofContract,
):
    @pytest.fixture
    def harness(self, mysql: MySqlService, tmp_path: Path) -> MySqlCatalogHarness:
        return MySqlCatalogHarness(tmp_path / "lake", mysql)


def test_a_database_without_a_catalog_is_left_as_it_is(harness: MySqlCatalogHarness) -> None:
    before = harness.contents()
    harness.new_sink().check_connection()
    with pytest.raises(ConfigError, match="There is no table") as caught:
        harness.opened(create=False)
    assert "`create=true`" in caught.value.remedy
    assert harness.contents() == before


def test_a_wrong_password_is_named_and_not_shown(
    harness: MySqlCatalogHarness, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("sesame")
    with pytest.raises(TargetUnreachableError, match="Access denied") as caught:
        harness.opened(password_file=str(wrong))
    assert "sesame" not in str(caught.value)


def test_the_password_is_in_no_log_no_text_and_no_file(
    harness: MySqlCatalogHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = harness.opened()
    piece = harness.write(sink, harness.rows(range(3)))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    declared = harness.new_sink()
    shown = [caplog.text, repr(declared), repr(sink), repr(sink.table.load()), sink.target()]
    secret = harness.server.password
    assert secret
    assert not [text for text in shown if secret in text]
    sent = [pickle.dumps(declared), pickle.dumps(sink.writers())]
    stored = [path.read_bytes() for path in harness.folder.rglob("*") if path.is_file()]
    assert not [data for data in (*sent, *stored) if secret.encode() in data]


def test_another_application_sees_the_rows_by_the_same_catalog(
    harness: MySqlCatalogHarness,
) -> None:
    sink = harness.opened()
    piece = harness.write(sink, harness.rows(range(3)))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    with SqlCatalog("default", uri=harness.uri) as catalog:
        assert catalog.load_table(TABLE).scan().to_arrow().num_rows == 3
    [again] = harness.opened().commit([CommitRequest(piece)])
    assert isinstance(again, AlreadyCommitted)
