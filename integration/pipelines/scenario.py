"""Queries of the plugin form in a declarative pipeline, each a sink and the flow that writes to it,
run by `spark-pipelines` and killed with everything that it has started.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from harness.nemesis import DriverProcess, held_at
from integration.mysql.driver import connector_conf
from integration.pipelines import driver as program
from integration.plugin.scenario import TIMEOUT_S, PluginScenario
from twophase.spark.plan import shuffles

BATCH = 400
_UNDECIDED, _DECIDED = ("C05",), ("C11",)
POINTS = (*_UNDECIDED, *_DECIDED)
"""For `kill_each_flow`, which needs as many flows."""
_OF_THE_APPLICATION = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
"""Settings that no session may change, as a specification does."""


class PipelineRun(DriverProcess):
    """A process of `spark-pipelines`."""

    module = program.__name__


class PipelineScenario(PluginScenario):
    """Its queries, as flows of one pipeline."""

    def driver(self, arm: str = "", **settings: Any) -> DriverProcess:
        """Start a run of the pipeline.

        Args:
            arm: failpoints.
            settings: changes of the scenario's; also `arguments` of `spark-pipelines run`, and
                `conf`, Spark's settings in the specification.
        """
        arguments = settings.pop("arguments", [])
        conf = settings.pop("conf", {})
        given = self.settings | settings
        spec = self.specify(given, conf)
        words = ["--remote", given["master"], "run", "--spec", str(spec), *arguments]
        of_application = _OF_THE_APPLICATION | connector_conf()
        return PipelineRun({"arguments": words, "conf": of_application}, self.scratch, arm)

    def kill_each_flow(self) -> None:
        """A run dies while each flow is held at another point, and the next one has each record of
        two micro-batches of `BATCH` once.
        """
        self.produce(2 * BATCH)
        # A writer is held in checkpoint 0, a driver in checkpoint 1.
        arm = f"{held_at(_UNDECIDED)},{held_at(_DECIDED, 2)}"
        killed = self.driver(arm, master="local[4]").kill_when_at(POINTS, TIMEOUT_S)
        assert {*killed.points} == {*POINTS}
        self.no_row_is_duplicated()
        assert self.newest_decided() == [-1] * len(_UNDECIDED) + [1] * len(_DECIDED)
        self.finish()
        self.verify()

    def specify(self, settings: dict[str, Any], conf: dict[str, str]) -> Path:
        """Write the pipeline's specification, beside a copy of its definitions."""
        root = self.scratch / "pipeline"
        (root / "flows").mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name("definitions.py"), root / "flows" / "orders.py")
        settings_of_spark = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            shuffles.FULL_RETRY: "true",  # Spark's own from 4.2 on
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
            program.SETTINGS: json.dumps(settings).encode().hex(),
            **conf,
        }
        spec = {
            "name": "orders",
            "storage": self.storage.as_uri(),
            "configuration": settings_of_spark,
            "libraries": [{"glob": {"include": "flows/**"}}],
        }
        path = root / "spark-pipeline.yaml"
        path.write_text(yaml.safe_dump(spec))
        return path

    @property
    def storage(self) -> Path:
        """Where the pipeline keeps the folders of its queries."""
        return self.scratch / "storage"

    def folders(self, job: str) -> list[Path]:
        """Return Spark's folders of a query, one for each full refresh, in order."""
        of_flow = self.storage / "_checkpoints" / job / job
        return sorted(of_flow.iterdir(), key=lambda folder: int(folder.name))

    def folder(self, job: str) -> Path:
        """Return the newest of them."""
        return self.folders(job)[-1]
