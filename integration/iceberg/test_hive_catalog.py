"""What only a Hive metastore does: locks, a comparison, and parameters that others read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import (
    FieldSchema,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    SerDeInfo,
    ShowLocksRequest,
    StorageDescriptor,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import MetastorePlace
from harness.metastore_server import MetastoreService
from harness.tcp_proxy import RewritingProxy
from tests.sinks.iceberg.others import (
    FIELDS,
    advice_while_down,
    append,
    change,
    commit,
    ids_of,
    rival_of,
    rows,
)
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import ConfigError, PreflightError
from twophase.ids import Attempt
from twophase.sinks.iceberg.hive_catalog import ComparingClient, _agent

pytestmark = [pytest.mark.part("files"), pytest.mark.server]


@pytest.fixture
def harness(metastore: MetastoreService, warehouses: Path) -> IcebergHarness:
    return IcebergHarness(MetastorePlace(metastore.port, warehouses / "hive"), FIELDS)


@pytest.fixture
def connection(harness: IcebergHarness) -> Iterator[Any]:
    """As another application connects to the metastore."""
    with harness.catalog()._client as found:  # type: ignore[attr-defined]
        yield found


def names(harness: IcebergHarness) -> tuple[str, str]:
    database, _, table = harness.place.table.partition(".")
    return database, table


def lock_by(connection: Any, harness: IcebergHarness, agent: str) -> int:
    """Lock the table as an application does that then dies."""
    database, table = names(harness)
    part = LockComponent(LockType.EXCLUSIVE, LockLevel.TABLE, database, table)
    request = LockRequest([part], user="somebody", hostname="somewhere", agentInfo=agent)
    return int(connection.lock(request).lockid)


def locks(connection: Any, harness: IcebergHarness) -> list[str]:
    found = connection.show_locks(ShowLocksRequest(*names(harness))).locks
    return [lock.agentInfo for lock in found or ()]


def test_a_commit_that_is_held_up_until_its_lock_has_ended_takes_nothing_from_others(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at the table, and sets the location of its metadata after somebody else has."""
    sink = harness.opened()
    piece = harness.write(sink, rows(0))
    name = "alter_table_with_environment_context"
    alter = ComparingClient.alter_table_with_environment_context

    def late(self: ComparingClient, **given: Any) -> None:
        monkeypatch.setattr(ComparingClient, name, alter)
        sink.table.catalog.release(sink.table.owner)
        change(harness, append)
        alter(self, **given)

    monkeypatch.setattr(ComparingClient, name, late)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0, 100]


def test_a_commit_that_the_metastore_repeats_keeps_its_files(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so itself when its database has committed and the reply was lost, and then finds that
    the table was modified.
    """
    sink = harness.opened()
    piece = harness.write(sink, rows(0, 1))
    name = "alter_table_with_environment_context"
    alter = ComparingClient.alter_table_with_environment_context

    def repeated(self: ComparingClient, **given: Any) -> None:
        monkeypatch.setattr(ComparingClient, name, alter)
        alter(self, **given)
        alter(self, **given)

    monkeypatch.setattr(ComparingClient, name, repeated)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]
    commit(harness, sink, rows(2), 1)
    assert ids_of(harness) == [0, 1, 2]


def test_the_next_fence_releases_the_lock_of_a_dead_driver_and_no_other(
    harness: IcebergHarness, connection: Any
) -> None:
    sink = harness.opened()
    piece = harness.write(sink, rows(0))
    lock_by(connection, harness, "twophase contract/facts")
    rival_of(harness).fence(Attempt(2, 0))
    assert locks(connection, harness) == []
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    theirs = lock_by(connection, harness, "another application")
    sink.table.catalog.release(sink.table.owner)
    assert locks(connection, harness) == ["another application"]
    connection.unlock(UnlockRequest(theirs))
    last = harness.write(sink, rows(1), 1, Attempt(2, 0))
    assert sink.commit([CommitRequest(last)]) == [Committed()]
    assert ids_of(harness) == [0, 1]


def test_the_longest_names_of_job_and_sink_have_locks_too(
    harness: IcebergHarness, connection: Any
) -> None:
    longest = SinkContext("j" * 64, "s" * 64, FIELDS, parallelism=1)
    sink = harness.new_sink().open(longest)
    sink.fence(Attempt(1, 0))
    lock_by(connection, harness, _agent(sink.table.owner))
    sink.fence(Attempt(2, 0))
    assert sink.history().generation == 2


def test_a_metastore_that_does_not_compare_is_refused(
    harness: IcebergHarness, metastore: MetastoreService
) -> None:
    """As one that is older: it does not know the setting by its name."""
    harness.opened().close()
    before = harness.contents()
    with RewritingProxy("127.0.0.1", metastore.port, b"expected_parameter_key", b"-") as proxy:
        uri = f"thrift://127.0.0.1:{proxy.port}"
        for call in (harness.new_sink(catalog_uri=uri).check_connection, opened(harness, uri)):
            with pytest.raises(PreflightError, match="does not compare the location") as caught:
                call()
            assert "Hive 2.3.10" in caught.value.remedy
    assert harness.contents() == before
    harness.new_sink().check_connection()  # of Hive 2.3.10
    harness.opened().close()


def opened(harness: IcebergHarness, uri: str) -> Any:
    return lambda: harness.opened(catalog_uri=uri)


def test_a_table_of_hive_is_refused_by_name(harness: IcebergHarness, connection: Any) -> None:
    harness.opened().close()
    database, _ = names(harness)
    columns = StorageDescriptor(
        [FieldSchema("id", "bigint")],
        f"{harness.folder}/plain",
        "org.apache.hadoop.mapred.TextInputFormat",
        "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    )
    connection.create_table(
        HiveTable("plain", database, "somebody", sd=columns, partitionKeys=[], parameters={})
    )
    with pytest.raises(ConfigError, match="is a table of Hive, and not of Iceberg") as caught:
        harness.opened(table=f"{database}.plain")
    assert caught.value.remedy == "name another table."
    harness.opened(table=f"{database}.another").close()


def test_a_metastore_that_does_not_answer_is_named_until_it_does(
    harness: IcebergHarness, metastore: MetastoreService
) -> None:
    advice = advice_while_down(harness, metastore, "cannot be used")
    assert "check that it answers, that it keeps locks" in advice


def test_proofs_are_not_among_the_parameters_that_a_metastore_keeps(
    harness: IcebergHarness, connection: Any
) -> None:
    sink = harness.opened()
    commit(harness, sink, rows(0))
    parameters = connection.get_table(*names(harness)).parameters
    assert parameters["metadata_location"] == harness.table().metadata_location
    assert not [key for key in parameters if key.startswith("twophase")]
    assert [key for key in harness.table().properties if key.startswith("twophase")]


def test_new_namespaces_are_in_the_warehouse(harness: IcebergHarness, warehouses: Path) -> None:
    warehouse = warehouses / "hive" / "elsewhere"
    warehouse.mkdir()
    database, _ = names(harness)
    harness.opened(warehouse=str(warehouse)).close()
    location = harness.table().location().removeprefix("file:")
    assert Path(location).is_relative_to(warehouse / f"{database}.db")
