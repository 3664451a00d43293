"""`import twophase` is cheap, and has every name that it promises; so is each sink's package."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import twophase

NAMES = [
    "AlreadyCommitted",
    "ArrowSink",
    "Attempt",
    "BadRecordError",
    "BatchSink",
    "BroadcastState",
    "CheckpointListener",
    "CheckpointedFunction",
    "CommitOutcome",
    "CommitRequest",
    "Committable",
    "Committed",
    "ConfigError",
    "CorruptRecordError",
    "DeclinedError",
    "Event",
    "InitializationContext",
    "Job",
    "ListState",
    "Lost",
    "NewerFormatError",
    "OffsetOutOfRangeError",
    "OperatorStateStore",
    "Options",
    "PartitionVanishedError",
    "PreflightError",
    "RangeChangedError",
    "Redistribution",
    "ReplayGuard",
    "RereadsRanges",
    "RetryLater",
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
    "StateSerializer",
    "StopJobError",
    "StreamWriter",
    "Subtask",
    "TopicRecreatedError",
    "TransactionId",
    "TwoPhaseError",
    "register",
    "register_serializer",
    "write_stream",
]
SINKS = {
    "twophase.sinks.delta": ["DeltaSink", "JvmLockedError"],
    "twophase.sinks.file": ["FileSink"],
    "twophase.sinks.hive": ["HiveSink"],
    "twophase.sinks.mysql": ["MySqlSink"],
}
CORE = (
    "twophase.ids",
    "twophase.errors",
    "twophase.config",
    "twophase.events",
    "twophase.protocol.sink",
    "twophase.state.records",
    "twophase.coordinator.coordinator",
)


def fresh(program: str) -> str:
    """The output of a program in an interpreter that has not imported twophase."""
    return subprocess.check_output(
        [sys.executable, "-c", f"import sys; {program}"], text=True
    ).strip()


def test_the_exported_names_are_exactly_these() -> None:
    assert twophase.__all__ == NAMES


@pytest.mark.parametrize("name", twophase.__all__)
def test_every_name_exists(name: str) -> None:
    assert getattr(twophase, name) is not None
    assert name in dir(twophase)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'twophase' has no attribute 'nothing'$"):
        _ = twophase.nothing


@pytest.mark.parametrize("package", SINKS)
def test_every_sink_package_exports_its_sink_and_its_errors(package: str) -> None:
    module = import_module(package)
    assert module.__all__ == SINKS[package]
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
    assert set(found.split()) == {"twophase.exports", *parents}


@pytest.mark.parametrize("module", ["twophase.workers", "twophase.sinks.mysql.xid"])
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
