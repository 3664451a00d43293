"""Flows of a declarative pipeline into Paimon tables, as `integration/pipelines` has the other
sinks.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from integration.paimon.scenario import PaimonTarget
from integration.pipelines.scenario import BATCH, POINTS, PipelineScenario
from twophase.testing.services import KafkaService


@pytest.mark.part("paimon")
@pytest.mark.proof
def test_every_flow_is_killed_at_another_point_and_has_every_record_once(
    kafka: KafkaService, tmp_path: Path
) -> None:
    def made(_: str, folder: Path) -> PaimonTarget:
        return PaimonTarget(folder)

    with closing(PipelineScenario(kafka, made, tmp_path, len(POINTS), BATCH)) as scenario:
        scenario.kill_each_flow()
