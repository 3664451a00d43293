"""A Spark of its own, with what a start does beforehand; prints what it saw as JSON. See
`test_first_processes.py`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from twophase.cli import gateway as gateway_module
from twophase.spark.startup.first_processes import Nothing, skip_lookup, start_workers

_LOOKUP, _PLANNER, _TASKS = "lookup_data_sources", "plan_data_source_read", "daemon pyspark.worker"


class Other(Nothing):
    """Another one."""

    @classmethod
    def name(cls) -> str:
        return "other"


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = SparkContext._gateway
    seen: dict[str, Any] = {"before": _nice(gateway.proc.pid)}
    gateway_module._FEW_PROCESSORS = os.cpu_count() or 1
    gateway_module.slow_down_optimiser(gateway.proc.pid)
    seen["after"] = _nice(gateway.proc.pid)
    skip_lookup(spark)
    start_workers(spark)
    while not (_runs(_PLANNER) and _runs(_TASKS)):
        time.sleep(0.1)
    seen["looked"] = _runs(_LOOKUP)
    _forget(spark)
    (folder / "pyspark_other").mkdir()
    (folder / "pyspark_other" / "__init__.py").write_text(
        "from tests.spark.startup.first_processes_driver import Other as DefaultSource\n"
    )
    another = spark.newSession()  # each session asks once
    skip_lookup(another)
    another.dataSource.register(Other)
    seen["looked where a package may have some"] = _runs(_LOOKUP)
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _nice(pid: int) -> dict[str, int]:
    """Of each thread that compiles, by kind and number."""
    found: dict[str, int] = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has just ended
            kind = (thread / "comm").read_text()
            if "CompilerThre" in kind:
                found[f"{kind.split()[0]} {thread.name}"] = os.getpriority(
                    os.PRIO_PROCESS, int(thread.name)
                )
    return found


def _runs(name: str) -> bool:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if name in " ".join(child.cmdline()):
                return True
    return False


def _forget(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    kind = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.datasources.DataSourceManager$"
    )
    field = kind.getDeclaredField("dataSourceBuilders")
    field.setAccessible(True)
    field.set(None, getattr(jvm, "scala.Option").apply(None))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
