"""Sinks of a declarative pipeline, run by `spark-pipelines` and killed: every record once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.iceberg_places import SqlitePlace
from harness.selection import representatives
from integration.pipelines.scenario import BATCH, POINTS, PipelineScenario
from integration.plugin.scenario import TIMEOUT_S, Made, in_files, in_mysql
from integration.without_spark.targets import IcebergTarget, KafkaTarget, Target
from twophase.spark.plan import shuffles
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("plugin")

SINKS: dict[str, Callable[[KafkaService, MySqlService], Made[Target]]] = {
    "mysql": lambda _, mysql: in_mysql(mysql),
    "file": lambda _, __: in_files,
    "kafka": lambda kafka, _: lambda job, __: KafkaTarget(kafka.bootstrap_servers, job),
    "iceberg": lambda _, __: lambda ___, folder: IcebergTarget(SqlitePlace(folder / "lake")),
}


@pytest.fixture(params=representatives(SINKS, {"mysql"}))
def scenario(
    request: pytest.FixtureRequest, kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> Iterator[PipelineScenario]:
    made = SINKS[request.param](kafka, mysql)
    with closing(PipelineScenario(kafka, made, tmp_path, len(POINTS), BATCH)) as scenario:
        yield scenario


def test_every_flow_is_killed_at_another_point_and_has_every_record_once(
    scenario: PipelineScenario,
) -> None:
    scenario.kill_each_flow()


@pytest.fixture
def pipeline(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> Iterator[PipelineScenario]:
    """A pipeline of one flow."""
    with closing(PipelineScenario(kafka, in_mysql(mysql), tmp_path)) as scenario:
        scenario.produce(BATCH)
        yield scenario


def test_a_flow_that_fails_is_started_again_by_the_run_and_recovers(
    pipeline: PipelineScenario,
) -> None:
    conf = {
        "spark.sql.pipelines.maxFlowRetryAttempts": "1",
        "spark.sql.pipelines.execution.watchdog.minRetryTime": "1",
    }
    ended = pipeline.finish("C11=kill@1", conf=conf)
    assert ended.points == ["C11"]
    assert pipeline.history(pipeline.jobs[0]).generation > 1
    pipeline.verify()


@pytest.mark.parametrize("is_meant", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_a_full_refresh_writes_nothing_and_what_the_page_says_to_do_then_works(
    pipeline: PipelineScenario, is_meant: bool
) -> None:
    [job] = pipeline.jobs
    pipeline.finish()
    refused = pipeline.driver(arguments=["--full-refresh-all"]).wait(TIMEOUT_S)
    assert refused.code == 1
    assert f"CheckpointMissingError: Job '{job}': the checkpoint store is empty" in refused.output
    pipeline.no_row_is_duplicated()
    [_, newest] = pipeline.folders(job)
    if is_meant:
        pipeline.table(job).sql("TRUNCATE TABLE orders")
        pipeline.settings["jobs"][job]["options"]["name"] = "again"
    else:
        shutil.rmtree(newest)
    pipeline.produce(BATCH)
    pipeline.finish()
    verdict = pipeline.verdict(job)
    assert (verdict.exact, verdict.produced) == (True, 2 * BATCH), verdict


@pytest.mark.proof
def test_a_flow_is_refused_where_a_shuffle_could_mix_rows_and_runs_with_the_setting_it_asks_for(
    pipeline: PipelineScenario,
) -> None:
    ended = pipeline.driver(conf={shuffles.FULL_RETRY: "false"}).wait(TIMEOUT_S)
    assert ended.code == 1
    assert f"PreflightError: Job '{pipeline.jobs[0]}'" in ended.output
    assert f"{shuffles.FULL_RETRY} is not true" in ended.output
    pipeline.no_row_is_duplicated()
    pipeline.finish(conf={shuffles.FULL_RETRY: "true"})
    pipeline.verify()


@pytest.mark.proof
def test_a_folder_of_its_own_is_one_that_a_full_refresh_leaves_as_it_is(
    pipeline: PipelineScenario, tmp_path: Path
) -> None:
    [job] = pipeline.jobs
    options = pipeline.settings["jobs"][job]["options"]
    options["checkpointLocation"] = str(tmp_path / "elsewhere")
    pipeline.finish()
    pipeline.produce(BATCH)
    pipeline.finish(arguments=["--full-refresh-all"])
    verdict = pipeline.verdict(job)
    assert (verdict.exact, verdict.produced) == (True, 2 * BATCH), verdict
    assert (tmp_path / "elsewhere" / "twophase").is_dir()


@pytest.mark.proof
def test_a_second_flow_to_a_sink_duplicates_nothing(pipeline: PipelineScenario) -> None:
    ended = pipeline.driver(second_flow=True).wait(TIMEOUT_S)
    assert ended.code == 1
    assert "CheckpointMissingError" in ended.output or "FencedError" in ended.output
    pipeline.no_row_is_duplicated()
