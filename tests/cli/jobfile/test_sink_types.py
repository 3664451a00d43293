"""Sinks are found by entry point, or as module:Class beside the job file."""

from __future__ import annotations

import os
import sys
from importlib import invalidate_caches
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.folder_sink import FolderSink
from twophase.cli.jobfile import sink_types
from twophase.cli.jobfile.checked_job import load_job
from twophase.contract.sink import Sink
from twophase.errors import ConfigError
from twophase.internals import sink_entry_points

FOLDER = "harness.folder_sink:FolderSink"
ENTRIES = [
    EntryPoint("folder", FOLDER, sink_entry_points.GROUP),
    EntryPoint("absent", "module_of_an_extra:Sink", sink_entry_points.GROUP),
]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sink_entry_points,
        "offered",
        lambda group: {entry.name: entry for entry in ENTRIES if entry.group == group},
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def make(folder: Path, kind: str, **options: Any) -> Sink:
    path = folder / "job.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "orders",
                "source": {"format": "rate"},
                "sinks": {"facts": {"type": kind, "options": options}},
                "options": {"checkpointLocation": "/chk"},
            }
        )
    )
    return load_job(path, {})[1]["facts"]


def test_a_type_is_the_name_of_an_entry_point(tmp_path: Path) -> None:
    assert isinstance(make(tmp_path, "folder", path=str(tmp_path / "t")), FolderSink)


def test_a_class_of_an_installed_module_serves(tmp_path: Path) -> None:
    assert isinstance(make(tmp_path, FOLDER, path=str(tmp_path / "t")), FolderSink)


def test_a_module_beside_the_job_file_serves_driver_and_workers(tmp_path: Path) -> None:
    (tmp_path / "sinks_of_mine.py").write_text(
        "from harness.folder_sink import FolderSink\n\nclass MySink(FolderSink):\n    pass\n"
    )
    assert (
        type(make(tmp_path, "sinks_of_mine:MySink", path=str(tmp_path / "t"))).__name__ == "MySink"
    )
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


BAD = [
    (
        "folde",
        {},
        "unknown sink type 'folde'; did you mean 'folder'? Known types: absent, folder",
        "module:Class",
    ),
    ("kafka", {}, "unknown sink type 'kafka'. Known types: absent, folder", "install"),
    (
        "absent",
        {},
        "'absent' cannot be loaded: No module named 'module_of_an_extra'",
        "pip install 'twophase[absent]'",
    ),
    ("no.such:Sink", {}, "'no.such:Sink' cannot be loaded", "module:Class"),
    ("harness.folder_sink:Nothing", {}, "cannot be loaded", "module:Class"),
    (":Sink", {}, "cannot be loaded", "module:Class"),
    ("folder", {"paht": "x"}, "FolderSink does not take these options", "job.yaml"),
    ("pathlib:Path", {}, "pathlib:Path is not a sink", "ArrowSink"),
]


@pytest.mark.parametrize(("kind", "options", "what", "remedy"), BAD, ids=[kind for kind, *_ in BAD])
def test_an_error_names_the_sink_and_what_to_do(
    tmp_path: Path, kind: str, options: dict[str, Any], what: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, kind, **options)
    assert caught.value.what.startswith("job.yaml: sinks.facts: ")
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    if remedy in ("ArrowSink", "module:Class"):
        make(tmp_path, FOLDER, path=str(tmp_path / "t"))


