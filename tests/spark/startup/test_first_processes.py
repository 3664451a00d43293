"""What a start begins before it is needed, and what it leaves out, seen in a Spark of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

from tests.spark.startup import first_processes_driver
from twophase.cli import gateway
from twophase.spark.startup.java import SHORT_LIVED

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As the driver prints it."""
    folder = tmp_path_factory.mktemp("packages")
    options = [
        option
        for option in shlex.split(os.environ["SPARK_SUBMIT_OPTS"])
        if option not in SHORT_LIVED
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{folder}",
        "SPARK_SUBMIT_OPTS": shlex.join(options),
    }
    command = [sys.executable, first_processes_driver.__file__, str(folder)]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_optimising_compiler_gives_way_to_the_job_and_nothing_else_does(seen: Any) -> None:
    before, after = seen["before"], seen["after"]
    still = [thread for thread in before if thread in after]  # idle ones end
    assert {thread.split()[0] for thread in still} == {"C1", "C2"}
    for thread in still:
        assert after[thread] == (
            min(before[thread] + 10, 19) if thread.startswith("C2") else before[thread]
        )


def test_with_many_processors_it_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    monkeypatch.setattr(gateway, "Path", None)
    gateway.slow_down_optimiser(os.getpid())


def test_no_process_looks_for_data_sources_where_no_package_has_any(seen: Any) -> None:
    """The driver waits until both processes of a read have started, so these are there by then."""
    assert seen["looked"] is False


def test_spark_looks_where_a_package_may_have_some(seen: Any) -> None:
    assert seen["looked where a package may have some"] is True
