"""A query that keeps state, killed once between the decision and Spark's commit log: it ends as plain Python says.

Stands in `make test` for `test_stateful.py`, which kills four queries before and after the decision and compares with an
undisturbed run. Of Spark's other state store `test_even_odd_sum.py` stands for it.
"""

from __future__ import annotations

import pytest

from integration.stateful_arena import TIMEOUT_S, StatefulArena, produce
from integration.stateful_workload import expected
from twophase.testing.services import KafkaService, MySqlService

QUERIES = ("windowed",)

pytestmark = [pytest.mark.part("stateful"), pytest.mark.timeout(TIMEOUT_S + 120)]


def test_a_decided_micro_batch_is_replayed_for_its_state_and_not_written_again(
    kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> None:
    arena = StatefulArena(kafka, mysql, produce(kafka), tmp_path_factory.mktemp("stateful"), QUERIES)
    assert arena.kill_at("C16") == ["C16"] * len(QUERIES)
    caught = {name: arena.unfinished(name) for name in QUERIES}
    arena.finish()
    for name in QUERIES:
        [checkpoint] = caught[name]
        assert arena.replays(name)[checkpoint], f"{name}: the plan of checkpoint {checkpoint} was not executed"
        outcome = arena.outcome(name)
        assert outcome.rows == expected()[name]
        assert all(outcome.state)
    assert arena.prepared() == []
