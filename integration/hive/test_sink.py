"""The Hive sink on tables that are new and that are there: what readers see, and when."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest
import yaml
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.conf import RuntimeConfig

from harness.hostile_values import READABLE
from harness.selection import first_of, representatives
from harness.staged_sink_harness import FileHarness, commit, orders
from integration.hive.sink_harness import HiveHarness
from twophase.cli.main import main
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import CompletesPartitions, SinkContext
from twophase.errors import (
    ConfigError,
    PreflightError,
    RejectedRowsError,
    StopJobError,
    TwoPhaseError,
)
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.common.partition_names import NULL_NAME
from twophase.sinks.hive import policies
from twophase.sinks.hive.catalog import Catalog, HiveTable
from twophase.sinks.hive.pending import PendingPartitions
from twophase.sinks.hive.policies import CommittedPartition
from twophase.testing.harness import JOB, SINK, Row, fresh_name

pytestmark = [pytest.mark.part("hive"), pytest.mark.thin(3)]

DT = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("dt", pa.string())]
)
FIELDS = HiveHarness.schema
NAMED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])
SERDE = (
    "CREATE TABLE {table} (id BIGINT, name STRING, amount DOUBLE) PARTITIONED BY (dt STRING) "
    "STORED AS "
)
SPARK = "CREATE TABLE {table} ({columns}) USING "
TIMED = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("dt", pa.string()),
        ("hour", pa.string()),
    ]
)
HOURLY = {
    "create": True,
    "partition_by": ["dt", "hour"],
    "partition_commit_trigger": "partition_time",
    "partition_time": "$dt $hour:00:00",
    "event_time": "at",
    "partition_commit_delay": "1 h",
    "event_time_max_future": "36500 d",  # the rows are of one month, whatever the clock says
}


@pytest.mark.parametrize("value", ["", NULL_NAME])
def test_a_value_that_would_read_back_as_null_is_written_as_null_as_the_refusal_says(
    hive_spark: SparkSession, tmp_path: Path, value: str
) -> None:
    fields = pa.schema([("id", pa.int64()), ("part", pa.string())])
    rows: list[Row] = [{"id": 1, "part": value}, {"id": 2, "part": "x"}]
    tables = [
        HiveHarness(hive_spark, fields, create=True, partition_by=["part"]),
        FileHarness(tmp_path / "orders", fields, partition_by=["part"]),
    ]
    for table in tables:
        sink = table.opened()
        with pytest.raises(RejectedRowsError) as caught:
            table.write(sink, rows)
        [advised] = re.findall(r"with (nullif\(.*\)) in the query", caught.value.remedy)
        frame = hive_spark.createDataFrame(rows, "id long, part string")
        mended = frame.selectExpr("id", f"{advised} AS part").collect()
        piece = table.write(sink, [row.asDict() for row in mended], checkpoint=1)
        assert commit(sink, piece) == [Committed()]
        seen = sorted(table.rows_visible(), key=lambda row: row["id"])
        assert seen == [{"id": 1, "part": None}, {"id": 2, "part": "x"}]


@pytest.mark.parametrize(
    "statement",
    first_of(
        1,
        [
            SERDE + "ORC",
            SPARK + "parquet PARTITIONED BY (dt)",
            SERDE + "PARQUET",
            SPARK + "orc PARTITIONED BY (dt)",
        ],
    ),
)
def test_spark_sql_and_pyarrow_read_the_same_from_tables_of_every_kind(
    hive_spark: SparkSession, statement: str
) -> None:
    table = HiveHarness(hive_spark, DT)
    table.make(statement)
    table.sql("INSERT INTO {table} VALUES (100, 'theirs', 0.5, '2026-08-01')")
    sink = table.opened()
    rows = [
        *orders(range(3), dt="2026-08-01"),
        *orders(range(3, 6), dt="2026-08-02"),
        *orders([6], dt=None),
    ]
    theirs = {"id": 100, "name": "theirs", "amount": 0.5, "dt": "2026-08-01"}
    piece = table.write(sink, rows)
    assert table.rows_visible() == [theirs]
    assert commit(sink, piece) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == [*rows, theirs]
    assert table.partitions() == ["dt=2026-08-01", "dt=2026-08-02", "dt=__HIVE_DEFAULT_PARTITION__"]
    ours = [path for path in table.files() if path.name.startswith("twophase-")]
    assert {path.parent.name for path in ours} == {*table.partitions()}
    assert table.staged() == []
    for path in set(table.files()) - set(ours):
        # Hive's own files have no suffix
        path.rename(path.with_suffix(f"{path.suffix}.{ours[0].suffix[1:]}"))
    assert sorted(table.rows_of_pyarrow("dt"), key=lambda row: row["id"]) == [*rows, theirs]


@pytest.mark.parametrize("kind", representatives(["parquet", "orc"], {"parquet"}))
def test_a_new_table_has_the_columns_of_the_rows(hive_spark: SparkSession, kind: str) -> None:
    table = HiveHarness(hive_spark, DT, create=True, format=kind, partition_by=["dt"])
    sink = table.opened()
    commit(sink, table.write(sink, orders(range(3), dt="2026-08-01")))
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == orders(
        range(3), dt="2026-08-01"
    )
    assert {path.suffix for path in table.files()} == {f".{kind}"}
    again = table.opened()
    commit(again, table.write(again, orders(range(3, 5), dt="2026-08-01"), 1))
    assert len(table.rows_visible()) == 5


@pytest.mark.proof
def test_a_table_without_partitions_gets_files(hive_spark: SparkSession) -> None:
    table = HiveHarness(hive_spark, create=True)
    sink = table.opened()
    commit(sink, table.write(sink, orders(range(3))))
    assert table.rows_visible() == orders(range(3)) == table.rows_of_pyarrow()


@pytest.mark.proof
def test_a_static_partition_is_not_in_the_rows(hive_spark: SparkSession) -> None:
    fields = pa.schema([("id", pa.int64()), ("hour", pa.int32())])
    table = HiveHarness(hive_spark, fields, partition={"dt": "2026-08-01"})
    table.sql(
        "CREATE TABLE {table} (id BIGINT) PARTITIONED BY (dt DATE, hour INT) STORED AS PARQUET"
    )
    sink = table.opened()
    commit(sink, table.write(sink, [{"id": 1, "hour": 7}, {"id": 2, "hour": 8}]))
    assert table.partitions() == ["dt=2026-08-01/hour=7", "dt=2026-08-01/hour=8"]
    found = table.sql("SELECT id, dt, hour FROM {table} ORDER BY id")
    assert [tuple(row) for row in found] == [
        (1, datetime.date(2026, 8, 1), 7),
        (2, datetime.date(2026, 8, 1), 8),
    ]


def test_columns_are_found_by_name_whatever_their_order_and_case(hive_spark: SparkSession) -> None:
    fields = pa.schema(
        [("DT", pa.string()), ("Amount", pa.float64()), ("NAME", pa.string()), ("Id", pa.int64())]
    )
    table = HiveHarness(hive_spark, fields)
    table.sql(SERDE + "ORC")
    sink = table.opened()
    commit(sink, table.write(sink, [{"DT": "a", "Amount": 0.5, "NAME": "x", "Id": 7}]))
    assert [tuple(row) for row in table.sql("SELECT id, name, amount, dt FROM {table}")] == [
        (7, "x", 0.5, "a")
    ]
    assert pa.orc.ORCFile(table.files()[0]).schema.names == ["id", "name", "amount"]


def test_every_readable_partition_value_reads_back_equal(hive_spark: SparkSession) -> None:
    fields = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = HiveHarness(hive_spark, fields, create=True, partition_by=["part"])
    sink = table.opened()
    refused = [value for value in READABLE if value and (value.endswith(" ") or "\0" in value)]
    rows: list[Row] = [
        {"id": number, "part": value}
        for number, value in enumerate(READABLE)
        if value not in refused
    ]
    assert len(rows) >= 200
    for value in refused:
        with pytest.raises(RejectedRowsError, match="cannot be distinguished from other values"):
            table.write(sink, [{"id": 0, "part": value}])
        sink.abort(sink.in_doubt())
    assert commit(sink, table.write(sink, rows)) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == rows
    assert sorted(table.rows_of_pyarrow("part"), key=lambda row: row["id"]) == rows
    # The partitions are there now, and each is found to be in the folder that its files go to.
    more = [row | {"id": row["id"] + 1000} for row in rows]
    assert commit(sink, table.write(sink, more, 1)) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == [*rows, *more]


# -- what does not fit -----------------------------------------------------------------------------


def created(rest: str) -> str:
    """The statement that creates a table: `{table}` and `{columns}` are filled in later."""
    return "CREATE TABLE {table} " + rest


TRANSACTIONAL = (
    "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
)
BY_THREE = "(id BIGINT, name STRING, amount DOUBLE)"
ANOTHER = {"table": "another", "create": True}
"""A new table, in place of one to which files cannot be added."""
MISFITS: list[tuple[str, dict[str, Any], str, pa.Schema, dict[str, Any]]] = [
    ("", {}, "There is no table", FIELDS, {"create": True}),
    (
        created(f"{BY_THREE} STORED AS TEXTFILE"),
        {},
        "neither parquet nor orc",
        FIELDS,
        ANOTHER,
    ),
    (created(f"{BY_THREE} USING json"), {}, "neither parquet nor orc", FIELDS, ANOTHER),
    ("CREATE VIEW {table} AS SELECT 1 AS id", {}, "it is a VIEW", FIELDS, ANOTHER),
    (
        created("({columns}) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS"),
        {},
        "bucketed",
        FIELDS,
        ANOTHER,
    ),
    (created(f"({{columns}}) {TRANSACTIONAL}"), {}, "transactional", FIELDS, ANOTHER),
    (
        created("(id BIGINT, name VARCHAR(5), amount DOUBLE) USING parquet"),
        {},
        "CHAR or VARCHAR",
        FIELDS,
        ANOTHER,
    ),
    (
        created("(id BIGINT, name STRING) USING parquet"),
        {},
        "'amount' is not in the table",
        FIELDS.remove(2),
        {},
    ),
    (
        created("({columns}, more INT) USING parquet"),
        {},
        "'more' is not in the rows",
        FIELDS.append(pa.field("more", pa.int32())),
        {},
    ),
    (
        created("(id INT, name STRING, amount DOUBLE) USING orc"),
        {},
        "the rows have int64, the table has int32",
        FIELDS.set(0, pa.field("id", pa.int32())),
        {},
    ),
    (SERDE + "ORC", {}, "'dt' is not in the rows", DT, {}),
    (
        SERDE + "ORC",
        {"partition": {"day": "1"}},
        "'day' is not a partition column",
        DT,
        {"partition": {}},
    ),
    (
        SERDE + "ORC",
        {"partition": {"dt": ""}},
        "would read back as null",
        DT,
        {"partition": {}},
    ),
    (
        SERDE + "ORC",
        {"partition": {"dt": "a "}},
        "static partition dt = 'a ' cannot be distinguished from other values",
        DT,
        {"partition": {}},
    ),
    (
        SERDE + "ORC",
        {"create": True, "partition_by": ["name"]},
        r"is partitioned by \['dt'\]",
        DT,
        {"partition_by": ["dt"]},
    ),
    (
        created("({columns}) USING parquet PARTITIONED BY (amount)"),
        {},
        "'amount': double does not read back",
        FIELDS,
        ANOTHER,
    ),
    (
        created("(id BIGINT, name STRING, amount TIMESTAMP) USING parquet PARTITIONED BY (amount)"),
        {},
        "partition column 'amount' of the table: timestamp.* does not read back",
        FIELDS,
        ANOTHER,
    ),
    (
        created("({columns}) USING parquet"),
        {"root": "/lake"},
        "where it has to be",
        FIELDS,
        {"root": "/"},
    ),
]


@pytest.mark.parametrize(
    ("statement", "options", "what", "rows", "way"),
    first_of(4, MISFITS),
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_table_that_does_not_fit_is_refused_by_name_and_goes_on_as_the_error_says(
    hive_spark: SparkSession,
    statement: str,
    options: dict[str, Any],
    what: str,
    rows: pa.Schema,
    way: dict[str, Any],
) -> None:
    table = HiveHarness(hive_spark, **options)
    if statement:
        table.make(statement)
    with pytest.raises(ConfigError, match=what):
        table.opened()
    assert not list(table.path.glob("_twophase*"))
    table.fields = rows
    if way is ANOTHER:
        way = way | {"table": fresh_name("another")}
    table.opened(**way)


@pytest.mark.parametrize(
    ("options", "kind", "what"),
    first_of(
        2,
        [
            ({"root": "/lake"}, ConfigError, "where it has to be"),
            ({"partition_by": ["day"]}, ConfigError, "partition column 'day' is not in the rows"),
            ({"partition_by": ["DT"]}, ConfigError, "partition column 'DT' is not in the rows"),
            ({"partition_by": ["amount"]}, ConfigError, "'amount': double does not read back"),
            (
                {"partition_by": ["id", "name", "amount", "dt"]},
                ConfigError,
                "there are only partition columns",
            ),
            (
                {"partition_by": ["dt"], "partition": {"dt": "a"}},
                ConfigError,
                "'dt' is not in the table",
            ),
            (
                {"partition_by": ["dt"], "partition": {"day": "a"}},
                ConfigError,
                "'day' is not a partition column",
            ),
            (
                HOURLY | {"partition_by": ["dt"], "partition_time": "$dt"},
                ConfigError,
                "no event time column 'at'",
            ),
            (
                HOURLY | {"partition_by": ["dt"], "partition_time": "$d", "event_time": "id"},
                ConfigError,
                "has to name",
            ),
        ],
    ),
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_what_is_refused_leaves_no_new_table_behind(
    hive_spark: SparkSession, options: dict[str, Any], kind: type[TwoPhaseError], what: str
) -> None:
    table = HiveHarness(hive_spark, DT, **{"create": True, **options})
    with pytest.raises(kind, match=what):
        table.opened()
    assert not hive_spark.catalog.tableExists(table.name)
    assert not table.path.exists()


@pytest.mark.parametrize(
    ("field", "kind", "what"),
    first_of(
        1,
        [
            (("at", pa.timestamp("us")), "orc", "pyarrow and Spark disagree"),
            (("at", pa.uint32()), "parquet", "does not read back unchanged from parquet"),
            (("ID", pa.int64()), "parquet", "'id' appears twice"),
        ],
    ),
)
def test_columns_that_are_refused_leave_no_new_table_behind(
    hive_spark: SparkSession, field: tuple[str, pa.DataType], kind: str, what: str
) -> None:
    table = HiveHarness(
        hive_spark, pa.schema([("id", pa.int64()), field]), create=True, format=kind
    )
    with pytest.raises(ConfigError, match=what):
        table.opened()
    assert not hive_spark.catalog.tableExists(table.name)
    table.fields = pa.schema([("id", pa.int64()), ("more", pa.int64())])
    table.opened()


def test_a_partition_column_whose_name_the_metastore_does_not_keep_is_refused_until_it_is_shorter(
    hive_spark: SparkSession,
) -> None:
    def rows(length: int) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("p" * length, pa.string())])

    table = HiveHarness(hive_spark, rows(129), create=True, partition_by=["p" * 129])
    with pytest.raises(ConfigError, match="has 129 letters; a metastore keeps 128") as caught:
        table.opened()
    assert caught.value.remedy == "give it a shorter name, in the rows and in partition_by."
    assert not hive_spark.catalog.tableExists(table.name)
    table.fields = rows(128)
    sink = table.opened(partition_by=["p" * 128])
    row = {"id": 1, "p" * 128: "a"}
    assert commit(sink, table.write(sink, [row])) == [Committed()]
    assert table.rows_visible() == [row]


FIELD_NAMES = [
    "a b", "1st", "order", "a-b", "a.b", "a`b", "a:b", "a,b", "a>b", "ä", "UPPER", "x" * 200,
]  # fmt: skip


@pytest.mark.parametrize("kind", representatives(["parquet", "orc"], {"parquet"}))
def test_the_fields_of_a_struct_in_a_new_table_have_any_name(
    hive_spark: SparkSession, kind: str
) -> None:
    names = [name for name in FIELD_NAMES if kind == "parquet" or "`" not in name]
    struct = pa.struct([(name, pa.int64()) for name in names])
    fields = pa.schema(
        [
            ("id", pa.int64()),
            ("it", struct),
            ("many", pa.list_(struct)),
            ("by", pa.map_(pa.string(), struct)),
        ]
    )
    inside = {name: at for at, name in enumerate(names)}
    row = {"id": 1, "it": inside, "many": [inside, None], "by": {"k": inside}}
    table = HiveHarness(hive_spark, fields, create=True, format=kind)
    sink = table.opened()
    assert commit(sink, table.write(sink, [row])) == [Committed()]
    assert table.rows_visible() == [row]


def test_a_repair_creates_no_table(hive_spark: SparkSession) -> None:
    table = HiveHarness(hive_spark, create=True)
    with pytest.raises(ConfigError, match="There is no table"):
        table.new_sink().open(SinkContext(JOB, SINK, None, parallelism=0))
    assert not hive_spark.catalog.tableExists(table.name)


def test_a_folder_that_others_can_replace_gets_no_table(
    hive_spark: SparkSession, tmp_path: Path
) -> None:
    database = fresh_name("shop")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    hive_spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / 'open'}'")
    table = HiveHarness(hive_spark, table=f"{database}.orders", create=True)
    with pytest.raises(PreflightError, match="writable by everyone"):
        table.opened()
    assert not hive_spark.catalog.tableExists(table.name)


def test_a_folder_with_files_of_others_gets_no_table(hive_spark: SparkSession) -> None:
    table = HiveHarness(hive_spark, create=True)
    table.path.mkdir(parents=True)
    (table.path / "theirs").write_text("theirs")
    with pytest.raises(ConfigError, match="already exists") as caught:
        table.opened()
    assert caught.value.remedy == "correct the sink's options, the rows or the table."
    assert not hive_spark.catalog.tableExists(table.name)
    table.opened(table=fresh_name("another"))


def test_a_table_that_disappears_as_soon_as_it_is_made_is_made_by_the_next_start(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, create = HiveHarness(hive_spark, create=True), Catalog.create

    def dropped(catalog: Catalog, planned: HiveTable) -> None:
        create(catalog, planned)
        table.sql("DROP TABLE {table}")

    with monkeypatch.context() as other:
        other.setattr(Catalog, "create", dropped)
        with pytest.raises(ConfigError, match="was created and then disappeared"):
            table.opened()
    sink = table.opened()
    assert commit(sink, table.write(sink, orders([1]))) == [Committed()]
    assert ids(table) == [1]


@pytest.mark.proof
def test_a_new_table_lies_where_it_was_planned(hive_spark: SparkSession, tmp_path: Path) -> None:
    database = fresh_name("shop")
    folder = tmp_path / "a lake"
    hive_spark.sql(f"CREATE DATABASE {database} LOCATION '{folder}'")
    table = HiveHarness(
        hive_spark, DT, table=f"{database}.Orders", create=True, partition_by=["dt"]
    )
    table.path = folder / "orders"
    sink = table.opened(root=str(folder))
    assert commit(sink, table.write(sink, orders(range(3), dt="a"))) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == orders(range(3), dt="a")
    assert {path.parent for path in table.files()} == {folder / "orders" / "dt=a"}


def test_a_session_without_a_metastore_is_refused(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HiveHarness(hive_spark, create=True)
    monkeypatch.setattr(RuntimeConfig, "get", lambda *_: "in-memory")
    with pytest.raises(PreflightError, match="has no Hive metastore"):
        table.opened()


# -- where the metastore has it --------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement", first_of(1, [SERDE + "PARQUET", SPARK + "orc PARTITIONED BY (Dt)"])
)
def test_rows_of_a_partition_that_was_moved_stop_the_job_until_it_is_back(
    hive_spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    table = HiveHarness(hive_spark, DT)
    table.make(statement)
    sink = table.opened()
    assert commit(sink, table.write(sink, [*orders([1], dt="a b"), *orders([2], dt="c")])) == [
        Committed()
    ]
    table.sql(f"ALTER TABLE {{table}} PARTITION (dt='a b') SET LOCATION '{tmp_path / 'cold'}'")
    table.sql("INSERT INTO {table} PARTITION (dt='a b') VALUES (6, 'theirs', 0.5)")
    assert [*(tmp_path / "cold").glob("part-*")]
    piece = table.write(
        sink, [*orders([3], dt="a b"), *orders([4], dt="c"), *orders([5], dt="new")], 1
    )
    for again in (sink, table.opened()):
        with pytest.raises(StopJobError) as caught:
            commit(again, piece)
        for part in (
            "partition 'dt=a b' is at",
            str(tmp_path / "cold"),
            str(table.path / "dt=a b"),
            "set location",
        ):
            assert part in str(caught.value)
        assert len(table.staged()) == 1  # no proof was given
    assert table.partitions() == ["dt=a b", "dt=c"]
    for theirs in (tmp_path / "cold").glob("part-*"):
        theirs.rename(table.path / "dt=a b" / theirs.name)
    table.sql(
        f"ALTER TABLE {{table}} PARTITION (dt='a b') SET LOCATION 'file://{table.path / 'dt=a b'}/'"
    )
    assert commit(table.opened(), piece) == [Committed()]
    assert ids(table) == [1, 2, 3, 4, 5, 6]


@pytest.mark.proof
def test_rows_of_a_partition_of_another_format_stop_the_job(hive_spark: SparkSession) -> None:
    table = HiveHarness(hive_spark, DT)
    table.make(SERDE + "PARQUET")
    sink = table.opened()
    assert commit(sink, table.write(sink, orders([1], dt="a"))) == [Committed()]
    table.sql(
        "ALTER TABLE {table} PARTITION (dt='a') "
        "SET SERDE 'org.apache.hadoop.hive.ql.io.orc.OrcSerde'"
    )
    piece = table.write(sink, orders([2], dt="a"), 1)
    with pytest.raises(StopJobError, match="partition 'dt=a' is orc, its new files are parquet"):
        commit(sink, piece)
    table.sql(
        "ALTER TABLE {table} PARTITION (dt='a') "
        "SET SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe'"
    )
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("partition_by", first_of(1, [["dt"], []]))
def test_a_table_that_was_moved_while_the_job_runs_stops_it_until_it_is_back(
    hive_spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    table = HiveHarness(hive_spark, DT, create=True, partition_by=partition_by)
    sink = table.opened()
    assert commit(sink, table.write(sink, orders([1], dt="a"))) == [Committed()]
    table.sql(f"ALTER TABLE {{table}} SET LOCATION '{tmp_path / 'cold'}'")
    piece = table.write(sink, orders([2], dt="b"), 1)
    with pytest.raises(
        StopJobError,
        match=f"the table is at file:{tmp_path / 'cold'}, its new files are in {table.path}",
    ):
        commit(sink, piece)
    table.sql(f"ALTER TABLE {{table}} SET LOCATION '{table.path}'")
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [1, 2]


@pytest.mark.parametrize(
    ("partition_by", "changed"),
    first_of(1, [(["dt"], "id BIGINT, title STRING"), (["dt"], "id BIGINT"), ([], "id BIGINT")]),
)
def test_a_column_that_was_changed_while_the_job_runs_stops_it_until_it_is_back(
    hive_spark: SparkSession, partition_by: list[str], changed: str
) -> None:
    """As Hive's CHANGE COLUMN and REPLACE COLUMNS do, which Spark does not know."""
    table = HiveHarness(hive_spark, NAMED, create=True, partition_by=partition_by)
    sink, rest = table.opened(), ", dt STRING" if not partition_by else ""
    rows = [{"id": 1, "name": "a", "dt": "x"}]
    assert commit(sink, table.write(sink, rows)) == [Committed()]
    java = hive_spark._jsparkSession
    catalog, parser = java.sessionState().catalog(), java.sessionState().sqlParser()
    name = parser.parseTableIdentifier(table.name)

    def alter(columns: str) -> None:
        schema = parser.parseTableSchema(columns + rest)
        catalog.externalCatalog().alterTableDataSchema("default", name.table(), schema)

    alter(changed)
    piece = table.write(sink, [{"id": 2, "name": "b", "dt": "y"}], 1)
    with pytest.raises(StopJobError, match=r"has changed in the metastore: column '(id|name)' is"):
        commit(sink, piece)
    alter("id BIGINT, name STRING, more INT")
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("spelling", first_of(1, ["file:{0}", "{0}", "file://{0}/", "{1}"]))
def test_a_location_that_is_spelled_otherwise_is_the_same(
    hive_spark: SparkSession, tmp_path: Path, spelling: str
) -> None:
    table = HiveHarness(hive_spark, DT, create=True, partition_by=["dt"])
    sink = table.opened()
    values = ["07:30", "a b", "100%25", "a/b"]
    assert commit(
        sink, table.write(sink, [row for dt in values for row in orders([1], dt=dt)])
    ) == [Committed()]
    (tmp_path / "link").symlink_to(table.path)
    for partition in table.path.glob("dt=*"):
        value = (
            partition.name.removeprefix("dt=")
            .replace("%3A", ":")
            .replace("%2F", "/")
            .replace("%25", "%")
        )
        location = spelling.format(partition, tmp_path / "link" / partition.name)
        table.sql(f"ALTER TABLE {{table}} PARTITION (dt='{value}') SET LOCATION '{location}'")
    assert commit(
        sink, table.write(sink, [row for dt in values for row in orders([2], dt=dt)], 1)
    ) == [Committed()]
    assert ids(table) == [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("partitioned", first_of(1, [True, False]))
@pytest.mark.parametrize("using", first_of(1, ["STORED AS PARQUET", "USING orc"]))
def test_a_table_in_a_folder_with_a_space_and_a_percent_sign_gets_files(
    hive_spark: SparkSession, tmp_path: Path, using: str, partitioned: bool
) -> None:
    fields = pa.schema([("id", pa.int64()), ("dt", pa.string())])
    folder = tmp_path / "my table 100%20 %"
    table = HiveHarness(hive_spark, fields)
    if partitioned:
        columns, by = (
            ("id BIGINT", "PARTITIONED BY (dt STRING)")
            if "AS" in using
            else ("id BIGINT, dt STRING", "PARTITIONED BY (dt)")
        )
    else:
        columns, by = "id BIGINT, dt STRING", ""
    first, last = (by, using) if "AS" in using else (using, by)
    table.sql(f"CREATE TABLE {{table}} ({columns}) {first} {last} LOCATION '{folder}'")
    folder.mkdir(exist_ok=True)
    table.path = folder
    for checkpoint in range(2):
        sink = table.opened()
        piece = table.write(
            sink, [{"id": checkpoint, "dt": "a b"}, {"id": checkpoint, "dt": "07:30%"}], checkpoint
        )
        assert commit(sink, piece) == [Committed()]
    assert {path.parent for path in table.files()} == (
        {folder / "dt=a b", folder / "dt=07%3A30%25"} if partitioned else {folder}
    )
    assert sorted((row["id"], row["dt"]) for row in table.rows_visible()) == [
        (number, dt) for number in range(2) for dt in ("07:30%", "a b")
    ]


# -- partition commit ------------------------------------------------------------------------------


def test_the_policies_run_for_every_partition_that_got_rows(hive_spark: SparkSession) -> None:
    heard: list[CommittedPartition] = []
    table = HiveHarness(hive_spark, DT, create=True, partition_by=["dt"])
    sink = table.opened(success_file=True, on_partition_commit=heard.append)
    piece = table.write(sink, [*orders([1], dt="a/b"), *orders([2], dt=None)])
    assert heard == []
    assert commit(sink, piece) == [Committed()]
    assert [(partition.values["dt"], Path(partition.location).name) for partition in heard] == [
        ("a/b", "dt=a%2Fb"),
        (None, "dt=__HIVE_DEFAULT_PARTITION__"),
    ]
    assert {path.parent.name for path in table.path.rglob("_SUCCESS")} == {*table.partitions()}
    assert commit(sink, piece) == [AlreadyCommitted("done marker")]
    assert len(heard) == 2


@pytest.mark.proof
def test_a_function_that_fails_leaves_the_piece_to_be_committed_again(
    hive_spark: SparkSession,
) -> None:
    failures = [RuntimeError("the index is down")]

    def index(_: CommittedPartition) -> None:
        if failures:
            raise failures.pop()

    table = HiveHarness(hive_spark, DT, create=True, partition_by=["dt"])
    sink = table.opened(on_partition_commit=index)
    piece = table.write(sink, orders(range(3), dt="a"))
    with pytest.raises(RuntimeError, match="the index is down"):
        commit(sink, piece)
    assert commit(sink, piece) == [Committed()]
    assert len(table.rows_visible()) == 3


def at(day: int, hour: int, minute: int = 0) -> datetime.datetime:
    return datetime.datetime(2026, 8, day, hour, minute, tzinfo=datetime.UTC)


def timed(number: int, time: datetime.datetime) -> dict[str, Any]:
    return {"id": number, "at": time, "dt": f"{time:%Y-%m-%d}", "hour": f"{time:%H}"}


def test_a_partition_is_committed_when_the_watermark_has_passed_its_time_and_the_delay(
    hive_spark: SparkSession,
) -> None:
    table = HiveHarness(hive_spark, TIMED, **HOURLY)
    sink = table.opened(success_file=True)
    first = table.write(sink, [timed(1, at(1, 7)), timed(2, at(1, 7, 59))])
    assert first.handle["watermark_us"] == at(1, 7, 59).timestamp() * 10**6
    assert commit(sink, first) == [Committed()]
    assert (table.partitions(), table.rows_visible()) == ([], [])
    commit(sink, table.write(sink, [timed(3, at(1, 8))], 1))
    assert table.partitions() == ["dt=2026-08-01/hour=07"]
    assert sorted(row["id"] for row in table.rows_visible()) == [1, 2]
    # Another driver knows what waits, and late rows of a partition that is
    # committed are seen at once.
    again = table.opened(success_file=True)
    commit(again, table.write(again, [timed(4, at(1, 7, 30)), timed(5, at(1, 9, 1))], 2))
    assert table.partitions() == ["dt=2026-08-01/hour=07", "dt=2026-08-01/hour=08"]
    assert sorted(row["id"] for row in table.rows_visible()) == [1, 2, 3, 4]
    assert len(list(table.path.rglob("_SUCCESS"))) == 2


def test_the_time_of_a_partition_is_by_the_clocks_of_the_zone_that_the_sink_is_given(
    hive_spark: SparkSession,
) -> None:
    """Hour 07 of New York ends at 13:00Z in winter and at 12:00Z in summer."""
    zone = {"partition_commit_watermark_time_zone": "America/New_York"}
    table = HiveHarness(hive_spark, TIMED, **HOURLY | zone)
    sink = table.opened()
    days = (("2026-01-15", 13), ("2026-08-01", 12))
    for number, (day, end) in enumerate(days):
        midnight = datetime.datetime.fromisoformat(f"{day}T00:00:00Z")
        local = {"dt": day, "hour": "07"}
        for step, (hours, minutes) in enumerate(((end - 4, 0), (end - 1, 59), (end, 0))):
            row = timed(3 * number + step, midnight.replace(hour=hours, minute=minutes)) | local
            commit(sink, table.write(sink, [row], 3 * number + step))
            complete = [f"dt={day}/hour=07" for day, _ in days[: number + (hours == end)]]
            assert table.partitions() == complete, (day, hours, minutes)


def test_rows_of_a_far_future_complete_nothing_and_a_watermark_that_they_raised_no_longer_counts(
    hive_spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0)
    early, late = (now - datetime.timedelta(hours=hours) for hours in (5, 4))
    far = datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC)
    table = HiveHarness(hive_spark, TIMED, **HOURLY | {"event_time_max_future": "1 d"})
    sink = table.opened()
    misplaced = timed(3, early) | {"at": far + datetime.timedelta(days=1)}
    assert commit(sink, table.write(sink, [timed(1, early), timed(2, far), misplaced])) == [
        Committed()
    ]
    assert table.partitions() == []
    assert "a row has the at '2099-01-02T00:00:00Z'" in caplog.text
    assert "The row: {'id': 3, 'at': " in caplog.text
    assert "rows of partition ['2099-01-01', '00'] wait" in caplog.text
    assert "until the watermark has passed 2099-01-01T01:00:00Z" in caplog.text
    commit(sink, table.write(sink, [timed(4, late)], 1))
    [complete] = table.partitions()
    assert complete == f"dt={early:%Y-%m-%d}/hour={early:%H}"
    # A job without a limit has raised it: the next one says so, and goes on from its own rows.
    careless = table.opened(event_time_max_future="36500 d")
    commit(careless, table.write(careless, [timed(5, far - datetime.timedelta(days=1))], 2))
    assert len(table.partitions()) == 2
    caplog.clear()
    careful = table.opened()
    commit(careful, table.write(careful, [timed(6, now)], 3))
    assert "the watermark 2098-12-31T00:00:00Z is further ahead" in caplog.text
    assert len(table.partitions()) == 2
    caplog.clear()
    commit(careful, table.write(careful, [timed(7, now)], 4))
    patient = table.opened(partition_commit_delay="30 d")
    commit(patient, table.write(patient, [timed(8, now)], 5))
    assert "further ahead" not in caplog.text
    assert "wait, unseen" not in caplog.text
    assert PendingPartitions(careful.table.area.stage()).watermark_us() == now.timestamp() * 10**6


