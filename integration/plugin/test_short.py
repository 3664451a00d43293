"""One round of the plugin form with SIGKILL: queries that die at different points go on, and have
every record once.

Stands in `make test` for `test_kills.py`, which takes every point, for MySQL and for files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.nemesis import held_at
from integration.plugin.scenario import TIMEOUT_S, PluginScenario, in_mysql
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("plugin")

BATCH = 400
UNDECIDED = ("C05",)
DECIDED = ("C11",)


def test_every_query_is_killed_at_another_point_and_has_every_record_once(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    scenario = PluginScenario(kafka, in_mysql(mysql), tmp_path, len(UNDECIDED + DECIDED), BATCH)
    scenario.produce(2 * BATCH)
    points = (*UNDECIDED, *DECIDED)
    # A writer is held in checkpoint 0, a driver in checkpoint 1.
    driver = scenario.driver(f"{held_at(points[:1])},{held_at(points[1:], 2)}", master="local[4]")
    assert {*driver.kill_when_at(points, TIMEOUT_S).points} == {*points}
    scenario.no_row_is_duplicated()
    assert scenario.newest_decided() == [-1] * len(UNDECIDED) + [1] * len(DECIDED)
    scenario.finish()
    scenario.verify()
