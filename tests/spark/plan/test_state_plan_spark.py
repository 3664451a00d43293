"""A plan that is built again is described alike; one that keeps state of something else is not."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from harness.counts import counts
from tests.operations.savepoint.test_savepoint_spark import joined, unique, windows
from twophase.ids import Attempt
from twophase.spark.plan.state_plan import describe, sealed
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.checkpoints.store import decode_body, encode_body

pytestmark = pytest.mark.spark

Plan = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    """A stream with the columns id, v, time and list."""
    rate = spark.readStream.format("rate").load()
    return rate.select(
        F.col("value").alias("id"),
        (F.col("value") % 7).alias("v"),
        F.col("timestamp").alias("time"),
        F.sequence(F.lit(1), F.lit(3)).alias("list"),
    )


@F.udf(LongType(), useArrow=False)
def bucket(number: int) -> int:
    return number % 5


@F.udf(LongType(), useArrow=False)
def head_of(numbers: list[int]) -> int:
    return numbers[0]


def grouped(frame: DataFrame, *keys: Any) -> DataFrame:
    return frame.groupBy(*keys).count()


def sessions(frame: DataFrame, gap: str = "5 minutes") -> DataFrame:
    return grouped(frame.withWatermark("time", "1 minute"), F.session_window("time", gap), "v")


def in_pandas(frame: DataFrame, key: str = "v") -> DataFrame:
    def count(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        yield from frames

    return frame.groupBy(key).applyInPandasWithState(
        count, "n long", "s long", "update", "NoTimeout"
    )


def by_sql(frame: DataFrame, key: str = "v") -> DataFrame:
    session = frame.sparkSession
    text = f"SELECT {{one}}.{key} AS key, count(*) AS n FROM {{one}} GROUP BY {{one}}.{key}"
    return session.sql(text, one=frame)


def sql_join(frame: DataFrame, key: str = "v") -> DataFrame:
    text = f"SELECT {{one}}.id FROM {{one}} JOIN {{two}} ON {{one}}.{key} = {{two}}.{key}"
    return frame.sparkSession.sql(text, one=frame, two=frame.where("v > 1"))


in_the_set = [7, 5, 11]


def known(column: str) -> Any:
    """Whether a column is in a set, which another process has in another order."""
    return F.col(column).isin([*in_the_set])


def of_a_view(frame: DataFrame, separator: str = "") -> DataFrame:
    name = "v_" + str(uuid.uuid4()).replace("-", separator)
    frame.createOrReplaceTempView(name)
    return frame.sparkSession.sql(f"SELECT `{name}`.v, count(*) FROM `{name}` GROUP BY `{name}`.v")


def sliding(frame: DataFrame, length: str = "5 minutes", slide: str = "1 minute") -> DataFrame:
    return grouped(frame.withWatermark("time", "1 minute"), F.window("time", length, slide))


def deep(frame: DataFrame) -> DataFrame:
    """Each level names the one below it twice: two to the power of forty ways down."""
    for _ in range(40):
        frame = frame.withColumn("v", F.col("v") + F.col("v"))
    return grouped(frame, "v")


SAME: dict[str, Plan] = {
    "windows": windows,
    "unique": unique,
    "transformWithState": counts,
    "joined": joined,
    "session windows": sessions,
    "applyInPandasWithState": in_pandas,
    "distinct": lambda frame: frame.select("v").distinct(),
    "within the watermark": lambda frame: frame.withWatermark(
        "time", "1 minute"
    ).dropDuplicatesWithinWatermark(["id"]),
    "spark.sql of a frame": by_sql,
    "spark.sql, a join of frames": sql_join,
    "rand() as a key": lambda frame: grouped(frame.withColumn("r", F.rand()), "r"),
    "rand() without a name": lambda frame: frame.select(F.rand()).distinct(),
    "randn(), uuid() and shuffle()": lambda frame: frame.select(
        F.randn().alias("n"), F.expr("uuid()").alias("u"), F.shuffle("list").alias("s")
    ).distinct(),
    "uniform() and randstr()": lambda frame: frame.selectExpr(
        "uniform(0, 10) AS u", "randstr(5) AS s"
    ).distinct(),
    "uniform() and randstr() without a name": lambda frame: frame.select(
        F.uniform(F.lit(0), F.lit(10)), F.randstr(F.lit(5))
    ).distinct(),
    "a set": lambda frame: grouped(frame.withColumn("k", known("v")), "k"),
    "a set in an aggregate": lambda frame: frame.groupBy("v").agg(
        F.count(F.when(known("v") & ~known("id"), 1))
    ),
    "a set below a Python UDF": lambda frame: grouped(frame, bucket(known("v").cast("int"))),
    "a view of a random name": of_a_view,
    "a view of a random name with underscores": lambda frame: of_a_view(frame, "_"),
    "an alias of a random name with dashes": lambda frame: (
        frame.alias(name := f"a_{uuid.uuid4()}").groupBy(f"`{name}`.v").count()
    ),
    "an alias of a random name": lambda frame: (
        frame.alias(name := f"a_{uuid.uuid4().hex}").groupBy(f"{name}.v").count()
    ),
    "sliding windows": sliding,
    "a union": lambda frame: grouped(frame.union(frame.select("v", "id", "time", "list")), "v"),
    "a common table": lambda frame: common(frame, "v + 1"),
    "a common table twice": lambda frame: common_twice(frame, "v + 1"),
    "a cube": lambda frame: frame.cube("v", "id").count(),
    "a salt": lambda frame: grouped(
        frame.withColumn("salt", (F.rand() * 16).cast("int")), "v", "salt"
    ),
    "a Python UDF": lambda frame: grouped(frame, bucket(F.col("id") + 1)),
    "a Python UDF above a lambda": lambda frame: grouped(
        frame, head_of(F.transform("list", lambda x: x + F.col("v")))
    ),
    "a Python UDF above a time": lambda frame: grouped(
        frame, bucket(F.unix_timestamp(F.date_format("time", "yyyy"), "yyyy"))
    ),
    "a lambda without a name": lambda frame: frame.select(
        F.transform("list", lambda x: F.aggregate("list", x, lambda a, b: a + b))
    ).distinct(),
    "generated columns": lambda frame: grouped(
        frame.select(F.explode(F.create_map("id", "v")), "v"), "key"
    ),
    "the time of the start": lambda frame: grouped(
        frame.withColumn("late", F.col("time") < F.lit(datetime.datetime.now())), "late"
    ),
    "now": lambda frame: grouped(frame.withColumn("d", F.current_timestamp()), "d"),
    "a subquery": lambda frame: grouped(
        frame.where("v > (SELECT max(id) FROM range(3))").withColumn("k", F.expr("v + 1")), "k"
    ),
    "many levels": deep,
    "the end of time": lambda frame: grouped(
        frame, bucket(F.unix_timestamp(F.lit(datetime.datetime(9999, 12, 31, 23))))
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_a_plan_that_is_built_again_is_described_alike(records: DataFrame, case: str) -> None:
    build = SAME[case]
    first = describe(build(records))
    assert first["operators"]
    in_the_set.reverse()
    assert describe(build(records)) == first


@pytest.mark.parametrize(
    "case",
    ["windows", "a Python UDF above a time", "the time of the start", "the end of time"],
)
def test_a_session_in_another_time_zone_describes_it_alike(
    spark: SparkSession, records: DataFrame, case: str
) -> None:
    before, zone = describe(SAME[case](records)), spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert describe(SAME[case](records)) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_a_checkpoint_gives_the_description_back(records: DataFrame) -> None:
    plan = sealed(describe(windows(records)))
    offsets = FrozenOffsets((None,), ("{}",))
    checkpoint = CompletedCheckpoint("job", "a" * 8, 1, Attempt(1, 1), 0, offsets, state_plan=plan)
    assert decode_body(encode_body(checkpoint), "body").state_plan == plan


def summed(frame: DataFrame, what: str = "sum(id)", **named: Any) -> DataFrame:
    return frame.groupBy("v").agg(F.expr(what).alias(named.get("name", "n")))


def common(frame: DataFrame, key: str) -> DataFrame:
    """Used twice, so that Spark keeps it apart."""
    frame.createOrReplaceTempView("records")
    return frame.sparkSession.sql(
        f"WITH c AS (SELECT {key} AS k, id FROM records) SELECT k, count(*) FROM "
        "(SELECT * FROM c UNION ALL SELECT * FROM c WHERE id > 3) GROUP BY k"
    )


def common_twice(frame: DataFrame, key: str) -> DataFrame:
    """The second use has ids of its own, and the key."""
    frame.createOrReplaceTempView("records")
    return frame.sparkSession.sql(
        f"WITH c AS (SELECT {key} AS k, id FROM records) SELECT two.k, count(*) FROM c one "
        "JOIN c two ON one.id = two.id GROUP BY two.k"
    )


def doubled(frame: DataFrame, key: str) -> DataFrame:
    """The second branch of a union has the key."""
    return grouped(frame.select("v").union(frame.select(key)), "v")


def pairs(frame: DataFrame, how: str) -> DataFrame:
    other = frame.withColumnRenamed("id", "other")
    return frame.join(other, F.expr("id = other"), how)


DIFFERENT: dict[str, tuple[Plan, Plan]] = {
    "a key": (lambda frame: grouped(frame, "v"), lambda frame: grouped(frame, "id")),
    "a key's definition": (
        lambda frame: grouped(frame.withColumn("k", F.expr("id % 3")), "k"),
        lambda frame: grouped(frame.withColumn("k", F.expr("id % 5")), "k"),
    ),
    "an aggregate": (summed, lambda frame: summed(frame, "max(id)")),
    "the order of aggregates": (
        lambda frame: frame.groupBy("v").agg(F.sum("id"), F.max("id")),
        lambda frame: frame.groupBy("v").agg(F.max("id"), F.sum("id")),
    ),
    "a window's length": (windows, lambda frame: windows_of(frame, "20 seconds")),
    "a sliding window's length": (sliding, lambda frame: sliding(frame, "6 minutes")),
    "a sliding window's slide": (
        lambda frame: sliding(frame, slide="150 seconds"),
        lambda frame: sliding(frame, slide="200 seconds"),
    ),
    "a cube": (
        lambda frame: frame.cube("v", "id").count(),
        lambda frame: frame.rollup("v", "id").count(),
    ),
    "what is exploded": (
        lambda frame: grouped(frame.select(F.explode("list").alias("k")), "k"),
        lambda frame: grouped(
            frame.select(F.explode(F.transform("list", lambda x: x * 2)).alias("k")), "k"
        ),
    ),
    "a union's second branch": (
        lambda frame: doubled(frame, "v"),
        lambda frame: doubled(frame, "id"),
    ),
    "a common table": (
        lambda frame: common(frame, "v + 1"),
        lambda frame: common(frame, "v + 2"),
    ),
    "the second use of a common table": (
        lambda frame: common_twice(frame, "v + 1"),
        lambda frame: common_twice(frame, "v + 2"),
    ),
    "a join's type": (
        lambda frame: pairs(frame, "inner"),
        lambda frame: pairs(frame, "leftsemi"),
    ),
    "a set": (
        lambda frame: grouped(frame.withColumn("k", F.col("v").isin(1, 2)), "k"),
        lambda frame: grouped(frame.withColumn("k", F.col("v").isin(1, 3)), "k"),
    ),
    "a session's gap": (sessions, lambda frame: sessions(frame, "9 minutes")),
    "what is unique": (
        lambda frame: frame.dropDuplicates(["id"]),
        lambda frame: frame.dropDuplicates(["v"]),
    ),
    "a join's condition": (
        lambda frame: frame.alias("a").join(frame.alias("b"), F.expr("a.id = b.id")),
        lambda frame: frame.alias("a").join(frame.alias("b"), F.expr("a.id = b.v")),
    ),
    "a key in spark.sql": (by_sql, lambda frame: by_sql(frame, "id")),
    "a condition in spark.sql": (sql_join, lambda frame: sql_join(frame, "id")),
    "a key in pandas": (in_pandas, lambda frame: in_pandas(frame, "id")),
    "another UDF's argument": (
        lambda frame: grouped(frame, bucket("id")),
        lambda frame: grouped(frame, bucket("v")),
    ),
}


def windows_of(frame: DataFrame, length: str) -> DataFrame:
    timed = frame.withColumn("time", F.timestamp_seconds("id")).withWatermark("time", "2 seconds")
    return timed.groupBy(F.window("time", length)).count()


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_plan_that_keeps_state_of_something_else_is_described_otherwise(
    records: DataFrame, case: str
) -> None:
    old, new = DIFFERENT[case]
    assert describe(old(records)) != describe(new(records))


def test_what_is_made_of_an_aggregate_does_not_count(records: DataFrame) -> None:
    """Its name, and an expression over it: Spark keeps the aggregate alone."""
    plan = describe(summed(records))
    assert describe(summed(records, name="total")) == plan
    assert describe(summed(records, "sum(id) + 1")) == plan


def test_a_plan_without_state_has_no_description(records: DataFrame) -> None:
    assert describe(records.where("v > 1")) == {}