def test_partitions_that_wait_are_completed_on_request(
    hive_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command would stop Spark at its end, and it is that of all tests.
    monkeypatch.setattr("twophase.cli.repair_setup._start_spark", lambda *_, **__: hive_spark)
    table = HiveHarness(hive_spark, TIMED, **HOURLY)
    sink = table.opened(success_file=True)
    commit(sink, table.write(sink, [timed(1, at(1, 7)), timed(2, at(1, 7, 59))]))
    options = {name: value for name, value in table.options.items() if value is not True}
    del options["partition_by"]
    job = {
        "name": JOB,
        "source": {"format": "twophase-kafka", "schema": "id long", "options": {}},
        "sinks": {SINK: {"type": "hive", "options": {
            "table": table.name, "success_file": True, **options}}},
        "options": {"checkpointLocation": str(tmp_path / "job")},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    command = ["repair", "complete-partitions", str(tmp_path / "job.yaml"), "--sink"]
    asked = CliRunner().invoke(main, [*command, SINK], input="n")
    assert "dt=2026-08-01/hour=07\nComplete these partitions?" in asked.output
    assert isinstance(sink, CompletesPartitions)
    sink.complete_partitions(["dt=2026-08-01/hour=08"])  # none that was not shown
    assert table.partitions() == []
    refused = CliRunner().invoke(main, [*command, "lake"])
    assert "no sink 'lake' that completes partitions" in refused.output
    done = CliRunner().invoke(main, [*command, SINK, "--yes"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "Completed: 1."), done.output
    assert (table.partitions(), ids(table)) == (["dt=2026-08-01/hour=07"], [1, 2])
    assert len(list(table.path.rglob("_SUCCESS"))) == 1
    again = CliRunner().invoke(main, [*command, SINK, "--yes"])
    assert "No partition waits." in again.output
    # Rows that come after all are seen at once, as late rows are.
    commit(sink, table.write(sink, [timed(3, at(1, 7, 30)), timed(4, at(1, 8))], 1))
    assert ids(table) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "what"),
    first_of(
        2,
        [
            ({"event_time": "when"}, "no event time column 'when'"),
            ({"event_time": "id"}, "event time column 'id' is not a timestamp"),
            ({"partition_time": "$day"}, "has to name partition columns"),
            ({"partition_time": "2026-08-01"}, "has to name partition columns"),
            ({"partition_time": None}, "if partition_commit_trigger is partition_time"),
            (
                {"partition_commit_trigger": "checkpoint"},
                "if partition_commit_trigger is partition_time",
            ),
            ({"create": False}, "partition_by requires create"),
            ({"partition_commit_watermark_time_zone": "EST5"}, "no such time zone"),
            ({"format": "csv"}, "parquet or orc"),
        ],
    ),
)
def test_options_that_do_not_go_together_are_refused(
    hive_spark: SparkSession, options: dict[str, Any], what: str
) -> None:
    table = HiveHarness(hive_spark, TIMED, **HOURLY | options)
    with pytest.raises(ConfigError, match=what):
        table.opened()
    table.options = HOURLY
    table.opened()


@pytest.mark.parametrize("point", representatives(["F04", "F05", "C14"], {"F05"}))
def test_a_commit_that_died_around_the_metastore_is_finished_by_the_next_driver(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    table = HiveHarness(hive_spark, DT, create=True, partition_by=["dt"])
    sink = table.opened()
    piece = table.write(sink, orders(range(3), dt="a"))
    hit = dying_at(monkeypatch, point)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    assert hit == [point]
    monkeypatch.undo()
    commit(table.opened(), piece)
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == orders(range(3), dt="a")
    assert table.partitions() == ["dt=a"]


@pytest.mark.parametrize("point", representatives(["F05", "F04", "C14"], {"F05"}))
def test_partitions_that_wait_outlive_a_driver_that_died_and_a_raised_fence(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    table = HiveHarness(hive_spark, TIMED, **HOURLY)
    sink = table.opened(success_file=True)
    assert commit(sink, table.write(sink, [timed(1, at(1, 7)), timed(2, at(1, 7, 59))])) == [
        Committed()
    ]
    assert table.partitions() == []
    # With these rows 07, which waits since the piece before, is due; 08 waits from now on.
    piece = table.write(sink, [timed(3, at(1, 8)), timed(4, at(1, 8, 59))], 1)
    hit = dying_at(monkeypatch, point)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    assert hit == [point]
    monkeypatch.undo()
    again = table.opened(Attempt(2, 1), success_file=True)
    [outcome] = commit(again, piece)
    assert isinstance(outcome, AlreadyCommitted if point == "C14" else Committed)
    assert (table.partitions(), ids(table)) == (["dt=2026-08-01/hour=07"], [1, 2])
    later = table.write(again, [timed(5, at(1, 9))], 2, Attempt(2, 1))
    assert commit(again, later) == [Committed()]
    assert (table.partitions()[1:], ids(table)) == (["dt=2026-08-01/hour=08"], [1, 2, 3, 4])
    last = table.write(again, [timed(6, at(1, 10))], 3, Attempt(2, 1))
    assert commit(again, piece, later, last) == [
        *2 * [AlreadyCommitted("done marker")],
        Committed(),
    ]
    assert (table.partitions()[2:], ids(table)) == (["dt=2026-08-01/hour=09"], [1, 2, 3, 4, 5])
    assert sorted(path.parent.name for path in table.path.rglob("_SUCCESS")) == [
        "hour=07",
        "hour=08",
        "hour=09",
    ]


@pytest.mark.proof
def test_partitions_of_a_driver_that_died_before_any_was_due_are_committed_when_they_are(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HiveHarness(hive_spark, TIMED, **HOURLY)
    sink = table.opened()
    piece = table.write(sink, [timed(1, at(1, 7))])
    hit = dying_at(monkeypatch, "C14")
    with pytest.raises(FailpointError):
        commit(sink, piece)
    assert hit == ["C14"]
    monkeypatch.undo()
    again = table.opened(Attempt(2, 1))
    assert commit(again, piece) == [AlreadyCommitted("done marker")]
    assert (table.partitions(), ids(table)) == ([], [])
    assert commit(again, table.write(again, [timed(2, at(1, 8))], 1, Attempt(2, 1))) == [
        Committed()
    ]
    assert (table.partitions(), ids(table)) == (["dt=2026-08-01/hour=07"], [1])


def test_a_driver_that_was_overtaken_in_a_commit_does_not_touch_what_waits_for_the_newer_one(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HiveHarness(hive_spark, TIMED, **HOURLY)
    old, new = table.opened(), table.opened()
    piece = table.write(old, [timed(1, at(1, 7)), timed(2, at(1, 9))])
    publish = old.publish

    def overtaken(*reported: Any) -> None:
        monkeypatch.undo()
        assert commit(new, piece) == [Committed()]
        new.fence(Attempt(2, 1))
        late = table.write(new, [timed(3, at(1, 7, 30))], 1, Attempt(2, 1))
        monkeypatch.setattr(
            "twophase.sinks.hive.sink.Policies.run",
            lambda *_: (_ for _ in ()).throw(FailpointError("F05")),
        )
        with pytest.raises(FailpointError):
            commit(new, late)  # 07 waits: its late row is in place, and nobody is notified of it
        monkeypatch.undo()
        publish(*reported)

    monkeypatch.setattr(old, "publish", overtaken)
    [outcome] = commit(old, piece)
    assert isinstance(outcome, RetryLater)
    stage = new.table.area.stage()
    assert {*PendingPartitions(stage).partitions()} == {("2026-08-01", "07"), ("2026-08-01", "09")}
    assert commit(old, piece) == [AlreadyCommitted("done marker")]


def dying_at(monkeypatch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Let a commit die at a crash point; returns the points at which it did."""
    hit: list[str] = []

    def dies(name: str) -> None:
        if name == point:
            hit.append(name)
            raise FailpointError(name)

    monkeypatch.setattr("twophase.sinks.common.staging.committer.failpoint", dies)
    monkeypatch.setattr(policies, "failpoint", dies)
    return hit


def ids(table: HiveHarness) -> list[int]:
    return sorted(row["id"] for row in table.rows_visible())


def test_a_name_that_is_no_table_is_refused(hive_spark: SparkSession) -> None:
    for name in (
        "a.b.c.d",
        "orders; DROP TABLE x",
        "`",
        "..",
        fresh_name("no_database") + ".orders",
    ):
        for create in (False, True):
            with pytest.raises(ConfigError, match="table"):
                HiveHarness(hive_spark, table=name, create=create).opened()
