"""The plugin form on real Kafka and MySQL: runs that end, fail, are overtaken, and begin again."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.plugin_arena import PluginArena
from twophase.testing.services import KafkaService, MySqlService

BATCH = 400


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> PluginArena:
    arena = PluginArena(kafka, mysql, tmp_path, records_per_batch=BATCH)
    arena.produce(2 * BATCH)
    return arena


def test_every_record_arrives_once_and_each_run_has_one_fence(arena: PluginArena) -> None:
    arena.finish()
    arena.verify()
    [job] = arena.jobs
    assert arena.history(job).generation == 1
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    assert arena.history(job).generation == 2
    assert arena.history(job).uncommitted() == []
