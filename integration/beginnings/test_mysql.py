"""A rewind of a MySQL table that other tables or triggers stand in the way of.

It is refused before anything is recorded or removed, or does exactly what it says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.mysql.sink_harness import DDL, MySqlHarness, Server, commit
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.testing.harness import LINEAGE

pytestmark = [pytest.mark.server, pytest.mark.part("mysql")]

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
def harness(own_mysql: Server) -> MySqlHarness:
    return MySqlHarness(own_mysql, f"{DDL}, {MARK}, INDEX ({COLUMN})", checkpoint_column=COLUMN)


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
    refused_whole(sink, harness, "notes")
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
    harness.sql("DROP TRIGGER note_gone")
    rewound(sink, harness)
    assert harness.sql("SELECT * FROM gone") == []


def test_a_table_without_an_index_on_the_column_is_not_locked_whole(own_mysql: Server) -> None:
    """My table has no index on the checkpoint column: the rewind is refused, and names the
    statement that adds it. With the index it is done.
    """
    harness = MySqlHarness(own_mysql, f"{DDL}, {MARK}", checkpoint_column=COLUMN)
    sink = filled(harness)
    refused_whole(sink, harness, COLUMN)
    harness.sql(f"CREATE INDEX of_checkpoint ON target ({COLUMN})")
    rewound(sink, harness)
    sink.close()
