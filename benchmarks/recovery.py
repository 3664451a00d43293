"""The time of a restart beyond Spark's own start: open sinks, then commit decided checkpoints
and sweep orphans.

Each run is a separate process, which recovers what the previous one has left behind, as after a
crash: 0, 1 or 8 checkpoints that are decided and not committed. The first run of each row only
leaves something behind. With `--against` the product in another folder, such as one made by
`git worktree add ../last v1.0.0`, takes turns with this one; it has to have the sinks
as `twophase.sinks`.

    python -m benchmarks recovery --runs 20 --against ../last
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.launch import new_mysql
from benchmarks.report import Result, table
from benchmarks.several_sinks import spark_settings
from harness.figures import percentile
from harness.hive_settings import hive_settings
from twophase.sinks.delta.sink import DeltaSink
from twophase.spark.startup.progress import show_progress
from twophase.testing.harness import fresh_name
from twophase.testing.services import MySqlService
from twophase.testing.services.delta import fetch_delta
from twophase.testing.services.spark_start import spark_environment

_ROOT = Path(__file__).parent.parent
_DRIVER = Path(__file__).with_name("recovery_driver.py")
_PASSWORD_VARIABLE = "BENCHMARK_MYSQL_PASSWORD"
_TIMEOUT_S = 600
_SINKS = {
    "mysql": ("mysql",),
    "file": ("file",),
    "hive": ("hive",),
    "delta": ("delta",),
    "all": ("mysql", "delta", "hive"),
}
_DECIDED = (0, 1, 8)
_GOALS_S = {0: ("p50", 0.3), 1: ("p95", 2.0)}


@dataclass(frozen=True)
class _Case:
    """One row of the table.

    Attributes:
        product: the folder whose product runs.
        sinks: their names, as `recovery_driver` knows them.
        decided: how many checkpoints wait for their commit.
        settings: the driver's settings.
        runs: the output of each run.
    """

    product: Path
    sinks: tuple[str, ...]
    decided: int
    settings: Mapping[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)

    def figures(self, name: str) -> list[float]:
        """Return one figure of every run that found the expected state."""
        return [run[name] for run in self.runs if run[name] is not None]


@click.command("recovery")
@click.option("--runs", default=10, show_default=True, help="Recoveries for each row of the table.")
@click.option(
    "--sinks",
    default=",".join(_SINKS),
    show_default=True,
    help="Which rows: sinks, or all of them in one job.",
)
@click.option(
    "--decided",
    default=",".join(map(str, _DECIDED)),
    show_default=True,
    help="Decided checkpoints that wait.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, path_type=Path),
    help="A folder with another commit of twophase.",
)
@click.option(
    "--as-a-user", is_flag=True, help="Without the class archive that tests start Spark with."
)
def command(runs: int, sinks: str, decided: str, against: Path | None, as_a_user: bool) -> None:
    """Recovery beyond Spark's own start, p50 and p95, by sink and by what waits for its commit."""
    products = [_ROOT] if against is None else [_ROOT, against.resolve()]
    environment = {} if as_a_user else spark_environment()
    rows = [(name, int(number)) for name in sinks.split(",") for number in decided.split(",")]
    with new_mysql() as mysql, tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        cases = [
            _prepare(mysql, Path(folder, f"{name}-{number}-{place}"), product, name, number)
            for name, number in rows
            for place, product in enumerate(products)
        ]
        with show_progress("Recovering") as progress:
            for turn in range(runs + 1):
                progress.update(f"round {turn} of {runs}")
                for case in cases:
                    found = _run(case, {**environment, _PASSWORD_VARIABLE: mysql.password})
                    if turn:
                        case.runs.append(found)
    _show(cases, runs)


