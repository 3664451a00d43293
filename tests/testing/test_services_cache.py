"""The cache of fetched servers: filled once, never half, and only with the expected files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cached
from twophase.testing.services import mariadb
from twophase.testing.services.__main__ import main
from twophase.testing.services.maven import check_pins

BUILD_SLOWLY = """
import time
from pathlib import Path
from twophase.spark.startup.cache import cached
def build(folder):
    with open("built", "a") as log: log.write("x")
    time.sleep(0.5)
    (folder / "file").write_text("whole")
print((cached("thing-1", build) / "file").read_text())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_built_once() -> None:
    built: list[Path] = []
    assert cached("thing-1", built.append) == cached("thing-1", built.append)
    assert len(built) == 1


def test_a_failed_build_leaves_no_entry(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ServiceError("no network")

    with pytest.raises(ServiceError, match="no network"):
        cached("thing-1", fail)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_what_a_killed_build_left_is_removed(cache: Path) -> None:
    (cache / ".thing-1.partial-dead").mkdir(parents=True)
    cached("thing-1", lambda _: None)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["thing-1"]


def test_two_processes_build_an_entry_once(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", BUILD_SLOWLY]
    pair = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, env=environment(root))
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in pair] == [b"whole\n", b"whole\n"]
    assert (tmp_path / "built").read_text() == "x"


def test_an_entry_that_is_not_whole_is_replaced() -> None:
    target = cached("thing-1", lambda folder: (folder / "damaged").touch())
    cached(
        "thing-1",
        lambda folder: (folder / "whole").touch(),
        lambda folder: (folder / "whole").exists(),
    )
    assert [path.name for path in target.iterdir()] == ["whole"]


def test_what_another_process_has_built_meanwhile_is_kept() -> None:
    target = cached("thing-1", lambda folder: (folder / "theirs").touch())
    looks = iter([False, True])
    assert cached("thing-1", lambda _: pytest.fail("built twice"), lambda _: next(looks)) == target
    assert (target / "theirs").exists()


def test_without_apt_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match=r"no mariadbd here.*apt-get install -y mariadb-server"):
        cached("mariadb", mariadb.fetch_packages)


def environment(root: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": root}


def test_a_changed_missing_or_foreign_jar_is_refused(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    pins = {"a.jar": hashlib.sha256(b"a").hexdigest()}
    check_pins(jars, pins)
    for wrong in ({"a.jar": hashlib.sha256(b"b").hexdigest()}, {**pins, "b.jar": "0"}, {}):
        with pytest.raises(ServiceError, match="not the expected ones"):
            check_pins(jars, wrong)


def test_versions_says_what_is_not_fetched() -> None:
    result = CliRunner().invoke(main, ["versions"])
    assert result.exit_code == 0
    assert result.output.count("not fetched") == 5
