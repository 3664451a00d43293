"""The statements that a message gives, run by Iceberg's extensions of Spark's SQL as they are
given: the table's name and a snapshot are filled in where the message has dots.
"""

from __future__ import annotations

import os
import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import RestPlace
from harness.nemesis import DriverProcess
from harness.savepoint_world import killed
from tests.sinks.iceberg.others import FIELDS, change, commit, ids_of, roll_back, rows
from tests.sinks.iceberg.test_branches import AUDIT, drop, head
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, RestoreRefusedError, TargetChangedError
from twophase.ids import Attempt
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.spark_versions import SPARK
from twophase.testing.harness import LINEAGE
from twophase.testing.services.iceberg_rest import IcebergRestService

pytestmark = [
    pytest.mark.part("files"),
    pytest.mark.spark,
    pytest.mark.server,
    pytest.mark.skipif(SPARK != (4, 1), reason="Iceberg has a runtime for no newer Spark"),
]

_TIMEOUT_S = 540


class Shell(DriverProcess):
    module = "integration.iceberg.spark_statements"


def statement_in(remedy: str) -> str:
    found = re.search(r"\(((?:ALTER|CALL) [^)]*)\)", remedy)
    assert found is not None, remedy
    return found[1]


def staged(harness: IcebergHarness) -> tuple[OpenIcebergSink, Committable]:
    """Two checkpoints are committed, and the third waits."""
    sink = harness.opened()
    for number in range(2):
        commit(harness, sink, rows(number), number)
    return sink, harness.write(sink, rows(2), 2)


def test_the_statement_that_a_refusal_gives_lets_the_job_go_on(
    rest_server: IcebergRestService, warehouses: Path, tmp_path: Path
) -> None:
    missing, dropped, rolled_back = (
        IcebergHarness(RestPlace(rest_server.uri, warehouses / "rest"), FIELDS) for _ in range(3)
    )
    commit(missing, missing.opened(), rows(0))
    missing.options = {"branch": AUDIT, "create": False}
    with pytest.raises(ConfigError, match="has no branch 'audit'") as caught:
        missing.opened()
    statements = [statement_in(caught.value.remedy)]

    dropped.options = {"branch": AUDIT}
    audit, on_audit = staged(dropped)
    at = head(dropped)
    change(dropped, drop)
    for refused in (
        lambda: audit.commit([CommitRequest(on_audit)]),
        lambda: audit.fence(Attempt(2, 0)),
        dropped.opened,
    ):
        with pytest.raises(TargetChangedError, match=r"branch '?audit") as gone:
            refused()
        given = statement_in(gone.value.remedy)
        assert given == "ALTER TABLE ... CREATE OR REPLACE BRANCH `audit` AS OF VERSION ..."
    table, version = dropped.place.table, str(at)
    statements.append(given.replace("...", table, 1).replace("...", version, 1))

    main, on_main = staged(rolled_back)
    newest = head(rolled_back, "main")
    change(rolled_back, roll_back)
    with pytest.raises(TargetChangedError, match="main no longer leads to") as back:
        main.commit([CommitRequest(on_main)])
    with pytest.raises(RestoreRefusedError, match="main no longer leads to") as rewind:
        main.check_rewind({LINEAGE: 0})
    [given] = {statement_in(one.value.remedy) for one in (back, rewind)}
    statements.append(f"{given}('{rolled_back.place.table}', {newest})")

    settings = {"catalog_uri": rest_server.uri, "statements": statements}
    ended = Shell(settings, tmp_path / "runs").wait(_TIMEOUT_S)
    assert ended.code == 0, ended.output

    commit(missing, missing.opened(), rows(1), 1)
    assert ids_of(missing) == [0, 1]
    assert audit.commit([CommitRequest(on_audit)]) == [Committed()]
    assert main.commit([CommitRequest(on_main)]) == [Committed()]
    assert ids_of(dropped) == ids_of(rolled_back) == [0, 1, 2]
    main.check_rewind({LINEAGE: 0})


@pytest.mark.proof
def test_a_clean_up_takes_nothing_that_a_commit_needs(
    rest_server: IcebergRestService, warehouses: Path, tmp_path: Path
) -> None:
    """One piece waits, and the commit of the other has died; both are older than the clean-up."""
    waiting, died = (
        IcebergHarness(RestPlace(rest_server.uri, warehouses / "rest"), FIELDS) for _ in range(2)
    )
    pieces = {harness: staged(harness)[1] for harness in (waiting, died)}
    assert killed("D01", lambda: died.opened().commit([CommitRequest(pieces[died])]))
    moved = {*died.data_files()}
    for harness in pieces:
        for file in harness.folder.rglob("*"):
            os.utime(file, (0, 0))
    clean_up = "CALL system.remove_orphan_files(table => '{}', older_than => TIMESTAMP '{}')"
    statements = [
        clean_up.format(harness.place.table, date.today() - timedelta(days=3)) for harness in pieces
    ]
    settings = {"catalog_uri": rest_server.uri, "statements": statements}
    ended = Shell(settings, tmp_path / "runs").wait(_TIMEOUT_S)
    assert ended.code == 0, ended.output

    assert moved - {*died.data_files()}, "it has taken the moved file"
    for harness, piece in pieces.items():
        assert harness.opened().commit([CommitRequest(piece)]) == [Committed()]
        assert ids_of(harness) == [0, 1, 2]
