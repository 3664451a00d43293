"""What a task is told that waits for a lock: of another branch of its attempt, which its writer
keeps open or prepared, or of a transaction of a stranger.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from integration.mysql.sink_harness import TASK, MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.contract.sink import OpenArrowSink
from twophase.errors import DeclinedError, RejectedRowsError
from twophase.ids import Attempt, Subtask
from twophase.sinks.mysql.client.codes import LOCKS
from twophase.sinks.mysql.writer import MySqlWriter
from twophase.testing.harness import FIRST, transaction_id

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(3)]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
FLOATS = pa.schema([("id", pa.int64()), ("v", pa.float32())])
DOUBLES = pa.schema([("id", pa.int64()), ("v", pa.float64())])
COUNTS = "UPDATE counter SET n = n + 1"
FILLS = f"BEGIN {COUNTS}; SET NEW.made = (SELECT n FROM counter); END"
NAMES = [f"c{number:02}{'x' * 61}" for number in range(16)]
LONGEST = f"id BIGINT, v TEXT, {' INT DEFAULT 7, '.join(NAMES)} INT DEFAULT 7, UNIQUE KEY k "
LONGEST += f"({', '.join(NAMES)})"
"""A key whose names together are longer than GROUP_CONCAT allows."""
BINARY = pa.schema([("id", pa.int64()), ("v", pa.binary())])


def second_of(
    harness: MySqlHarness, sink: Any, one: tuple[int, Any], other: tuple[int, Any]
) -> DeclinedError:
    """The error of a second task, with the other row; the first then commits."""
    tasks = [sink.writers()(transaction_id(), Subtask(number, 0)) for number in range(2)]
    first, second = tasks
    first.write(harness.batch([dict(zip(("id", "v"), one, strict=True))]))
    first._flush()
    second.write(harness.batch([dict(zip(("id", "v"), other, strict=True))]))
    with pytest.raises(DeclinedError) as caught:
        second.pre_commit()
    second.abort()
    assert commit(sink, first.pre_commit()) == [Committed()]
    return caught.value


@pytest.mark.parametrize(
    ("ddl", "schema", "one", "other", "key"),
    [
        ("id BIGINT, v VARCHAR(20), UNIQUE KEY k (v(3))", SCHEMA, "abcd", "ABCe", r"['ABC']"),
        ("id BIGINT, v TEXT, UNIQUE KEY k (v(3))", SCHEMA, "äöüd", "äöüe", r"['äöü']"),
        ("id BIGINT, v VARCHAR(20), UNIQUE KEY k (v(9))", SCHEMA, "ab", "AB", r"['ab']"),
        ("id BIGINT, v BLOB, UNIQUE KEY k (v(3))", BINARY, b"\0'\xffd", b"\0'\xffe", "\\xff"),
        ("id BIGINT, v FLOAT, UNIQUE KEY k (v)", FLOATS, 0.1, 0.1, "[0.1"),
        ("id BIGINT, v DOUBLE, UNIQUE KEY k (v)", DOUBLES, 0.1, 0.1, "[0.1"),
        ("id BIGINT, v VARCHAR(9), kind INT DEFAULT 7, UNIQUE KEY k (kind, v)", SCHEMA, "a", "a",
            "['a', 7]"),
        ("id BIGINT, v VARCHAR(9), kind VARCHAR(9) DEFAULT 'it''s', UNIQUE KEY k (kind)", SCHEMA,
            "a", "b", "\"it's\""),
        ("id BIGINT, v VARCHAR(9), kind ENUM('x', 'y') DEFAULT 'y', UNIQUE KEY k (v(2), kind)",
            SCHEMA, "abc", "abd", "['ab', 'y']"),
        ("id BIGINT, v VARCHAR(9), kind ENUM('x', 'y') NOT NULL, UNIQUE KEY k (v(2), kind)",
            SCHEMA, "abc", "abd", "['ab', 'x']"),
        (LONGEST, SCHEMA, "a", "b", f"[{', '.join('7' * 16)}]"),
    ],
)  # fmt: skip
def test_a_key_of_prefixes_or_defaults_is_named(
    sql_server_in_proof: Server, ddl: str, schema: pa.Schema, one: Any, other: Any, key: str
) -> None:
    harness = MySqlHarness(sql_server_in_proof, ddl, schema)
    error = second_of(harness, harness.opened(), (1, one), (2, other))
    assert (type(error), error.fingerprint) == (DeclinedError, LOCKS)
    assert f"`{harness.database}`.`target`, key `k`: " in str(error)
    assert key.lower() in str(error).lower()


NUMBERS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
PRIMARY, UNIQUE, ITSELF = (
    "id BIGINT PRIMARY KEY, v BIGINT",
    "id BIGINT, v BIGINT, UNIQUE KEY k (id)",
    "id BIGINT PRIMARY KEY, v BIGINT, FOREIGN KEY (v) REFERENCES target (id)",
)
MARK = "twophase_checkpoint"


@pytest.mark.parametrize("ddl", [PRIMARY, UNIQUE, ITSELF])
@pytest.mark.parametrize("holder", ["sibling", "stranger"])
@pytest.mark.parametrize("marked", [True, False])
def test_rows_are_refused_only_if_the_one_they_meet_is_known_to_be_a_siblings(
    sql_server_in_proof: Server, ddl: str, holder: str, *, marked: bool
) -> None:
    """The attempt has a sibling and the table a stranger, each with a row; what the error says to
    do about the row that is met leads on.
    """
    harness = MySqlHarness(
        sql_server_in_proof,
        f"{ddl}, {MARK} VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, INDEX ({MARK})",
        NUMBERS,
        checkpoint_column=MARK if marked else None,
        io_timeout="3 s",
    )
    sink = harness.opened()
    met = {"sibling": 7, "stranger": 8}
    stranger = harness.server.connect(harness.database)
    stranger.begin()
    stranger.cursor().execute("INSERT INTO target (id) VALUES (8)")
    sibling = harness.write(sink, [{"id": 7, "v": None}], subtask=Subtask(1, 0))
    row: dict[str, int | None] = {"id": met[holder], "v": None}
    if ddl == ITSELF:
        row = {"id": 1, "v": met[holder]}
    with pytest.raises(DeclinedError) as caught:
        harness.write(sink, [row])
    error = caught.value
    assert f"[{met[holder]}]." in error.what
    if marked and holder == "sibling":
        assert isinstance(error, RejectedRowsError)
        assert "INNODB_TRX" not in error.remedy
    else:
        assert (type(error), error.fingerprint) == (DeclinedError, LOCKS)
        assert "another task of the same attempt has written it, or somebody else" in error.what
        assert "find whose transaction is open" in error.remedy
    if ddl == ITSELF:
        assert "coalesce(1) and sortWithinPartitions" in error.remedy
    else:
        assert "drop duplicates before the sink" in error.remedy
    sink.abort([sibling])
    rows = [{"id": 7, "v": None}, row]
    if holder == "stranger":
        harness.end_open_transactions()
        row["v"] = None
    elif ddl != ITSELF:
        rows = [row]
    again = harness.write(sink, rows, attempt=Attempt(1, 2))
    assert commit(sink, again) == [Committed()]
    stranger.close()


@pytest.mark.parametrize(
    ("ddl", "trigger", "named"),
    [
        ("id BIGINT, v VARCHAR(9), low VARCHAR(9) AS (LOWER(v)) STORED, UNIQUE KEY k (low)", "",
            "the unique key `k`"),
        ("id BIGINT, v VARCHAR(9), low VARCHAR(9) AS (LOWER(v)) VIRTUAL, UNIQUE KEY k (low)", "",
            "the unique key `k`"),
        ("id BIGINT, v VARCHAR(9)", f"AFTER INSERT ON target FOR EACH ROW {COUNTS}",
            "the AFTER INSERT trigger `{}`.`trg`"),
        ("id BIGINT, v VARCHAR(9), made INT", f"BEFORE INSERT ON target FOR EACH ROW {FILLS}",
            "the BEFORE INSERT trigger `{}`.`trg`"),
    ],
)  # fmt: skip
def test_what_may_hold_the_lock_unseen_is_named_with_what_to_do(
    sql_server_in_proof: Server, ddl: str, trigger: str, named: str
) -> None:
    harness = MySqlHarness(sql_server_in_proof, ddl, SCHEMA)
    harness.sql("CREATE TABLE counter (n BIGINT) ENGINE = InnoDB")
    harness.sql("INSERT INTO counter VALUES (0)")
    if trigger:
        harness.sql(f"CREATE TRIGGER trg {trigger}")
    sink = harness.opened()
    error = second_of(harness, sink, (1, "a"), (2, "A"))
    assert not isinstance(error, RejectedRowsError)
    assert error.fingerprint == LOCKS
    assert f"by way of {named.format(harness.database)}" in error.remedy
    assert "coalesce(1)" in error.remedy
    together = [{"id": 3, "v": "b"}, {"id": 4, "v": "B"}]
    if trigger:
        assert commit(sink, harness.write(sink, together, checkpoint=1)) == [Committed()]
    else:
        with pytest.raises(RejectedRowsError, match="Duplicate entry"):
            harness.write(sink, together, checkpoint=1)
    harness.sql("DROP TRIGGER trg" if trigger else "ALTER TABLE target DROP KEY k")
    sink = harness.opened()
    tasks = [
        harness.write(sink, [row], 2, subtask=Subtask(number, 0))
        for number, row in enumerate(together)
    ]
    assert commit(sink, *tasks) == [Committed(), Committed()]


@pytest.mark.parametrize("ddl", ["id BIGINT, v TEXT", "id BIGINT PRIMARY KEY, v TEXT"])
def test_without_a_cause_in_the_attempt_somebody_else_is_to_be_found(
    sql_server_in_proof: Server, ddl: str
) -> None:
    harness = MySqlHarness(sql_server_in_proof, ddl, SCHEMA)
    sink = harness.opened()
    other = harness.server.connect(harness.database)
    with other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES target WRITE")
        with pytest.raises(DeclinedError) as caught:
            harness.write(sink, [{"id": 1, "v": "a"}])
    assert "find who holds" in caught.value.remedy
    assert not isinstance(caught.value, RejectedRowsError)
    again = harness.write(sink, [{"id": 1, "v": "a"}], subtask=Subtask(0, 1))
    assert commit(sink, again) == [Committed()]


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    ("ddl", "one", "other"),
    [
        ("id BIGINT PRIMARY KEY, v TEXT", (1, "a"), (1, "a")),
        ("id BIGINT, v VARCHAR(9), UNIQUE KEY k (v(3))", (1, "abc"), (2, "abcd")),
        ("id BIGINT, v VARCHAR(9), low VARCHAR(9) AS (LOWER(v)) STORED, UNIQUE KEY k (low)",
            (1, "A"), (1, "a")),
        ("id BIGINT PRIMARY KEY, v BIGINT, FOREIGN KEY (v) REFERENCES target (id)",
            (1, None), (2, 1)),
    ],
)  # fmt: skip
def test_an_earlier_attempt_of_the_same_task_is_no_duplicate(
    sql_server_in_proof: Server, ddl: str, one: Any, other: Any, *, prepared: bool
) -> None:
    """Spark starts a task again whose worker it has lost: the rows are right."""
    number = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    harness = MySqlHarness(sql_server_in_proof, ddl, number if "v BIGINT" in ddl else SCHEMA)
    sink = harness.opened(io_timeout="3 s")
    lost, sibling, again = (
        sink.writers()(transaction_id(), Subtask(*task)) for task in [(0, 1), (1, 2), (0, 3)]
    )
    rows = [harness.batch([dict(zip(("id", "v"), row, strict=True))]) for row in (one, other)]
    lost.write(rows[0])
    lost._flush()
    piece = lost.pre_commit() if prepared else None
    sibling.write(harness.batch([{"id": 77, "v": None}]))
    pieces = [piece, sibling.pre_commit()]
    again.write(rows[1])
    with pytest.raises(DeclinedError) as caught:
        again.pre_commit()
    again.abort()
    assert not isinstance(caught.value, RejectedRowsError)
    assert "An earlier attempt of the same task" in str(caught.value)
    assert caught.value.fingerprint == ""
    if not prepared:
        lost.abort()
    for left in filter(None, pieces):
        sink.abort([left])
    retried = sink.writers()(transaction_id(attempt=Attempt(1, 2)), Subtask(0, 4))
    retried.write(rows[0])
    written = retried.pre_commit()
    assert written is not None
    assert commit(sink, written) == [Committed()]


class ParentAndChild:
    """Two sinks of one job; the rows of the one refer to rows of the other."""

    def __init__(self, server: Server) -> None:
        self.harness = MySqlHarness(server, "id BIGINT, v VARCHAR(9)", SCHEMA)
        self.harness.sql("CREATE TABLE parents (id BIGINT PRIMARY KEY, v TEXT) ENGINE = InnoDB")
        self.harness.sql(
            "ALTER TABLE target ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES parents (id)"
        )
        self.parents = self.harness.new_sink(table="parents").open(
            self.harness.context(sink="parents")
        )
        self.parents.fence(FIRST)
        self.children = self.harness.opened(io_timeout="3 s")

    def writer(self, sink: OpenArrowSink, name: str) -> MySqlWriter:
        writer: Any = sink.writers()(replace(transaction_id(), sink=name), TASK)
        writer.write(self.harness.batch([{"id": 1, "v": "a"}]))
        return writer  # type: ignore[no-any-return]

    def error(self) -> DeclinedError:
        """The error of a child whose parent is not committed."""
        with pytest.raises(DeclinedError) as caught:
            self.harness.write(self.children, [{"id": 1, "v": "a"}])
        return caught.value


@pytest.mark.parametrize("prepared", [True, False])
def test_a_row_that_another_sink_of_the_job_writes_is_named(
    sql_server_in_proof: Server, *, prepared: bool
) -> None:
    world = ParentAndChild(sql_server_in_proof)
    parent = world.writer(world.parents, "parents")
    parent._flush()
    piece = parent.pre_commit() if prepared else None
    error = world.error()
    name = world.harness.database
    assert f"`{name}`.`parents`, key `fk`: [1]" in str(error)
    assert (type(error), error.fingerprint) == (DeclinedError, LOCKS)
    assert ("The sink 'parents' of this job" in str(error)) is prepared
    assert "find whose transaction is open" in error.remedy
    piece = piece or parent.pre_commit()
    assert piece is not None
    assert commit(world.parents, piece) == [Committed()]
    [way] = re.findall(r", or (ALTER TABLE .*?)\. If not", error.remedy)
    child = world.harness.write(world.children, [{"id": 1, "v": "a"}], checkpoint=1)
    assert commit(world.children, child) == [Committed()]
    world.harness.sql(way)
    alone = world.harness.opened()
    child = world.harness.write(alone, [{"id": 2, "v": "b"}], checkpoint=2)
    assert commit(alone, child) == [Committed()]
