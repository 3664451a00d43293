"""A record without a value for a NOT NULL column is refused, and each remedy works as written.

They are followed in SQL as in a job file's `sql`, over the view `rows`.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, RejectedRowsError
from twophase.testing.services import MariaDbService

pytestmark = pytest.mark.part("mysql")

DEFAULTS = [
    ("VARCHAR(9) NOT NULL DEFAULT 'new'", "string"),
    ("VARCHAR(40) NOT NULL DEFAULT 'it''s \"a\\\\b\" \\n 7 caf\u00e9'", "string"),
    ("VARCHAR(9) NOT NULL DEFAULT ''", "string"),
    ("VARCHAR(9) NOT NULL DEFAULT 'NULL'", "string"),
    ("VARCHAR(30) NOT NULL DEFAULT 'current_timestamp()'", "string"),
    ("ENUM('new', 'it''s') NOT NULL DEFAULT 'it''s'", "string"),
    ("BIGINT NOT NULL DEFAULT -7", "bigint"),
    ("BIGINT UNSIGNED NOT NULL DEFAULT 18446744073709551615", "decimal(20,0)"),
    ("DECIMAL(5,2) NOT NULL DEFAULT 1.5", "decimal(10,2)"),
    ("DOUBLE NOT NULL DEFAULT 1e300", "double"),
    ("BOOLEAN NOT NULL DEFAULT TRUE", "boolean"),
    ("BIT(8) NOT NULL DEFAULT b'101'", "int"),
    ("BIT(1) NOT NULL DEFAULT b'1'", "boolean"),
    ("YEAR NOT NULL DEFAULT 2024", "int"),
    ("DATE NOT NULL DEFAULT '2024-02-29'", "date"),
    ("DATETIME(6) NOT NULL DEFAULT '2024-03-31 02:30:00.5'", "timestamp_ntz"),
    ("TIMESTAMP(3) NOT NULL DEFAULT '2024-03-31 02:30:00.5'", "timestamp"),
    ("DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", "timestamp"),
    ("TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", "timestamp"),
    ("DATETIME(4) NOT NULL DEFAULT CURRENT_TIMESTAMP(4)", "timestamp_ntz"),
]
EXPRESSIONS = [
    ("VARCHAR(9) NOT NULL DEFAULT (concat('it''s', lower('B')))", "string"),
    ("INT NOT NULL DEFAULT (1 + 2)", "int"),
]


def rows_of(spark: SparkSession, query: str) -> pa.RecordBatch:
    [batch] = spark.sql(query).toArrow().combine_chunks().to_batches()
    return batch


def test_each_remedy_stores_what_the_server_would(sql_server: Server, spark: SparkSession) -> None:
    # MySQL 8.0.12 has no default that is an expression
    expressions = EXPRESSIONS if isinstance(sql_server, MariaDbService) else []
    columns = {f"v{n}": one for n, one in enumerate(DEFAULTS + expressions)}
    fields = ", ".join(f"{name} {kind}" for name, (_, kind) in columns.items())
    nothing = (1, *[None] * len(columns))
    spark.createDataFrame([nothing], f"id bigint, {fields}").createOrReplaceTempView("rows")
    missing = rows_of(spark, "SELECT * FROM rows")
    ddl = ", ".join(f"{name} {declared}" for name, (declared, _) in columns.items())
    harness = MySqlHarness(sql_server, f"id BIGINT PRIMARY KEY, {ddl}", missing.schema)
    sink = harness.opened()
    remedies = {plan.column: plan.instead_of_null for plan in sink._writers.plan.loader.plans}
    with pytest.raises(RejectedRowsError, match="'v0' cannot store None") as caught:
        harness.write(sink, missing.to_pylist())
    assert caught.value.remedy == remedies["v0"]
    filled = ["1 AS id"]
    for name in columns:
        assert f"leave {name} out of the rows" in remedies[name]
        filled += re.findall(rf"coalesce\({name}, .+\) AS {name}", remedies[name], flags=re.DOTALL)
    assert len(filled) == len(missing.schema)
    harness.sql("INSERT INTO target (id) VALUES (0)")
    for number, query in enumerate([f"SELECT {', '.join(filled)} FROM rows", "SELECT 2 AS id"]):
        batch = rows_of(spark, query)
        harness.fields = batch.schema
        sink = harness.opened()
        piece = harness.write(sink, batch.to_pylist(), checkpoint=number)
        assert commit(sink, piece) == [Committed()]
    stored = harness.rows_visible()
    assert len(stored) == 3
    for name, (declared, _) in columns.items():
        found = {row[name] for row in stored}
        assert len(found) == 1 or "CURRENT_TIMESTAMP" in declared, (declared, found)


def test_rows_of_no_type_at_all_are_refused_with_both_remedies(sql_server: Server) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.null())])
    harness = MySqlHarness(sql_server, "id BIGINT, v VARCHAR(9) NOT NULL DEFAULT 'new'", schema)
    with pytest.raises(ConfigError, match=r"coalesce\(v, 'new'\).*leave v out of the rows"):
        harness.opened()
