"""Driver-side functions with state: a checkpoint has it as of its cut, whatever the driver dies of,
and a restart begins with exactly that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, completed_of, offsets, visible
from tests.coordinator.test_crash_points import AFTER, BEFORE, CrashPoints, runs_until_it_dies
from twophase.contract.listener import CheckpointedFunction, InitializationContext, SnapshotContext
from twophase.contract.source import SourceLeg
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    CorruptRecordError,
    DeclinedError,
)
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.failpoints import VARIABLE
from twophase.operations.savepoint.restore import load_restore
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget

Targets = dict[str, MemoryTarget]
Patch = pytest.MonkeyPatch
PADDING = "x" * 30_000
STATE_FILES = ["O01", "O02", "O03", "O04", "O05"]


class Seen:
    """Remembers which checkpoints it was part of, in every form of state; one is large."""

    def __init__(self) -> None:
        self.restored: list[bool] = []

    def initialize_state(self, context: InitializationContext) -> None:
        store = context.operator_state_store
        self.small = store.get_list_state("small")
        self.large = store.get_union_list_state("large")
        self.by_number = store.get_broadcast_state("by-number", "json", "bytes")
        self.raw = list(context.raw_operator_state_inputs)
        self.returned = context.state.get("returned", [])
        self.restored.append(context.is_restored)

    def snapshot_state(self, context: SnapshotContext) -> dict[str, Any]:
        number = context.checkpoint
        self.small.add(number)
        self.large.add([number, PADDING])
        self.by_number.put(number, b"%d" % number)
        self.raw = [*self.raw, b"%d" % number]
        for partition in self.raw:
            context.raw_operator_state_output.start_new_partition()
            context.raw_operator_state_output.write(partition)
        self.returned = [*self.returned, number]
        return {"returned": self.returned}

    def numbers(self) -> list[list[int]]:
        """What each form of state remembers."""
        assert all(text == PADDING for _, text in self.large.get())
        return [
            self.small.get(),
            [number for number, _ in self.large.get()],
            [int(value) for _, value in self.by_number.items()],
            [int(value) for value in self.raw],
            self.returned,
        ]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: Patch) -> None:
    """A process that dies in these tests leaves the kernel and its files alone."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def targets() -> Targets:
    return {"facts": MemoryTarget(), "lake": MemoryTarget()}


@pytest.fixture
def start(tmp_path: Path, targets: Targets) -> Callable[..., Driver]:
    """Start a driver of the job with these functions."""

    def start(functions: dict[str, CheckpointedFunction], **options: Any) -> Driver:
        return Driver(tmp_path / "job", targets, options, functions=functions).recover()

    return start


Start = Callable[..., Driver]


def state_folders(folder: Path) -> int:
    return len(list((folder / "job" / "state").iterdir()))


def newest(folder: Path) -> int:
    return max(one.checkpoint for one in JobLog(LocalStorage(folder / "job"), JOB).read().decisions)


def test_a_restart_begins_with_the_state_of_the_newest_checkpoint(start: Start) -> None:
    first, second = Seen(), Seen()
    driver = start({"seen": first})
    for number in range(3):
        driver.run(number)
    start({"seen": second})
    assert (first.restored, second.restored) == ([False], [True])
    assert first.numbers() == second.numbers() == [[0, 1, 2]] * 5


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", [*STATE_FILES, "O06", *BEFORE, *AFTER])
def test_a_kill_loses_and_repeats_nothing_of_the_state(
    start: Start, targets: Targets, tmp_path: Path, monkeypatch: Patch, point: str, hit: int
) -> None:
    points = CrashPoints(monkeypatch)
    driver = start({"seen": Seen()}, **{"checkpoint.memory_threshold": "1 kb"})
    for number in (0, 1):
        driver.run(number)
    points.arm(point, hit)
    runs_until_it_dies(driver)
    points.die_at = None
    last = newest(tmp_path)
    seen = Seen()
    again = start({"seen": seen})
    assert seen.numbers() == [list(range(last + 1))] * 5
    again.run(last + 1)
    assert start({"seen": seen}).coordinator.newest() is not None
    assert seen.numbers() == [list(range(last + 2))] * 5
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(last * 10 + 20))
    assert state_folders(tmp_path) == 1


