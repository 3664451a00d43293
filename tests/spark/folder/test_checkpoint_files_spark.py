"""How Spark writes its checkpoint folder, on Spark: which class a query gets, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink
from harness.spark_settings import changed
from twophase.spark.folder.checkpoint_files import BY_FILE_SYSTEM, MANAGER
from twophase.spark.job.stream_writer import write_stream

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

BY_FILE_CONTEXT = BY_FILE_SYSTEM.replace("FileSystemBased", "FileContextBased")


@pytest.fixture
def manager(spark: SparkSession, tmp_path: Path) -> Any:
    jvm: Any = spark._jvm
    made = jvm
    for name in BY_FILE_SYSTEM.split("."):
        made = getattr(made, name)
    jspark: Any = spark._jsparkSession
    return made(jvm.org.apache.hadoop.fs.Path(str(tmp_path)), jspark.sessionState().newHadoopConf())


@pytest.fixture
def write(spark: SparkSession, manager: Any, tmp_path: Path) -> Callable[[bytes, bool], None]:
    """Writes a file with a content; whether it may write over one."""
    jvm: Any = spark._jvm

    def written(content: bytes, over: bool) -> None:
        path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "offsets" / "0"))
        stream = manager.createAtomic(path, over)
        stream.write(bytearray(content))
        stream.close()

    return written


@pytest.mark.parametrize(
    ("stateful", "given", "expected"),
    [
        pytest.param(False, {}, BY_FILE_SYSTEM, id="no state"),
        pytest.param(True, {}, BY_FILE_CONTEXT, id="state"),
        pytest.param(False, {MANAGER: BY_FILE_CONTEXT}, BY_FILE_CONTEXT, id="the user's"),
        pytest.param(True, {MANAGER: BY_FILE_SYSTEM}, BY_FILE_SYSTEM, id="state, the user's"),
    ],
)
def test_a_query_without_state_writes_by_file_system_unless_the_user_has_decided(
    spark: SparkSession, tmp_path: Path, stateful: bool, given: dict[str, str], expected: str
) -> None:
    rows = spark.readStream.format("rate").load()
    if stateful:
        rows = rows.withWatermark("timestamp", "1 minute").dropDuplicates(["value", "timestamp"])
    job = write_stream(rows, name="orders").sink("facts", FolderSink(tmp_path / "facts"))
    job.option("checkpointLocation", str(tmp_path / "job"))
    with changed(spark, given):
        running = job.start()
    try:
        [query] = spark.streams.active
        execution = query._jsq.streamingQuery()
        files = execution.offsetLog().fileManager().getClass().getName()
    finally:
        running.stop()
        running.await_termination()
    assert files == expected
    assert spark.conf.get(MANAGER, None) is None


def test_a_micro_batch_that_is_planned_is_not_planned_over(
    write: Callable[[bytes, bool], None], tmp_path: Path
) -> None:
    write(b"first", False)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExists"):
        write(b"second", False)
    assert (tmp_path / "offsets" / "0").read_bytes() == b"first"


def test_a_file_that_may_be_written_over_is_not_which_state_stores_rely_on(
    write: Callable[[bytes, bool], None], tmp_path: Path
) -> None:
    """If a Spark writes it over one day, plans with state can have this manager too."""
    write(b"first", False)
    write(b"second", True)
    assert (tmp_path / "offsets" / "0").read_bytes() == b"first"
