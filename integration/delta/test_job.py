"""A whole job into a Delta table: others write to the table meanwhile; several sinks in one
checkpoint; the command.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
import yaml
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness import delta_lake
from harness.delta_settings import delta_settings
from harness.held_jobs import wait_until
from harness.json_rows import feed, make_input, read
from harness.nemesis import ROOT
from integration.delta.sink_harness import DeltaHarness
from twophase.sinks.delta.sink import DeltaSink
from twophase.spark.job.job import Job

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

THEIRS = 1_000_000
# By the names that Delta's log has for them.
STATEMENTS = {
    "WRITE": "INSERT INTO {table} (id) VALUES ({id})",
    "DELETE": f"DELETE FROM {{table}} WHERE id >= {THEIRS}",
    "OPTIMIZE": "OPTIMIZE {table}",
    "ADD COLUMNS": "ALTER TABLE {table} ADD COLUMNS (note{id} STRING)",
}
ALL_INPUT: Mapping[str, Any] = {"availableNow": True}
FOR_EVER: Mapping[str, Any] = {"processingTime": "0 seconds"}
_TIMEOUT_S = 300


def start(
    frame: DataFrame, location: Path, trigger: Mapping[str, Any] = ALL_INPUT, **sinks: DeltaSink
) -> Job:
    writer = twophase.write_stream(frame, name="orders").option("checkpointLocation", str(location))
    for name, sink in sinks.items():
        writer.sink(name, sink)
    return writer.trigger(**trigger).start()


def ours(table: DeltaHarness) -> list[int]:
    """The rows of the job that are in the table."""
    return [id for id in table.ids() if id < THEIRS]


def meanwhile(table: DeltaHarness) -> set[str]:
    """What others did between two commits of the job, as the table's log tells it: the job was at
    work before and after.
    """
    done = [
        action["commitInfo"]
        for commit in table.commits()
        for action in commit
        if "commitInfo" in action
    ]
    ours = [
        number for number, info in enumerate(done) if "twophase" in info.get("userMetadata", "")
    ]
    return {info["operation"] for info in done[ours[0] : ours[-1]]} if ours else set()


def landed(table: DeltaHarness, statement: str) -> bool:
    """Whether a statement of somebody else has gone in; if the job came first, it is
    theirs to try again.
    """
    try:
        table.sql(statement)
    except (Py4JJavaError, PySparkException) as error:
        if "conflict" not in str(error):
            raise
        return False
    return True


@pytest.mark.timeout(1800)
def test_others_append_delete_optimize_and_alter_the_table_while_the_job_runs(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """The job is fed before each statement, until each kind has landed between
    two of its commits.
    """
    rows = make_input(tmp_path / "in", 1)
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    job = start(
        read(delta_spark, tmp_path / "in"), tmp_path / "job", FOR_EVER, lake=table.new_sink()
    )
    statements = cycle(STATEMENTS.values())
    for number in count(1):
        if meanwhile(table) >= {*STATEMENTS}:
            break
        rows += feed(tmp_path / "in", number)
        statement = next(statements).replace("{id}", str(THEIRS + number))
        while not landed(table, statement):
            assert job.is_active, job.exception()
        assert job.is_active, job.exception()
    wait_until(lambda: not job.is_active or len(ours(table)) >= rows, "the rows of all files")
    job.stop()
    assert ours(table) == list(range(rows))
    # The stop may interrupt the commit of a decided checkpoint: the next start finishes it.
    start(
        read(delta_spark, tmp_path / "in"), tmp_path / "job", lake=table.new_sink()
    ).await_termination(_TIMEOUT_S)
    assert ours(table) == list(range(rows))
    assert table.records() == []


def test_two_tables_have_the_same_checkpoints(delta_spark: SparkSession, tmp_path: Path) -> None:
    rows = make_input(tmp_path / "in", 2)
    tables = [DeltaHarness(delta_spark, tmp_path / name) for name in ("one", "two")]
    one, two = (table.new_sink() for table in tables)
    assert start(
        read(delta_spark, tmp_path / "in"), tmp_path / "job", one=one, two=two
    ).await_termination(_TIMEOUT_S)
    assert [table.ids() for table in tables] == [list(range(rows))] * 2
    checkpoints = [
        [note["checkpoint"] for note in table.notes() if "checkpoint" in note] for table in tables
    ]
    assert checkpoints == [[0, 1], [0, 1]]


def test_the_command_runs_a_job_into_a_table_that_it_makes(tmp_path: Path) -> None:
    rows = make_input(tmp_path / "in", 2)
    # The sink says what Spark needs; only the package is replaced by jars that are in
    # the cache already.
    jars = {key: value for key, value in delta_settings().items() if key.startswith("spark.jars")}
    options = {"path": str(tmp_path / "orders"), "create": True, "partition_by": ["part"]}
    job = {
        "name": "orders",
        "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False, **jars}},
        "source": {
            "format": "json",
            "schema": "id long, name string, amount double",
            "options": {"path": str(tmp_path / "in"), "maxFilesPerTrigger": 1},
        },
        "sql": "select id, name, id % 2 as part from source",
        "sinks": {"lake": {"type": "delta", "options": options}},
        "options": {"checkpointLocation": str(tmp_path / "job")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    command = [
        sys.executable,
        "-m",
        "twophase.cli",
        "run",
        str(tmp_path / "job.yaml"),
        "--available-now",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert delta_lake.count(tmp_path / "orders") == rows
    assert {Path(name).parts[0] for name in delta_lake.live_files(tmp_path / "orders")} == {
        "part=0",
        "part=1",
    }