def _prepare(mysql: MySqlService, folder: Path, product: Path, name: str, decided: int) -> _Case:
    (folder / "warehouse").mkdir(parents=True)
    sinks = _SINKS[name]
    spark: dict[str, str] = {}
    if "hive" in sinks:
        spark |= spark_settings(folder) if "delta" in sinks else hive_settings(folder)
        # On disk, not in memory: the next process has to find the table.
        spark |= hive_settings(folder, str(folder / "metastore"))
    elif "delta" in sinks:
        spark |= {**DeltaSink.spark_conf(), **fetch_delta()}
    settings = {"folder": str(folder), "sinks": sinks, "decided": decided, "spark": spark}
    if "mysql" in sinks:
        settings["mysql"] = _database(mysql)
    return _Case(product, sinks, decided, settings)


def _database(mysql: MySqlService) -> dict[str, str]:
    """A table without a key: with one, checkpoints that wait for their commit could wait for
    each other's locks.
    """
    database = fresh_name("bench")
    mysql.create_database(database)
    with mysql.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (timestamp DATETIME(6), value BIGINT) ENGINE=InnoDB")
    url = f"mysql://{mysql.user}@{mysql.host}:{mysql.port}/{database}"
    return {"url": url, "table": "orders", "password_env": _PASSWORD_VARIABLE}


def _run(case: _Case, environment: Mapping[str, str]) -> dict[str, Any]:
    own = {
        "PYTHONPATH": str(case.product),
        "PYTHONWARNINGS": "ignore",
        "PYSPARK_PYTHON": sys.executable,
    }
    if case.decided:  # the driver's commits are held behind its decisions
        own["TWOPHASE_FAILPOINTS"] = f"C11=delay:{_TIMEOUT_S * 1000}"
    process = subprocess.Popen(
        [sys.executable, str(_DRIVER), json.dumps(case.settings)],
        env={**os.environ, **own, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    output, errors = process.communicate(timeout=_TIMEOUT_S)
    _wait_until_ended(process.pid)
    if process.returncode:
        raise RuntimeError(
            f"{case.sinks} with {case.decided} decided ended with {process.returncode}:\n"
            f"{errors[-4000:]}"
        )
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _wait_until_ended(group: int) -> None:
    """Wait for the JVM, which outlives its driver for a moment and locks the embedded metastore."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise TimeoutError(f"processes of {group} are there after {_TIMEOUT_S} s")


def _show(cases: Sequence[_Case], runs: int) -> None:
    shown = table(
        f"A restart beyond Spark's own start, {runs} runs each, seconds",
        "sinks",
        "product",
        "decided",
        "open p50",
        "recovery p50",
        "p95",
        "fastest",
        "replay p50",
        "CPU p50",
    )
    for case in cases:
        if wrong := [run["recommitted"] for run in case.runs if run["recommitted"] != case.decided]:
            raise RuntimeError(
                f"{case.sinks}: {wrong} checkpoints were committed, not {case.decided}"
            )
        whole = case.figures("recovered_s")
        shown.add_row(
            " + ".join(case.sinks),
            case.product.name,
            str(case.decided),
            _median(case, "opened_s"),
            *(
                f"{figure:.2f}"
                for figure in (statistics.median(whole), percentile(whole, 0.95), min(whole))
            ),
            *(_median(case, name) for name in ("replayed_s", "cpu_s")),
        )
    goals = [
        _goal(case)
        for case in cases
        if len(case.sinks) > 1 and case.product == _ROOT and case.decided in _GOALS_S
    ]
    Result("recovery", [shown], said=goals).show()


def _median(case: _Case, name: str) -> str:
    found = case.figures(name)
    return f"{statistics.median(found):.2f}" if found else "-"


def _goal(case: _Case) -> str:
    name, goal_s = _GOALS_S[case.decided]
    whole = case.figures("recovered_s")
    reached_s = statistics.median(whole) if name == "p50" else percentile(whole, 0.95)
    kept = "kept" if reached_s <= goal_s else "missed"
    return (
        f"{len(case.sinks)} sinks, {case.decided} decided: {name} [bold]{reached_s:.2f} s[/bold]; "
        f"the goal of {goal_s} s is {kept}."
    )
