"""Sinks are found by entry point, or as module:Class beside the job file."""

from __future__ import annotations

import os
import sys
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
    ):
        conf(tmp_path, ["One", "Two"])
    assert (
        conf(tmp_path, ["One", "Two"], **{"spark.jars.packages": "both"})["spark.jars.packages"]
        == "both"
    )
