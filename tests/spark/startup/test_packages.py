"""What Spark found for its packages is handed to later starts, as long as it
is what Spark found.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pyspark
import pytest

from twophase.spark.startup.packages import (
    IVY_SETTINGS,
    JARS,
    PACKAGES,
    PYTHON_FILES,
    known_jars,
    note_jars,
    with_jars,
    without_installed,
    without_local_maven,
)

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
    assert (
        known_jars({**CONF, "spark.jars.excludes": ""} if change == "other excludes" else CONF)
        is None
    )


@pytest.mark.parametrize("name", ["one_2.13-1.0.jar", "org.one_one_2.13-1.0.jar"])
def test_a_package_that_is_among_spark_s_jars_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "jars").mkdir()
    jar(tmp_path / "jars", name)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    asked = "org.one:one_2.13:1.0"
    assert without_installed({PACKAGES: asked, "spark.one": "1"}) == {
        PACKAGES: "",
        "spark.one": "1",
    }
    assert without_installed({PACKAGES: f"org.two:two:1.0, {asked}"}) == {
        PACKAGES: "org.two:two:1.0"
    }


@pytest.mark.parametrize("asked", ["org.one:one_2.13:1.1", "org.two:one:1.0", ""])
def test_another_version_or_package_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    (tmp_path / "jars").mkdir()
    jar(tmp_path / "jars", "one_2.13-1.0.jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert without_installed({PACKAGES: asked}) == {PACKAGES: asked}


def test_without_a_spark_home_the_jars_of_the_installed_pyspark_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    installed = f"org.apache.spark:spark-core_2.13:{pyspark.__version__}"
    assert without_installed({PACKAGES: installed}) == {PACKAGES: ""}


def test_ivy_looks_into_maven_central_or_its_mirror_and_into_no_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def roots() -> list[str | None]:
        text = Path(without_local_maven(CONF)[IVY_SETTINGS]).read_text()
        return [one.get("root") for one in ElementTree.fromstring(text).iter("ibiblio")]

    assert roots()[0] == "https://repo1.maven.org/maven2/"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://mirror/a?b&c/")
    assert roots()[0] == "https://mirror/a?b&c/"
    assert all(root and root.startswith("https:") for root in roots())


@pytest.mark.parametrize("place", ["conf", "spark-defaults.conf"])
def test_settings_of_ivy_that_the_user_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    conf = {**CONF, IVY_SETTINGS: "mine.xml"} if place == "conf" else CONF
    if place != "conf":
        (tmp_path / place).write_text(f"{IVY_SETTINGS} mine.xml")
    assert without_local_maven(conf) == conf
