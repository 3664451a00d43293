"""`import twophase` is cheap, and has every name that it promises; so is each sink's package."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import twophase
from harness.own_sinks import own_sinks
from harness.paimon_environment import needs_paimon
from twophase import errors

NAMES = [
    "AlreadyCommitted",
    "ArrowSink",
    "Attempt",
    "BadRecordError",
    "BatchSink",
    "BroadcastState",
    "CanRewind",
    "CheckpointExpiredError",
    "CheckpointFailureReason",
    "CheckpointListener",
    "CheckpointMissingError",
    "CheckpointedFunction",
    "CommitOutcome",
    "CommitRequest",
    "Committable",
    "Committed",
    "CompletesPartitions",
    "ConfigError",
    "CorruptRecordError",
    "DeclinedError",
    "Duration",
    "Event",
    "FenceLostError",
    "FencedError",
    "InDoubtError",
    "InitializationContext",
    "Job",
    "KnowsOtherNames",
    "ListState",
    "Lost",
    "LostCommittableError",
    "Names",
    "NamesPieces",
    "NewerFormatError",
    "OffsetMismatchError",
    "OffsetOutOfRangeError",
    "OpenArrowSink",
    "OpenBatchSink",
    "OpenSink",
    "OperatorStateStore",
    "Options",
    "PartitionVanishedError",
    "Predecessor",
    "PreflightError",
    "RangeChangedError",
    "RangeReader",
    "ReadsInTasks",
    "Redistribution",
    "RejectedRowsError",
    "ReleasesTopics",
    "RepeatedFailureError",
    "ReplayGuard",
    "ReplayLostError",
    "RereadsRanges",
    "RestoreRefusedError",
    "RetryLater",
    "RewindsInSteps",
    "SavepointError",
    "SavepointUnfinishedError",
    "ServiceError",
    "Sink",
    "SinkContext",
    "SinkHistory",
    "SinkWriter",
    "SnapshotContext",
    "Source",
    "SourceLeg",
    "SourceLossError",
    "SourceRange",
    "SourceUnavailableError",
    "SparkLostError",
    "StateSerializer",
    "StopJobError",
    "StreamWriter",
    "Subtask",
    "TargetChangedError",
    "TargetUnreachableError",
    "TellsUnfinished",
    "TopicRecreatedError",
    "TransactionId",
    "TwoPhaseError",
    "Waits",
    "WriterFactory",
    "another_target",
    "attempt_is_closed",
    "commit_each",
    "driver_is_fenced",
    "failpoint",
    "fingerprint_of",
    "option",
    "predecessor_missing",
    "register",
    "register_serializer",
    "shown",
    "write_stream",
]
ERRORS = {"twophase.sinks.delta": ["JvmLockedError"]}
SINKS = {
    module: [name, *ERRORS.get(module, [])]
    for module, name in (place.split(":") for place in own_sinks().values())
}
CORE = (
    "twophase.ids",
    "twophase.errors",
    "twophase.options.job_options",
    "twophase.events",
    "twophase.contract.sink",
    "twophase.state.journal.history",
    "twophase.coordinator.coordinator",
)


def fresh(program: str) -> str:
    """The output of a program in an interpreter that has not imported twophase."""
    return subprocess.check_output(
        [sys.executable, "-c", f"import sys; {program}"], text=True
    ).strip()


def test_the_exported_names_are_exactly_these() -> None:
    assert vars(twophase)["__all__"] == NAMES


def test_every_error_is_exported() -> None:
    found = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert {name for name in found if name.endswith("Error")} <= {*NAMES}


@pytest.mark.parametrize("package", ["twophase", *SINKS])
def test_a_type_checker_sees_the_same_names_in_the_same_modules(package: str) -> None:
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    seen: dict[str, set[str]] = {}
    for node in checked.body:
        assert isinstance(node, ast.ImportFrom)
        [name] = node.names
        assert name.name == name.asname, "as itself: exported, also for mypy --strict"
        seen.setdefault(str(node.module), set()).add(name.name)
    [call] = [node.value for node in tree.body if isinstance(node, ast.Expr)][1:]
    assert isinstance(call, ast.Call)
    table = ast.literal_eval(call.args[1])
    assert {home: set(names) for home, names in table.items()} == seen


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name: str) -> None:
    assert getattr(twophase, name) is not None
    assert name in dir(twophase)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'twophase' has no attribute 'nothing'$"):
        getattr(twophase, "nothing")  # noqa: B009 mypy knows that it is not there


@pytest.mark.parametrize(
    "package",
    [
        pytest.param(package, marks=[needs_paimon()] if package.endswith(".paimon") else [])
        for package in SINKS
    ],
)
def test_every_sink_package_exports_its_sink_and_its_errors(package: str) -> None:
    module = import_module(package)
    assert vars(module)["__all__"] == SINKS[package]
    for name in SINKS[package]:
        assert getattr(module, name).__name__ == name
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'nothing'$"):
        _ = module.nothing


@pytest.mark.parametrize("package", ["twophase", *SINKS])
def test_a_package_imports_nothing_of_what_it_exports(package: str) -> None:
    found = fresh(
        f"import {package}; print(*sorted(name for name in sys.modules if "
        "name.startswith('twophase')))"
    )
    parents = {"twophase"} if package == "twophase" else {"twophase", "twophase.sinks", package}
    assert set(found.split()) == {"twophase.internals", "twophase.internals.exports", *parents}


@pytest.mark.parametrize("module", ["twophase.internals.workers", "twophase.sinks.mysql.xid"])
def test_sparks_python_processes_do_not_import_the_drivers_half(module: str) -> None:
    names = ("pyspark", "pyarrow", "pymysql")
    assert (
        fresh(f"import {module}; print([name for name in {names} if name in sys.modules])") == "[]"
    )


def test_the_core_imports_without_spark() -> None:
    assert (
        fresh(f"sys.modules['pyspark'] = None; import {', '.join(CORE)}; print('imported')")
        == "imported"
    )
