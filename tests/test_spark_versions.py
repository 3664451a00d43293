"""What differs between versions of PySpark is asked for by name, in one module."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from twophase.cli import savepoint
from twophase.cli.main import main
from twophase.contract.source import SourceLeg
from twophase.errors import PreflightError
from twophase.internals.pyspark_version import NEWEST, OLDEST
from twophase.sinks.delta import preflight as delta_preflight
from twophase.sinks.delta import sink as delta_sink
from twophase.sinks.delta.sink import DeltaSink
from twophase.sources.kafka import data_source, source
from twophase.sources.kafka.data_source import KafkaDataSource
from twophase.spark_versions import (
    FEATURES,
    SPARK,
    Feature,
    in_zone,
    to_arrow_schema,
    version_in,
)

ROOT = Path(__file__).parents[1]
ONE_VERSION = Feature("The sink", "It was tried with no other.", since=(4, 2), until=(4, 2))
SEVERAL = Feature("The sink", "Others lack it.", since=(4, 1), until=(4, 2))
FROM_ONE_ON = Feature("The sink", "Others lack it.", since=(4, 2), way_on="leave it out,")


@pytest.mark.parametrize("text", ["4.2.0", "4.2.1", "4.2.0.dev1", "4.2.11-vendor-2"])
def test_all_builds_of_a_version_are_one(text: str) -> None:
    assert version_in(text) == (4, 2)


def test_this_version_is_supported() -> None:
    assert OLDEST <= SPARK <= NEWEST


@pytest.mark.parametrize(
    ("feature", "has"),
    [
        (ONE_VERSION, [False, True, False]),
        (SEVERAL, [True, True, False]),
        (FROM_ONE_ON, [False, True, True]),
    ],
)
def test_a_feature_is_in_its_versions(feature: Feature, has: list[bool]) -> None:
    assert [feature.is_in((4, minor)) for minor in (1, 2, 3)] == has


@pytest.mark.parametrize(
    ("feature", "versions", "remedy"),
    [
        (ONE_VERSION, "4.2", "use PySpark 4.2."),
        (SEVERAL, "4.1 to 4.2", "use PySpark 4.1 to 4.2."),
        (FROM_ONE_ON, "4.2 or newer", "leave it out, or use PySpark 4.2 or newer."),
    ],
)
def test_a_missing_feature_is_refused_by_name(feature: Feature, versions: str, remedy: str) -> None:
    with pytest.raises(PreflightError) as refused:
        feature.require((4, 0))
    assert str(refused.value).startswith(
        f"The sink needs PySpark {versions}, and this is 4.0: {feature.why} Nothing was written."
    )
    assert refused.value.remedy == remedy


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_a_feature_that_is_here_is_not_refused(feature: Feature) -> None:
    feature.require(feature.since)
    if feature.is_in(SPARK):
        feature.require()


REFUSALS: dict[str, tuple[Any, str, Callable[[], object]]] = {
    "a source of Kafka without a schema": (
        data_source,
        "LIMITED_READS",
        lambda: KafkaDataSource({}).schema(),
    ),
    "a source of Kafka with a schema": (
        data_source,
        "LIMITED_READS",
        lambda: KafkaDataSource({}).streamReader(StructType()),
    ),
    "a source of Kafka in a job": (
        source,
        "LIMITED_READS",
        lambda: source.KafkaSource().check_options(SourceLeg("twophase-kafka", {})),
    ),
    "the settings for Delta": (delta_sink, "DELTA", DeltaSink.spark_conf),
    "the archive of Delta's classes": (delta_sink, "DELTA", lambda: DeltaSink.rehearsal(Path("x"))),
    "a session for Delta": (delta_preflight, "DELTA", delta_preflight.find_session),
    "rescaling": (
        savepoint,
        "REPARTITIONED_STATE",
        lambda: savepoint.rescale.callback("/nowhere", 3, None),  # type: ignore[misc]
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_needs_a_feature_is_refused_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    module, name, use = REFUSALS[what]
    monkeypatch.setattr(module, name, replace(getattr(module, name), since=(9, 0), until=None))
    with pytest.raises(PreflightError, match=r"needs PySpark 9\.0 or newer, and this is"):
        use()


SERVER = "{kafka.bootstrap.servers: 'nowhere.invalid:1', subscribe: a, value.format: json}"
FROM_KAFKA = f"source: {{format: twophase-kafka, schema: 'id long', options: {SERVER}}}"
FILES = "source: {format: json, schema: 'id long', options: {path: FOLDER/in}}"
OUT = "sinks: {out: {type: file, options: {path: FOLDER/out}}}"
TO_DELTA = "sinks: {out: {type: delta, options: {path: FOLDER/out}}}"
COMMANDS: dict[str, tuple[list[str], str]] = {
    "Source twophase-kafka": (["run", "--available-now", "JOB"], f"{FROM_KAFKA}\n{OUT}"),
    "The Delta sink": (["run", "--available-now", "JOB"], f"{FILES}\n{TO_DELTA}"),
    "Rescaling a savepoint": (["savepoint", "rescale", "/nowhere", "--partitions", "3"], ""),
}
"""For each feature a command that needs it, and the job file."""


def test_each_feature_has_a_command() -> None:
    assert {*COMMANDS} == {feature.name for feature in FEATURES}


@pytest.mark.parametrize(
    "feature", [one for one in FEATURES if not one.is_here], ids=lambda feature: feature.name
)
def test_the_command_says_what_this_version_lacks_and_writes_nothing(
    tmp_path: Path, feature: Feature
) -> None:
    arguments, text = COMMANDS[feature.name]
    (tmp_path / "in").mkdir()
    job = tmp_path / "job.yaml"
    text = f"name: orders\n{text}\noptions: {{checkpointLocation: FOLDER/chk}}\n"
    job.write_text(text.replace("FOLDER", str(tmp_path)))
    given = [str(job) if one == "JOB" else one for one in arguments]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == PreflightError.exit_code, done.output
    assert f"{feature.name} needs PySpark {feature.versions}, and this is" in done.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "chk").exists()


AT = TimestampType()
NESTED = (
    StructType()
    .add("at", AT)
    .add("local", TimestampNTZType())
    .add("text", StringType())
    .add("list", ArrayType(AT))
    .add("map", MapType(AT, AT, valueContainsNull=False))
    .add("deep", StructType().add("inner", ArrayType(StructType().add("at", AT)), nullable=False))
)


def test_timestamps_are_in_the_zone_of_the_session_at_any_depth() -> None:
    zone = "America/New_York"
    schema = to_arrow_schema(NESTED, timezone=zone)
    at = pa.timestamp("us", zone)
    assert schema.field("at").type == at
    assert schema.field("local").type == pa.timestamp("us")
    assert schema.field("text").type == pa.string()
    assert schema.field("list").type.value_type == at
    assert (schema.field("map").type.key_type, schema.field("map").type.item_type) == (at, at)
    assert schema.field("deep").type.field("inner").type.value_type.field("at").type == at


def test_a_schema_in_utc_is_brought_into_a_zone_as_spark_would() -> None:
    """The way of versions that have no argument for the zone; Spark's own is the oracle."""
    in_utc = to_arrow_schema(NESTED, timezone="UTC")
    asked = to_arrow_schema(NESTED, timezone="Asia/Tokyo")
    assert pa.schema([in_zone(field, "Asia/Tokyo") for field in in_utc]).equals(
        asked, check_metadata=True
    )


