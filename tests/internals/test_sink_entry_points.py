"""A sink that cannot be loaded, or cannot be made, is there when what the error says is done."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.folder_sink import FolderSink
from twophase.errors import ConfigError
from twophase.internals.sink_entry_points import load_sink, make_sink

METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"


def build(wheels: Path, name: str, module: str, metadata: str = "", entries: str = "") -> Path:
    """Return the wheel of a package with one module."""
    info = f"{name}-1.0.dist-info"
    wheel = wheels / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", module)
        archive.writestr(f"{info}/METADATA", METADATA.format(name) + metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", entries)
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_the_command_that_an_error_names_installs_what_the_sink_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, "client_of_a_shop", "connect = print\n")
    package = build(
        tmp_path,
        "sinks_of_a_shop",
        "from client_of_a_shop import connect\n\nclass Shop:\n    pass\n",
        'Provides-Extra: shop\nRequires-Dist: client_of_a_shop; extra == "shop"\n',
        "[twophase.sinks]\nshop = sinks_of_a_shop:Shop\n",
    )
    site = tmp_path / "site"
    into = ["--no-index", "--find-links", str(tmp_path), "--target", str(site), "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", str(package), *into], check=True)
    monkeypatch.syspath_prepend(site)
    with pytest.raises(ConfigError, match="No module named 'client_of_a_shop'") as caught:
        load_sink("job.yaml: sinks.facts", "shop")
    command = shlex.split(caught.value.remedy.removeprefix("run: "))
    assert command[-1] == "sinks_of_a_shop[shop]"
    subprocess.run([*command, *into, "--upgrade"], check=True)
    importlib.invalidate_caches()
    assert load_sink("job.yaml: sinks.facts", "shop").__name__ == "Shop"


@pytest.mark.parametrize("wrong", [{}, {"paht": "/lake"}, {"path": "/lake", "format": "json"}])
def test_a_sink_is_made_of_options_that_were_corrected(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="FolderSink does not take these options") as caught:
        make_sink("sink 'lake'", FolderSink, wrong)
    assert caught.value.remedy == "correct the options."
    assert isinstance(make_sink("sink 'lake'", FolderSink, {"path": "/lake"}), FolderSink)