BROKEN: dict[str, tuple[str, str, str]] = {
    "syntax": ("class MySink(:\n    pass\n", "invalid syntax", "line 1"),
    "indentation": ("class MySink:\npass\n", "expected an indented block", "line 2"),
    "a null byte": ("x = 1\0\n", "source code string cannot contain null bytes", ""),
    "import": ("\nimport no_such_package\n", "No module named 'no_such_package'", "line 2"),
    "import of a name": ("from os import nothing\n", "cannot import name 'nothing'", "line 1"),
    "raises": ("\n\nd = {}['key']\n", "KeyError: 'key'", "line 3"),
    "raises in a library": ("import json\njson.loads('{')\n", "JSONDecodeError", "line 2"),
    "one of our errors": (
        "from twophase import ConfigError\nraise ConfigError('No.', remedy='do.')\n",
        "ConfigError: No.",
        "line 2",
    ),
    "exit": ("import sys\nsys.exit(7)\n", "SystemExit: 7", "line 2"),
    "no such class": ("class Mysink: pass\n", "has no attribute 'MySink'", ""),
    "not callable": ("MySink = 5\n", "is not a class: its type is int", ""),
    "not a sink": ("class MySink: pass\n", "is not a sink", ""),
    "constructor raises": (
        "class MySink:\n    def __init__(self):\n        raise OSError('full')\n",
        "MySink cannot be made of these options: OSError: full",
        "line 3",
    ),
    "constructor exits": (
        "class MySink:\n    def __init__(self):\n        raise SystemExit\n",
        "MySink cannot be made of these options: SystemExit",
        "line 3",
    ),
    "arguments without a name": (
        "import functools\nMySink = functools.partial(int, 1, 2, 3)\n",
        "partial does not take these options",
        "",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_module_is_named_with_its_file_and_line(tmp_path: Path, name: str) -> None:
    code, what, line = BROKEN[name]
    module = f"broken_{''.join(filter(str.isalpha, name))}"
    (tmp_path / f"{module}.py").write_text(code)
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, f"{module}:MySink")
    assert caught.value.what.startswith("job.yaml: sinks.facts: ")
    assert what in caught.value.what
    assert (f"({tmp_path / module}.py, {line})" if line else "") in caught.value.what
    assert caught.value.remedy
    assert caught.value.exit_code == 2
    if caught.value.remedy == "name a subclass of twophase.ArrowSink.":
        make(tmp_path, FOLDER, path=str(tmp_path / "t"))


def test_a_broken_module_that_a_module_imports_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "helper_of_a_sink.py").write_text("\n\n1 / 0\n")
    (tmp_path / "sink_with_a_helper.py").write_text("import helper_of_a_sink\n")
    with pytest.raises(ConfigError, match=r"helper_of_a_sink\.py, line 3\)") as caught:
        make(tmp_path, "sink_with_a_helper:MySink")
    assert caught.value.remedy == "correct it there."
    (tmp_path / "helper_of_a_sink.py").write_text("from harness.folder_sink import FolderSink\n")
    (tmp_path / "sink_with_a_helper.py").write_text(
        "from helper_of_a_sink import FolderSink as MySink\n"
    )
    invalidate_caches()
    assert isinstance(
        make(tmp_path, "sink_with_a_helper:MySink", path=str(tmp_path / "t")), FolderSink
    )


def test_a_broken_package_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_that_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("exits", "package_that_exits:Sink", sink_entry_points.GROUP)
    monkeypatch.setattr(sink_entry_points, "offered", lambda _: {"exits": entry})
    with pytest.raises(ConfigError, match=r"SystemExit: 0 \(.*package_that_exits\.py, line 1\)"):
        make(tmp_path, "exits")


NEEDY = """
from harness.folder_sink import FolderSink


class One(FolderSink):
    def spark_conf(self):
        return {"spark.jars.packages": "a:one:1", "spark.one": "1"}


class Two(FolderSink):
    def spark_conf(self):
        return {"spark.jars.packages": "a:two:1"}
"""


def conf(folder: Path, kinds: list[str], **given: str) -> dict[str, str]:
    """What Spark is started with for sinks of these types."""
    (folder / "needy.py").write_text(NEEDY)
    sinks = {
        kind: {"type": f"needy:{kind}", "options": {"path": str(folder / kind)}} for kind in kinds
    }
    job = {
        "name": "orders",
        "source": {"format": "rate"},
        "options": {"checkpointLocation": "/chk"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**job, "sinks": sinks, "spark": {"conf": given}}))
    try:
        return dict(sink_types.spark_conf(*load_job(path, {})))
    finally:
        del sys.modules["needy"]


def test_spark_is_started_with_what_a_sink_asks_for_and_the_file_wins(tmp_path: Path) -> None:
    assert conf(tmp_path, ["One"]) == {"spark.jars.packages": "a:one:1", "spark.one": "1"}
    assert conf(tmp_path, ["One"], **{"spark.one": "2", "spark.two": "3"}) == {
        "spark.jars.packages": "a:one:1",
        "spark.one": "2",
        "spark.two": "3",
    }


def test_two_sinks_that_ask_for_different_things_need_a_word_from_the_user(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"sinks\.Two needs spark\.jars\.packages=a:two:1, another sink needs a:one:1",
    ) as caught:
        conf(tmp_path, ["One", "Two"])
    assert caught.value.remedy == "set spark.conf.spark.jars.packages to what serves both."
    assert (
        conf(tmp_path, ["One", "Two"], **{"spark.jars.packages": "both"})["spark.jars.packages"]
        == "both"
    )
