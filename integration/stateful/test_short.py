"""A query that keeps state, killed once between the decision and Spark's commit log: it ends as
plain Python says.

Stands in `make test` for `test_kills.py`, which kills four queries before and after the decision
and compares with an undisturbed run. Of Spark's other state store
`integration/getting_started/test_even_odd_sum.py` stands for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.stateful.scenario import TIMEOUT_S, StatefulScenario, produce
from integration.stateful.workload import expected
from twophase.testing.services import KafkaService, MySqlService

QUERY = "windowed"
PARTITIONS = 2

pytestmark = [pytest.mark.part("stateful"), pytest.mark.timeout(TIMEOUT_S + 120)]


def test_a_decided_micro_batch_is_replayed_for_its_state_and_not_written_again(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    scenario = StatefulScenario(kafka, mysql, produce(kafka), tmp_path, [QUERY])
    kill(scenario)
    scenario.finish()
    assert scenario.replays(QUERY)[1], "the plan of checkpoint 1 was not executed"
    outcome = scenario.outcome(QUERY)
    assert outcome.rows == expected()[QUERY]
    assert all(outcome.state)
    assert scenario.prepared() == []


def kill(scenario: StatefulScenario) -> None:
    """SIGKILL when checkpoint 1, with state from 0, is committed and Spark has not noted it."""
    assert scenario.kill_at("C16", 2) == ["C16"]
    assert scenario.unfinished(QUERY) == {1}
    assert scenario.digests(QUERY, 1) == PARTITIONS
