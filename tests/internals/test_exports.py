"""A name of a package whose module needs what is not installed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from twophase.errors import ConfigError, PreflightError
from twophase.internals.exports import export
from twophase.internals.sink_entry_points import load_sink

NEEDED = {
    "mysql": ("MySqlSink", "pymysql"),
    "iceberg": ("IcebergSink", "pyiceberg"),
    "kafka": ("KafkaSink", "confluent_kafka"),
}
"""The sinks of which a test run has what they need: their class, and a package of their extra."""


@pytest.fixture(params=NEEDED)
def sink(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A sink in a process that lacks its extra."""
    name = str(request.param)
    package, (class_name, needed) = f"twophase.sinks.{name}", NEEDED[name]
    begins = f"{package}.", f"{needed}."
    hidden = {name: module for name, module in sys.modules.items() if name.startswith(begins)}
    for path, module in hidden.items():
        parent, _, child = path.rpartition(".")
        if child in vars(sys.modules[parent]):  # or it would name what is imported instead
            monkeypatch.setattr(sys.modules[parent], child, module)
    for path in hidden:
        monkeypatch.delitem(sys.modules, path)
    monkeypatch.delitem(vars(import_module(package)), class_name, raising=False)
    monkeypatch.setitem(sys.modules, needed, None)
    return name


def test_an_import_says_what_to_install(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, needed = NEEDED[sink]
    with pytest.raises(PreflightError) as refused:
        getattr(import_module(f"twophase.sinks.{sink}"), name)
    package = f"twophase.sinks.{sink}"
    assert refused.value.what == f"{package} needs {needed}, which {sys.executable} does not have."
    assert refused.value.remedy == f"run: {sys.executable} -m pip install 'twophase[{sink}]'"
    monkeypatch.undo()
    assert brings(refused.value.remedy, needed), "the command installs it"
    assert getattr(import_module(package), name)


def brings(remedy: str, needed: str) -> bool:
    """Whether a command installs a package, as pip itself says; in this environment it is there."""
    command = [*shlex.split(remedy.removeprefix("run: ")), "--dry-run", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "does not provide the extra" not in done.stderr
    named = rf"^Requirement already satisfied: {needed.replace('_', '[-_]')}\b"
    return bool(re.search(named, done.stdout, re.MULTILINE | re.IGNORECASE))


def test_a_job_file_says_so_too(sink: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_sink("job.yaml: sinks.facts", sink)
    assert refused.value.what.startswith(
        f"job.yaml: sinks.facts: the sink type {sink!r} cannot be loaded: twophase.sinks.{sink} "
        f"needs {NEEDED[sink][1]}"
    )
    assert refused.value.remedy == f"run: {sys.executable} -m pip install 'twophase[{sink}]'"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(tmp_path)
    made = ModuleType("package_of_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


@pytest.mark.parametrize(
    "text", ["import twophase.no_such_module", "from twophase import no_such_name"]
)
def test_a_mistake_of_our_own_stays_what_it_is(
    package: ModuleType, tmp_path: Path, text: str
) -> None:
    (tmp_path / "broken_module_of_a_test.py").write_text(text)
    export(package.__name__, {"broken_module_of_a_test": ["Sink"]}, extra="mysql")
    with pytest.raises(ImportError, match="twophase"):
        package.Sink  # noqa: B018
