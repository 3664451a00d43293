"""The process of `benchmarks.recovery`: a driver that recovers, and then leaves as much
behind as it found.

    python benchmarks/recovery_driver.py '{"sinks": ["mysql"], "decided": 1, ...}'

It imports the product and nothing of the benchmarks: the product may be that of another commit.
Measuring starts when Spark is up:

    opened_s       `start()` until every sink is open and the job's fence is in its log
    recovered_s    from there until recovery is over
    replayed_s     the start of the query until Spark's replay of the decided micro-batch is over
    cpu_s          processor time of the driver, its JVM and its workers, until recovery is over

The result is the last line of the output. The process then ends as a crash would end it, with
`decided` checkpoints decided and not committed, because the driver's commits are held
at crash point C11.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import SparkSession

import twophase
from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointReplayed,
    Event,
    RecoveryFinished,
    RecoveryStarted,
)
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.sink import HiveSink
from twophase.sinks.mysql.sink import MySqlSink

if TYPE_CHECKING:  # a product of another commit has it elsewhere
    from twophase.contract.sink import Sink

_TIMEOUT_S = 300
_ROWS = 1_000

_SINKS: dict[str, Callable[[dict[str, Any]], Sink]] = {
    "mysql": lambda settings: MySqlSink(**settings["mysql"]),
    "delta": lambda settings: DeltaSink(path=f"{settings['folder']}/lake", create=True),
    "hive": lambda _: HiveSink(table="orders", create=True),
    "file": lambda settings: FileSink(path=f"{settings['folder']}/files"),
}


class _Watch:
    """Records the times of events, and waits for a number of them. An observer of events."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.decided = 0
        self.committed = 0
        self.recommitted = 0
        self.cpu_s = 0.0
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        now_s = time.monotonic()
        with self._changed:
            match event:
                case RecoveryStarted():
                    self.times["opened"] = now_s
                case RecoveryFinished():
                    self.times["recovered"], self.recommitted = now_s, event.recommitted
                    self.cpu_s = cpu_s()
                case CheckpointReplayed():
                    self.times["replayed"] = now_s
                case CheckpointDecided():
                    self.decided += 1
                case CheckpointCommitted():
                    self.committed += 1
                case _:
                    pass
            self._changed.notify_all()

    def wait(self, enough: Callable[[], bool]) -> None:
        """Wait until there are enough events."""
        with self._changed:
            if not self._changed.wait_for(enough, _TIMEOUT_S):
                raise TimeoutError(
                    f"{self.decided} decided and {self.committed} committed after {_TIMEOUT_S} s"
                )


def cpu_s() -> float:
    """Return the processor seconds of this process and its living descendants."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(found.user + found.system for found in times)


def main(settings: dict[str, Any]) -> None:
    """Recover, write, print, and end."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in settings["spark"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    watch, decided = _Watch(), settings["decided"]
    described = twophase.write_stream(frame, name="recovery").observer(watch)
    for name in settings["sinks"]:
        described.sink(name, _SINKS[name](settings))
    described.option("checkpointLocation", f"{settings['folder']}/job")
    described.option("checkpoint.max_concurrent", max(1, decided))
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    job = described.start()
    started_s = time.monotonic()
    watch.wait(lambda: watch.decided >= decided if decided else watch.committed > 0)
    times = watch.times
    result = {
        "opened_s": times["opened"] - began_s,
        "recovered_s": times["recovered"] - times["opened"],
        "replayed_s": times["replayed"] - started_s if "replayed" in times else None,
        "cpu_s": watch.cpu_s - began_cpu_s,
        "recommitted": watch.recommitted,
    }
    print(json.dumps(result), flush=True)
    if not decided:
        job.stop()
        spark.stop()
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
