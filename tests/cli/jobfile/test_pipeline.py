"""From a job file to a described job, on real Spark."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from twophase.cli.jobfile.job_file import JobFile, load_job_file
from twophase.cli.jobfile.pipeline import describe
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, Sink
from twophase.errors import ConfigError
from twophase.spark.job.stream_writer import StreamWriter

pytestmark = pytest.mark.spark


class Pipeline:
    """A job file over a folder of input."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        (root / "in").mkdir()
        (root / "in" / "0.json").write_text(
            "".join(f'{{"id": {number}}}\n' for number in range(10))
        )
        self.source = {"format": "json", "schema": "id long", "options": {"path": str(root / "in")}}

    def job(self, **change: Any) -> JobFile:
        sinks = {"facts": {"type": "x"}}
        options = {"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"}
        content = {
            "name": "orders",
            "source": self.source,
            "sinks": sinks,
            "options": options,
        } | change
        path = self.root / "job.yaml"
        path.write_text(
            yaml.safe_dump({key: value for key, value in content.items() if value is not None})
        )
        return load_job_file(path, {}, available_now=True)

    def writer(self, kind: type[OpenFolderSink] | None = None, **change: Any) -> StreamWriter:
        job = self.job(**change)
        sinks: dict[str, Sink] = {name: FolderSink(self.root / name, kind) for name in job.sinks}
        return describe(self.spark, job, sinks)

    def run(self, **change: Any) -> None:
        self.writer(**change).start().await_termination(120)

    def rows(self, sink: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in FolderTarget(self.root / sink).rows())


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


def test_sql_transforms_the_source_and_each_sink_sees_its_own_query(pipeline: Pipeline) -> None:
    pipeline.run(
        sql="select id, id * 2 as twice from source where id >= 5",
        sinks={
            "facts": {"type": "x"},
            "sums": {"type": "x", "sql": "select count(*) as count, sum(twice) as twice from rows"},
            "few": {"type": "x", "sql": "select twice from rows where id > 7"},
        },
    )
    assert pipeline.rows("facts") == [(number, 2 * number) for number in range(5, 10)]
    assert pipeline.rows("sums") == [(5, 70)]
    assert pipeline.rows("few") == [(16,), (18,)]


def test_several_sources_are_views_of_one_query(pipeline: Pipeline) -> None:
    sources = {"a": pipeline.source, "b": pipeline.source}
    pipeline.run(
        source=None,
        sources=sources,
        sql="select id from a where id < 2 union all select -id from b where id = 3",
    )
    assert pipeline.rows("facts") == [(-3,), (0,), (1,)]


def test_the_rows_of_a_source_have_the_watermark_of_the_file(pipeline: Pipeline) -> None:
    late = {"column": "at", "delay": "90 s"}
    source = {**pipeline.source, "schema": "id long, at timestamp", "watermark": late}
    sql = "select window(at, '5 minutes') as window, count(*) as n from source group by 1"
    job = pipeline.writer(source=source, sql=sql).build()
    plan: Any = job.description.frame._jdf.queryExecution()
    assert "-T90000ms" in str(plan.analyzed())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"source": {"format": "no-such-format"}}, "job.yaml: source: Spark rejects it"),
        ({"source": {"format": "json", "schema": "id lung"}}, "job.yaml: source: Spark rejects it"),
        (
            {"source": {"format": "rate", "watermark": {"column": "at", "delay": "1 s"}}},
            "job.yaml: source: Spark rejects it",
        ),
        ({"sql": "selekt"}, "job.yaml: sql: Spark rejects it"),
        ({"sql": "select 1 as id"}, "is not streaming"),
        (
            {"sinks": {"facts": {"type": "x", "sql": "select nothing from rows"}}},
            "job.yaml: sinks.facts.sql: Spark rejects",
        ),
    ],
)
def test_what_spark_refuses_is_named(pipeline: Pipeline, change: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pipeline.run(**change)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_job_that_spark_refuses_runs_once_its_file_is_corrected(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="Spark rejects it") as caught:
        pipeline.run(sql="select nothing from source")
    assert caught.value.remedy == "correct job.yaml."
    pipeline.run(sql="select id from source")
    assert pipeline.rows("facts") == [(number,) for number in range(10)]


class Unreachable(OpenFolderSink):
    """Is down when it is to commit."""

    asked = threading.Event()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.asked.set()
        raise ConnectionError("the target is down")


def test_a_job_can_be_stopped_while_its_recovery_waits_for_a_target(pipeline: Pipeline) -> None:
    first = pipeline.writer(Unreachable).start()
    assert Unreachable.asked.wait(60)
    first.stop()
    Unreachable.asked.clear()
    job = pipeline.writer(Unreachable).build()

    def stop() -> None:
        Unreachable.asked.wait(60)
        job.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    job.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert (job.is_active, job.exception()) == (False, None)
    pipeline.run()
    assert pipeline.rows("facts") == [(number,) for number in range(10)]


def test_stopping_a_job_that_could_not_start_returns(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ConfigError("the target is not right")

    monkeypatch.setattr(FolderSink, "open", refuse)
    job = pipeline.writer().build()
    with pytest.raises(ConfigError, match="not right"):
        job.start()
    stopping = threading.Thread(target=job.stop, daemon=True)
    stopping.start()
    stopping.join(20)
    assert not stopping.is_alive()
