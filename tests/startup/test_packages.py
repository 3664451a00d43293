"""What Spark found for its packages is handed to later starts, as long as it is what Spark found."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from twophase.startup.packages import JARS, PACKAGES, PYTHON_FILES, known_jars, note_jars, with_jars

CONF = {PACKAGES: "org:one:1", "spark.jars.excludes": "org:two"}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))


def jar(folder: Path, name: str, entry: str = "A.class") -> Path:
    with zipfile.ZipFile(folder / name, "w") as content:
        content.writestr(entry, b"content")
    return folder / name


def test_jars_that_spark_found_are_named_in_place_of_the_packages(tmp_path: Path) -> None:
    one, mine = jar(tmp_path, "one a.jar"), jar(tmp_path, "mine.jar")
    conf = {**CONF, JARS: str(mine)}
    assert known_jars(conf) is None
    note_jars(conf, f"file://{mine},{one.as_uri()}")
    assert known_jars(conf) == (one,)
    named = with_jars(conf, (one,))
    assert (named[PACKAGES], named[JARS], named[PYTHON_FILES]) == ("", f"{mine},{one}", "")


def test_a_jar_with_python_in_it_stays_on_pythons_path(tmp_path: Path) -> None:
    one = jar(tmp_path, "one.jar", "delta/__init__.py")
    assert with_jars(CONF, (one,))[PYTHON_FILES] == str(one)


@pytest.mark.parametrize("change", ["gone", "other time", "other excludes", "not ours", "damaged"])
def test_what_may_be_something_else_is_looked_for_again(tmp_path: Path, change: str) -> None:
    one = jar(tmp_path, "one.jar")
    note_jars(CONF, one.as_uri())
    assert known_jars(CONF) == (one,)
    [note] = (tmp_path / "cache").glob("packages-*.json")
    match change:
        case "gone":
            one.unlink()
        case "other time":
            os.utime(one, (1, 1))
        case "not ours":
            note.chmod(0o666)
        case "damaged":
            note.write_text('{"')
    assert known_jars({**CONF, "spark.jars.excludes": ""} if change == "other excludes" else CONF) is None
