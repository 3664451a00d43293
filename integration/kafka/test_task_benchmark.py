"""The benchmark of one task names functions of the source: they are still there."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.kafka_task import main

pytestmark = pytest.mark.part("kafka")


def test_the_cost_of_a_task_is_printed_for_raw_and_json_records() -> None:
    done = CliRunner().invoke(main, ["--records", "1000", "--rounds", "1"], catch_exceptions=False)
    raw, json = sorted(done.output.splitlines(), reverse=True)
    for line, values in ((raw, "raw"), (json, "json")):
        assert line.startswith(f"librdkafka {values}: ")
        assert "more than without a digest" in line
