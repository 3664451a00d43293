"""What `write_stream` refuses before anything runs, and the call that it asks for instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from twophase.errors import ConfigError
from twophase.sinks.file import FileSink
from twophase.spark.job.stream_writer import StreamWriter, write_stream


@pytest.fixture
def writer() -> StreamWriter:
    """A description of a job asks nothing of its DataFrame before `start`."""
    return StreamWriter(cast(DataFrame, None), "orders")


def test_two_sinks_of_one_name_are_refused_and_each_has_its_own(writer: StreamWriter) -> None:
    writer.sink("facts", "file", path="/lake/orders")
    with pytest.raises(ConfigError, match="two sinks named 'facts'") as caught:
        writer.sink("facts", "file", path="/lake/copies")
    assert caught.value.remedy == "give each its own name."
    writer.sink("copies", "file", path="/lake/copies")
    assert [*writer._sinks] == ["facts", "copies"]


def test_two_functions_of_one_name_are_refused_and_each_has_its_own(writer: StreamWriter) -> None:
    writer.function("count", Counted())
    with pytest.raises(ConfigError, match="two functions named 'count'") as caught:
        writer.function("count", Counted())
    assert caught.value.remedy == "give each its own name."
    writer.function("recount", Counted())
    assert [*writer._functions] == ["count", "recount"]


class Counted:
    """A function without state."""

    def snapshot_state(self, context: Any) -> None:
        """It has none."""

    def initialize_state(self, context: Any) -> None:
        """It has none."""


@pytest.mark.spark
def test_a_job_runs_once_each_refusal_was_answered_as_it_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}')
    with pytest.raises(ConfigError, match="is not streaming") as caught:
        write_stream(spark.read.schema("id long").json(f"{tmp_path}/in"), name="orders")
    assert caught.value.remedy == "load it with spark.readStream."
    rows = spark.readStream.schema("id long").json(f"{tmp_path}/in")
    writer = write_stream(rows, name="orders").option("checkpointLocation", f"{tmp_path}/job")
    writer.trigger(availableNow=True)
    with pytest.raises(ConfigError, match="has no sink") as caught:
        writer.start()
    assert caught.value.remedy == "add one with .sink(name, sink)."
    neither: Any = tmp_path / "out"
    with pytest.raises(ConfigError, match="not an ArrowSink or a BatchSink") as caught:
        writer.sink("facts", neither)
    assert caught.value.remedy.startswith("pass a sink, or the type of an installed one")
    assert not (tmp_path / "job").exists()
    for folder in ("out", "copies"):
        (tmp_path / folder).mkdir()
    writer.sink("facts", FileSink(path=f"{tmp_path}/out", format="json"))
    writer.sink("copies", "file", path=f"{tmp_path}/copies", format="json")
    writer.start().await_termination(120)
    for folder in ("out", "copies"):
        [file] = (tmp_path / folder).glob("*.json")
        assert json.loads(file.read_text()) == {"id": 1}
