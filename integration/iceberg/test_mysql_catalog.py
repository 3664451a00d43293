"""What only a catalog in MySQL does."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import MySqlPlace
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, TargetUnreachableError
from twophase.testing.services import MySqlService

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


def test_a_wrong_password_is_named_and_not_shown(harness: IcebergHarness, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("sesame")
    with pytest.raises(TargetUnreachableError, match="Access denied") as caught:
        harness.opened(password_file=str(wrong))
    assert "sesame" not in str(caught.value)


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