def test_a_declined_attempt_leaves_no_state(start: Start, tmp_path: Path) -> None:
    seen = Seen()
    driver = start({"seen": seen}, **{"checkpoint.tolerable_failures": 1})
    tries: list[int] = []

    def fails_once(pending: Any) -> None:
        tries.append(pending.attempt.counter)
        if len(tries) == 1:
            raise DeclinedError("not now")
        driver.write(pending)

    driver.run(0, fails_once)
    assert len(tries) == 2
    assert state_folders(tmp_path) == 1


def test_an_error_of_a_serializer_declines_and_names_the_state(start: Start) -> None:
    class Wrong(Seen):
        def snapshot_state(self, context: SnapshotContext) -> dict[str, Any]:
            self.small.add((1, 2))
            return {}

    with pytest.raises(DeclinedError, match="State 'small' of function 'seen'"):
        start({"seen": Wrong()}).run(0)


class Returns:
    """A function of the first form: JSON values, or nothing at all."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.context: InitializationContext | None = None

    def snapshot_state(self, context: SnapshotContext) -> Any:
        return self.value

    def initialize_state(self, context: InitializationContext) -> None:
        self.context = context


def test_a_function_that_returns_its_state_has_it_as_before(start: Start, tmp_path: Path) -> None:
    start({"counter": Returns({"count": 7})}).run(0)
    assert completed_of(tmp_path / "job", 0).function_states == {}
    again = Returns({})
    start({"counter": again})
    assert again.context is not None
    assert (again.context.state, again.context.is_restored) == ({"count": 7}, True)


@pytest.mark.parametrize(
    "value",
    [
        {"pair": (1, 2)},
        {"by partition": {0: 7}},
        {"rate": float("nan")},
        {"id": b"1"},
        {"seen": Counter("aab")},
        Counter("aab"),
        [("pair", 2)],
        [],
        False,
        "",
    ],
    ids=str,
)
def test_what_json_would_give_back_as_another_value_declines_the_attempt(
    start: Start, value: Any
) -> None:
    """The function would find another state after its next start, and count from the beginning."""
    with pytest.raises(DeclinedError, match="what function 'counter' has returned") as caught:
        start({"counter": Returns(value)}).run(0)
    assert caught.value.reason is CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION


def test_a_checkpoint_has_what_was_returned_as_it_was_then(start: Start, tmp_path: Path) -> None:
    """A function changes the value that it has returned while the sinks are writing."""
    done = {"done": [0]}
    driver = start({"counter": Returns(done)})

    def write(pending: PendingCheckpoint) -> None:
        done["done"].append(1)
        driver.write(pending)

    driver.run(0, write)
    assert completed_of(tmp_path / "job", 0).functions == {"counter": {"done": [0]}}


def test_a_function_that_returns_nothing_is_restored_all_the_same(start: Start) -> None:
    start({"counter": Returns(None)}).run(0)
    again = Returns(None)
    start({"counter": again})
    assert again.context is not None
    assert (again.context.state, again.context.is_restored) == ({}, True)


# -- uids ------------------------------------------------------------------------------------------


def test_a_function_that_the_job_no_longer_has_is_refused_by_its_uid(
    start: Start, tmp_path: Path
) -> None:
    start({"seen": Seen(), "other": Seen()}).run(0)
    with pytest.raises(ConfigError, match="has no place for: function 'other'") as caught:
        start({"seen": Seen()})
    assert "restore.allow_non_restored_state" in caught.value.remedy
    seen = Seen()
    start({"seen": seen, "other": Seen()})
    assert seen.numbers() == [[0]] * 5, "nothing was lost by the refusal"


def test_its_state_is_dropped_where_it_may_be_and_that_is_said(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start({"seen": Seen(), "other": Seen()}).run(0)
    with pytest.raises(ConfigError):
        start({"seen": Seen()})
    seen = Seen()
    start({"seen": seen}, **{"restore.allow_non_restored_state": True}).run(1)
    assert seen.numbers() == [[0, 1]] * 5
    assert "function 'other'" in caplog.text
    assert [*completed_of(tmp_path / "job", 1).function_states] == ["seen"]


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_job_whose_state_is_gone_begins_without_it_where_it_may(
    start: Start,
    targets: Targets,
    tmp_path: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start({"seen": Seen()}).run(0)
    [file] = (tmp_path / "job" / "state").rglob("0")
    whole = file.read_bytes()
    file.unlink()
    if damage == "damaged":
        file.write_bytes(whole[:-1])
    error = CheckpointMissingError if damage == "gone" else CorruptRecordError
    with pytest.raises(error, match="state 'large' of function 'seen'") as caught:
        start({"seen": Seen()})
    assert "restore.allow_non_restored_state" in caught.value.remedy
    seen = Seen()
    start({"seen": seen}, **{"restore.allow_non_restored_state": True}).run(1)
    assert seen.numbers() == [[0, 1], [1], [0, 1], [0, 1], [0, 1]], "all but that state"
    assert "state 'large' of function 'seen'" in caplog.text
    assert visible(targets["facts"]) == list(range(20))


def test_a_function_that_is_new_begins_empty(start: Start) -> None:
    start({"seen": Seen()}).run(0)
    new = Seen()
    start({"seen": Seen(), "new": new})
    assert (new.restored, new.numbers()) == ([False], [[]] * 5)


def test_functions_in_another_order_keep_their_state(start: Start) -> None:
    first = start({"a": Seen(), "b": Seen()})
    first.run(0)
    b, a = Seen(), Seen()
    start({"b": b, "a": a})
    assert a.numbers() == b.numbers() == [[0]] * 5


# -- another folder --------------------------------------------------------------------------------


@pytest.mark.parametrize("functions", [["seen"], []], ids=["the same", "none"])
def test_a_restore_into_another_folder_has_the_states_or_is_refused(
    start: Start, tmp_path: Path, functions: list[str]
) -> None:
    start({"seen": Seen()}).run(0)
    [path] = (tmp_path / "job" / "chk").iterdir()
    found: dict[str, CheckpointedFunction] = {uid: Seen() for uid in functions}
    states = OperatorStates([SourceLeg("memory", {})], found)
    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "new")}, "job")

    def restore() -> Any:
        return load_restore(JOB, str(path), LocalStorage(tmp_path / "new"), states, options)

    if not functions:
        with pytest.raises(ConfigError, match="has no place for: function 'seen'"):
            restore()
        return
    states.initialize(restore().checkpoint, options)
    [seen] = found.values()
    assert isinstance(seen, Seen)
    assert seen.numbers() == [[0]] * 5


# -- a process that is killed ----------------------------------------------------------------------


def run_until_killed(folder: Path) -> None:
    """The program of the process below: without a sink's pieces, for ever."""
    seen = Seen()
    options = {"checkpoint.memory_threshold": "1 kb"}
    driver = Driver(folder, {"facts": MemoryTarget()}, options, functions={"seen": seen}).recover()
    found = driver.coordinator.newest()
    number = found.checkpoint + 1 if found else 0
    assert seen.numbers() == [list(range(number))] * 5
    for following in range(number, number + 4):
        driver.coordinator.classify(following, offsets(following))
        driver.coordinator.checkpoint(following, offsets(following), without_rows)


def without_rows(pending: PendingCheckpoint) -> None:
    pending.acknowledge("facts", [])


def test_processes_that_are_killed_at_the_files_keep_the_state(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    program = (
        "from pathlib import Path; "
        "from tests.spark.plan.test_function_states import run_until_killed;"
        f"run_until_killed(Path({str(tmp_path / 'job')!r}))"
    )
    for point in [*STATE_FILES, "O06", "O01", ""]:
        environment = {**os.environ, VARIABLE: f"{point}=kill@3" if point else ""}
        found = subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert found.returncode == (-signal.SIGKILL if point else 0), found.stderr
    assert state_folders(tmp_path) == 1
    assert newest(tmp_path) >= 4
