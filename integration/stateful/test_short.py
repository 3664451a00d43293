"""A query that keeps state, killed once between the decision and Spark's commit log: it ends as plain Python says.

Stands in `make test` for `test_kills.py`, which kills four queries before and after the decision and compares with an
undisturbed run. Of Spark's other state store `integration/start/test_even_odd_sum.py` stands for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.stateful.scenario import TIMEOUT_S, StatefulArena, produce
from integration.stateful.workload import expected
from twophase.testing.services import KafkaService, MySqlService

QUERY = "windowed"
PARTITIONS = 2

pytestmark = [pytest.mark.part("stateful"), pytest.mark.timeout(TIMEOUT_S + 120)]


def test_a_decided_micro_batch_is_replayed_for_its_state_and_not_written_again(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    arena = StatefulArena(kafka, mysql, produce(kafka), tmp_path, [QUERY])
    kill(arena)
    arena.finish()
    assert arena.replays(QUERY)[1], "the plan of checkpoint 1 was not executed"
    outcome = arena.outcome(QUERY)
    assert outcome.rows == expected()[QUERY]
    assert all(outcome.state)
    assert arena.prepared() == []


def kill(arena: StatefulArena) -> None:
    """SIGKILL when checkpoint 1, with state from 0, is committed and Spark has not noted it."""
    assert arena.kill_at("C16", 2) == ["C16"]
    assert arena.unfinished(QUERY) == {1}
    assert arena.digests(QUERY, 1) == PARTITIONS