def test_large_types_are_as_asked() -> None:
    columns = StructType().add("a", StringType()).add("b", BinaryType())
    schema = to_arrow_schema(columns, timezone="UTC", prefers_large_types=True)
    assert schema.types == [pa.large_string(), pa.large_binary()]


def test_nothing_else_asks_for_the_version_of_spark() -> None:
    asks = re.compile(r"pyspark\.__version__|\bSPARK\s*[<>=]=?|spark_versions import .*\bSPARK\b")
    found = [
        str(path.relative_to(ROOT))
        for tree in ("twophase", "sinks")
        for path in (ROOT / tree).rglob("*.py")
        if path.name != "spark_versions.py" and asks.search(path.read_text())
    ]
    assert found == []


def test_what_differs_is_imported_from_one_module() -> None:
    differs = re.compile(
        r"from pyspark\.sql\.streaming\.datasource|pandas\.types import .*\bto_arrow_schema"
    )
    trees = ("twophase", "sinks", "harness", "benchmarks", "demo", "integration", "tests")
    found = [
        str(path.relative_to(ROOT))
        for tree in trees
        for path in (ROOT / tree).rglob("*.py")
        if path.name not in ("spark_versions.py", Path(__file__).name)
        and differs.search(path.read_text())
    ]
    assert found == []
