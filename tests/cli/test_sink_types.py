"""Sinks are found by entry point, or as module:Class beside the job file."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from twophase.cli import sink_types
from twophase.cli.job_file import load_job_file
from twophase.errors import ConfigError
from twophase.protocol.sink import Sink
from twophase.testing.folder import FolderSink

FOLDER = "twophase.testing.folder:FolderSink"
ENTRIES = [
    EntryPoint("folder", FOLDER, sink_types.GROUP),
    EntryPoint("absent", "module_of_an_extra:Sink", sink_types.GROUP),
]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_types, "entry_points", lambda group: ENTRIES if group == "twophase.sinks" else [])
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
    return sink_types.make_sinks(load_job_file(path, {}))["facts"]


def test_a_type_is_the_name_of_an_entry_point(tmp_path: Path) -> None:
    assert isinstance(make(tmp_path, "folder", path=str(tmp_path / "t")), FolderSink)


def test_a_class_of_an_installed_module_serves(tmp_path: Path) -> None:
    assert isinstance(make(tmp_path, FOLDER, path=str(tmp_path / "t")), FolderSink)


def test_a_module_beside_the_job_file_serves_driver_and_workers(tmp_path: Path) -> None:
    (tmp_path / "sinks_of_mine.py").write_text(
        "from twophase.testing.folder import FolderSink\n\nclass MySink(FolderSink):\n    pass\n"
    )
    assert type(make(tmp_path, "sinks_of_mine:MySink", path=str(tmp_path / "t"))).__name__ == "MySink"
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


BAD = [
    ("folde", {}, "unknown sink type 'folde'; did you mean 'folder'? Known types: absent, folder", "module:Class"),
    ("kafka", {}, "unknown sink type 'kafka'. Known types: absent, folder", "install"),
    ("absent", {}, "'absent' cannot be loaded: No module named 'module_of_an_extra'", "pip install 'twophase[absent]'"),
    ("no.such:Sink", {}, "'no.such:Sink' cannot be loaded", "module:Class"),
    ("twophase.testing.folder:Nothing", {}, "cannot be loaded", "module:Class"),
    (":Sink", {}, "cannot be loaded", "module:Class"),
    ("folder", {"paht": "x"}, "FolderSink does not take these options", "job.yaml"),
    ("pathlib:Path", {}, "pathlib:Path is no sink", "ArrowSink"),
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
