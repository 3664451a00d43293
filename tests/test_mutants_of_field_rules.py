"""Rules that reports from the field asked for, each with the test that finds it missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import Driver
from harness.rule_mutants import Mutant
from harness.volumes import volume
from tests.coordinator import test_repeated_failures as failures
from tests.sinks.common import test_partition_time as partition_time
from tests.sinks.common import test_volumes as tables
from tests.sinks.mysql.client import test_refusals as refusals
from tests.state.files import test_folder_rights as rights
from twophase.coordinator.commit.failure_manager import FailureManager, InARow
from twophase.internals import volumes
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.preflight import check_owned
from twophase.sinks.mysql.client.refusals import explain, refused
from twophase.testing.memory import MemoryTarget

__all__ = ["volume"]

Test = Callable[[Any], object]


def with_driver(test: Callable[[Driver], object]) -> Test:
    return lambda folder: test(
        Driver(folder / "job", {"facts": MemoryTarget(), "lake": MemoryTarget()}).recover()
    )


MUTANTS = [
    Mutant(
        "what fails in the same way ends the job",
        FailureManager._judged,
        "if same < limit or not error.restartable:",
        "if True:",
        with_driver(failures.test_the_same_failure_so_many_times_in_a_row_ends_the_job),
        "assert None == ",
    ),
    Mutant(
        "only the same failure counts",
        InARow.count,
        "self._same + 1 if failed == self._failed else 1",
        "self._same + 1",
        with_driver(failures.test_failures_of_different_kinds_are_not_the_same),
        "is None",
    ),
    Mutant(
        "a failure without an answer is no other one",
        InARow.count,
        "if not failed[1]:",
        "if False:",
        with_driver(failures.test_failures_that_nobody_has_answered_never_end_it),
        "is None",
    ),
    Mutant(
        "a refusal ends a start",
        refused,
        "TargetUnreachableError if endpoint.opened else PreflightError",
        "TargetUnreachableError",
        lambda _: refusals.test_what_is_refused_ends_a_start_alone(1045),
        "isinstance",
    ),
    Mutant(
        "a refusal has its own remedy",
        explain,
        "if is_connection_lost(error):",
        "if True:",
        lambda _: refusals.test_only_a_server_that_has_not_answered_is_to_be_started(
            9999, opened=False
        ),
        "start the server",
    ),
    Mutant(
        "a time too far ahead does not move the watermark",
        PartitionTime.highest_us,
        "is_ahead = pc.greater(moments, self.limit_us())",
        "is_ahead = pc.greater(moments, 2**62)",
        lambda _: partition_time.test_a_time_too_far_ahead_does_not_count(partition_time.KINDS[0]),
        "assert",
    ),
]
OF_VOLUMES = [
    Mutant(
        "a volume is nobody else's",
        volumes.is_own_in_volume,
        "if path == folder or not is_volume(folder):",
        "if True:",
        lambda found: rights.test_a_folder_inside_a_volume_is_made_and_found_again(
            found, 0o777, "job"
        ),
        "is writable by everyone",
    ),
    Mutant(
        "so it is for tables",
        check_owned,
        " and not is_own_in_volume(way, folder)",
        "",
        lambda found: tables.test_a_table_inside_a_volume_is_written(found, "file", "lake", 0o777),
        "is writable by everyone",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_rule_that_is_missing_is_found(mutant: Mutant, tmp_path: Path) -> None:
    mutant.is_found(tmp_path)


@pytest.mark.parametrize("mutant", OF_VOLUMES, ids=str)
def test_a_rule_of_volumes_that_is_missing_is_found(mutant: Mutant, volume: Path) -> None:
    mutant.is_found(volume)
