"""Spark's folder of a query is no folder of a job, whatever the query was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.folder_sink import FolderSink, FolderTarget
from twophase.errors import ConfigError
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.sources.kafka.starting_offsets import Specific, parse_starting
from twophase.spark.folder.query_folder import check_root
from twophase.spark.job.stream_writer import write_stream

OFFSETS = {"orders": {"0": 34285, "1": 12}}
KAFKA_LINE = json.dumps(OFFSETS)
OUR_LINE = SourceOffset.of(
    "kafka",
    (
        PartitionOffset("orders", "id-of-it", int(number), offset)
        for number, offset in OFFSETS["orders"].items()
    ),
).to_line()


def query(root: Path, line: str, *, finished: int, planned: int) -> None:
    """A folder as Spark leaves it."""
    for log, newest, rest in (("offsets", planned, [line]), ("commits", finished, [])):
        (root / log).mkdir()
        for number in range(newest + 1):
            (root / log / str(number)).write_text("\n".join(["v1", "{}", *rest]))
    (root / "metadata").write_text('{"id": "4f2a"}')


def refusal(root: Path) -> str:
    before = sorted(root.rglob("*"))
    with pytest.raises(ConfigError) as caught:
        check_root(root)
    assert sorted(root.rglob("*")) == before
    assert f"checkpointLocation {root} is Spark's folder of a query" in str(caught.value)
    assert "Nothing was written. Next: " in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("line", [KAFKA_LINE, OUR_LINE], ids=["kafka", "twophase-kafka"])
def test_the_offsets_of_a_query_over_kafka_are_the_starting_offsets_of_a_job(
    tmp_path: Path, line: str
) -> None:
    query(tmp_path, line, finished=3, planned=3)
    text = refusal(tmp_path)
    assert "micro-batch 3 of the query ended" in text
    assert "had begun" not in text
    found = re.search(r""""startingOffsets", '(\{.*?\}\})'""", text)
    assert found is not None
    assert parse_starting(found[1]) == Specific(
        tuple((Partition("orders", int(p)), o) for p, o in OFFSETS["orders"].items())
    )


def test_a_micro_batch_that_had_begun_is_named_and_the_offsets_are_those_before_it(
    tmp_path: Path,
) -> None:
    query(tmp_path, '{"orders":{"0":1}}', finished=3, planned=3)
    (tmp_path / "offsets" / "4").write_text('v1\n{}\n{"orders":{"0":2}}')
    text = refusal(tmp_path)
    assert """("startingOffsets", '{"orders":{"0":1}}'): there micro-batch 3""" in text
    assert "Micro-batch 4 had begun: some of its rows may be in the target" in text
    [page] = re.findall(r"The steps are in (\S+)\.$", text)
    assert "If the old query ended in an unfinished micro-batch" in Path(page).read_text()


@pytest.mark.parametrize("name", ["offsets", "commits", "metadata"])
def test_any_trace_of_a_query_is_enough(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert "checkpointLocation of its own. " in refusal(tmp_path)


def test_offsets_that_cannot_be_read_are_left_to_the_operator(tmp_path: Path) -> None:
    query(tmp_path, KAFKA_LINE, finished=0, planned=0)
    (tmp_path / "offsets" / "0").write_text("v2\n")
    assert "checkpointLocation of its own. " in refusal(tmp_path)


def test_the_folder_inside_is_named_for_a_query_of_the_plugin_form(tmp_path: Path) -> None:
    query(tmp_path, KAFKA_LINE, finished=0, planned=0)
    (tmp_path / "twophase" / "log").mkdir(parents=True)
    assert f"give {tmp_path / 'twophase'} as checkpointLocation." in refusal(tmp_path)
    check_root(tmp_path / "twophase")


def test_what_a_query_has_left_in_the_folder_of_a_job_is_moved_away(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "metadata").touch()
    (tmp_path / "offsets").mkdir()
    assert "move what Spark has left there (offsets, metadata) away" in refusal(tmp_path)
    for name in ("offsets", "metadata"):
        (tmp_path / name).rename(tmp_path.with_name(f"old-{name}"))
    check_root(tmp_path)


class Files:
    """A folder of files, a query that has written them with foreachBatch, and the job after it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        (root / "input").mkdir()
        self.old: list[int] = []

    def add(self, number: int, folder: str = "input") -> None:
        (self.root / folder / f"{number}.json").write_text(json.dumps({"id": number}))

    def frame(self, folder: str = "input") -> DataFrame:
        return self.spark.readStream.schema("id long").json(str(self.root / folder))

    def run_query(self, write: Callable[[DataFrame, int], None]) -> None:
        writer = self.frame().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", f"file://{self.root}/chk")
        writer.trigger(availableNow=True).start().awaitTermination()

    def run_job(self, chk: str, folder: str = "input") -> None:
        writer = write_stream(self.frame(folder), name="orders")
        writer.sink("facts", FolderSink(self.root / "facts"))
        writer.option("checkpointLocation", str(self.root / chk)).trigger(availableNow=True)
        writer.start().await_termination(120)


@pytest.mark.spark
@pytest.mark.part("runtime")
def test_the_files_that_a_query_with_foreach_batch_has_read_are_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path)
    files.add(1)
    files.run_query(lambda rows, _: files.old.extend(row["id"] for row in rows.collect()))
    assert files.old == [1]
    with pytest.raises(ConfigError, match="a source folder without the files that were read"):
        files.run_job("chk")
    assert not (tmp_path / "chk" / "log").exists()
    (tmp_path / "new").mkdir()  # the remedy
    files.add(2, "new")
    files.run_job("job", "new")
    assert [row["id"] for row in FolderTarget(tmp_path / "facts").rows()] == [2]
