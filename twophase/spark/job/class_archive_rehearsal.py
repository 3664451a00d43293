"""Runs once what drivers do, while the JVM records the classes that it loads.

See `twophase/spark/startup/class_archive.py`.

python -m twophase.spark.job.class_archive_rehearsal '{"spark.jars": "..."}' it ends when its
standard
    input closes
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from twophase.contract.sink import Sink
from twophase.errors import ConfigError, PreflightError
from twophase.internals.sink_entry_points import load_sink, sink_names
from twophase.spark.job.stream_writer import write_stream
from twophase.spark.plugin.registration import register
from twophase.spark.startup.packages import PACKAGES

_PREFIX = "twophase-rehearsal-"
_ABANDONED_S = 86_400.0
"""Age at which a folder counts as abandoned: a rehearsal takes minutes at most."""
_ROWS = [1, 2, 3]

_log = logging.getLogger("twophase.spark.job.class_archive_rehearsal")


class _Numbers(DataSource):
    """A streaming source in Python."""

    def schema(self) -> str:
        return "id long"

    # of Spark's contract
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return _Reader()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    # an older Spark passes nothing
    def latestOffset(self, *start_and_limit: Any) -> dict[str, Any]:  # noqa: ARG002
        return {"next": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield pa.RecordBatch.from_pydict({"id": _ROWS})


def main(conf: Mapping[str, str]) -> None:
    """Run batches, a shuffle and a job with each sink, then let the JVM end and write its archive.

    Args:
        conf: Spark's configuration in the jobs. A sink that needs packages takes part if its
            settings are in it.
    """
    _delete_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        _leave_a_folder_that_is_gone(name)
        sinks, needed = _sinks(Path(name), conf)
        fixed = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        builder = SparkSession.builder.master("local[2]")
        spark = builder.config(map={**needed, **conf, **fixed}).getOrCreate()
        gateway: Any = SparkContext._gateway
        try:
            _live(spark, Path(name), sinks)
        finally:
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()  # it writes the archive; the recorder ends us if it takes too long


def _leave_a_folder_that_is_gone(spare: str) -> None:
    """Leave a working directory that is deleted: Spark does not start in one.

    Any other stays: relative paths in the environment (PYTHONPATH, SPARK_CONF_DIR) start from it.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        os.chdir(spare)


def _delete_abandoned() -> None:
    """Delete the folders of this account's killed rehearsals, as far as that is possible."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            known = folder.lstat()
            if known.st_uid == os.geteuid() and time.time() - known.st_mtime > _ABANDONED_S:
                shutil.rmtree(folder)  # raises for a link


def _sinks(folder: Path, conf: Mapping[str, str]) -> tuple[dict[str, Sink], dict[str, str]]:
    sinks: dict[str, Sink] = {}
    needed: dict[str, str] = {}
    for name in sink_names():
        try:
            kind: type[Sink] = load_sink("rehearsal", name)
            (folder / name).mkdir()
            found = kind.rehearsal(folder / name)
        except (
            ConfigError,
            PreflightError,
        ):  # its extra is not installed, or Spark lacks something
            continue
        if found is None:
            continue
        sink, settings = found
        asked = dict(sink.spark_conf())
        if asked.pop(PACKAGES, None) is None or asked.items() <= conf.items():
            sinks[name] = sink
            needed |= {**asked, **settings}
    return sinks, needed


def _live(spark: SparkSession, folder: Path, sinks: Mapping[str, Sink]) -> None:
    register(spark)
    spark.dataSource.register(_Numbers)
    rows = spark.readStream.format("_Numbers").load().filter("id > 0")
    query = rows.writeStream.foreachBatch(_handle).option(
        "checkpointLocation", f"file://{folder}/query"
    )
    query.trigger(availableNow=True).start().awaitTermination()
    for name, sink in sinks.items():
        try:
            job = write_stream(rows, name=f"rehearsal-{name}").sink(name, sink)
            job = job.option("checkpointLocation", str(folder / f"job-{name}")).option(
                "restart.strategy", "none"
            )
            job.trigger(availableNow=True).start().await_termination()
        except Exception:  # noqa: BLE001 an archive without one sink's classes is better than none
            _log.warning("sink %s was not rehearsed", name, exc_info=True)


def _handle(batch: DataFrame, number: int) -> None:  # noqa: ARG001
    batch.persist()
    batch.mapInArrow(lambda batches: batches, "id long").collect()
    batch.groupBy("id").count().collect()
    batch.unpersist()


def _end_with_the_recorder() -> None:
    """Exit, and the JVM with it, when the recording process has died: nothing waits for us."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_recorder, daemon=True).start()
    main(json.loads(sys.argv[1]))
