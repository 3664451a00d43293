"""Which plans keep state in Spark, and what asking executors for the job's folder costs in local mode: nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.rights import permissions_checked
from twophase.runtime import plan
from twophase.runtime.shared_folder import SharedFolder, _write


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]"])
def test_in_local_mode_nothing_is_asked(tmp_path: Path, master: str) -> None:
    context: Any = SimpleNamespace(master=master)
    SharedFolder("orders", context, tmp_path / "spark").check()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_can_write_leaves_nothing_behind(tmp_path: Path) -> None:
    assert list(_write(str(tmp_path), 0, [])) == [""]
    assert list(tmp_path.iterdir()) == []


def test_a_task_says_why_it_cannot_write(tmp_path: Path) -> None:
    assert list(_write(str(tmp_path / "gone"), 0, [])) == ["FileNotFoundError: No such file or directory"]
    (tmp_path / "closed").mkdir(mode=0o500)
    with permissions_checked():
        assert list(_write(str(tmp_path / "closed"), 0, [])) == ["PermissionError: Permission denied"]


PLANS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], bool]] = {
    "rows as they are": (lambda rows, _: rows.where("id > 1"), False),
    "a static table is joined": (lambda rows, static: rows.join(static, "id"), False),
    "a static table is aggregated and joined": (
        lambda rows, static: rows.join(static.groupBy("id").count(), "id"),
        False,
    ),
    "a shuffle": (lambda rows, _: rows.repartition(2), False),
    "groups": (lambda rows, _: rows.groupBy("id").count(), True),
    "distinct rows": (lambda rows, _: rows.distinct(), True),
    "no duplicates": (lambda rows, _: rows.dropDuplicates(["id"]).where("id > 1"), True),
    "the first rows": (lambda rows, _: rows.limit(2), True),
    "a join of two streams": (lambda rows, _: rows.join(rows.withColumnRenamed("id", "other"), rows.id > 1), True),
    "a union with groups": (lambda rows, _: rows.union(rows.groupBy("id").count().select("id")), True),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_keeps_state_is_known(spark: SparkSession, tmp_path: Path, name: str) -> None:
    build, keeps_state = PLANS[name]
    rows = spark.readStream.schema("id long").json(f"file://{tmp_path}")
    assert plan.keeps_state(build(rows, spark.range(3))) is keeps_state
