"""When an archive is used, when it is recorded, and what becomes of old ones. Recording itself:
tests/testing/test_spark_start.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from twophase.spark.startup import class_archive, quick_start
from twophase.spark.startup.class_archive import ClassArchive
from twophase.spark.startup.java import java_version
from twophase.spark.startup.quick_start import find_archive, jvm_environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))
    for name in ("SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def made(archive: ClassArchive, content: bytes = b"classes") -> Path:
    archive.folder.mkdir(mode=0o700)
    file = archive.folder / "classes.jsa"
    file.write_bytes(content)
    file.chmod(0o644)
    (archive.folder / "origin.json").write_text(json.dumps(archive._origin()))
    (archive.folder / "recorded.json").write_text(json.dumps(class_archive._fingerprint(file)))
    return file


def test_an_archive_is_recorded_once_and_then_used() -> None:
    archive = ClassArchive()
    assert (archive.is_due(), archive.options()) == (True, [])
    file = made(archive)
    assert not archive.is_due()
    assert archive.options()[0] == f"-XX:SharedArchiveFile={file}"


def test_what_could_not_be_recorded_is_tried_again_after_a_day() -> None:
    archive = ClassArchive()
    archive.folder.mkdir()
    assert not archive.is_due()
    yesterday = time.time() - 25 * 3600
    os.utime(archive.folder, (yesterday, yesterday))
    assert archive.is_due()
    assert archive.options() == []


@pytest.mark.parametrize("damage", ["cut", "overwritten", "not noted", "note half written"])
def test_an_archive_that_is_not_the_recorded_one_is_not_used_and_is_due(damage: str) -> None:
    archive = ClassArchive()
    file = made(archive)
    note = archive.folder / "recorded.json"
    match damage:
        case "cut":
            file.write_bytes(b"class")
        case "overwritten":
            file.write_bytes(b"CLASSES")
        case "not noted":
            note.unlink()
        case _:
            note.write_text(note.read_text()[:3])
    assert (archive.options(), archive.is_due()) == ([], True)


SIZE = 16_000_000


def overwrite(file: BinaryIO) -> None:
    file.seek(SIZE // 2)
    file.write(b"\xa5" * (SIZE // 4))


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.truncate(SIZE // 2),
        overwrite,
        lambda file: file.write(b"\0"),
        lambda file: [file.seek(-1, os.SEEK_END), file.write(b"\0")],
    ],
    ids=["cut in half", "a quarter overwritten", "another head", "another tail"],
)
def test_damage_of_a_large_archive_is_found_whatever_its_time(
    damage: Callable[[BinaryIO], object],
) -> None:
    archive = ClassArchive()
    file = made(archive, b"classes." * (SIZE // 8))
    before = file.stat()
    with file.open("r+b") as opened:
        damage(opened)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (archive.options(), archive.is_due()) == ([], True)


def test_an_archive_whose_time_a_copy_or_an_image_has_changed_is_used() -> None:
    archive = ClassArchive()
    file = made(archive)
    os.utime(file, (1, 1))
    assert not archive.is_due()
    assert archive.options() != []


def test_jars_whose_times_an_image_keeps_to_the_second_are_the_same(tmp_path: Path) -> None:
    jar = tmp_path / "more.jar"
    jar.write_bytes(b"jar")
    os.utime(jar, ns=(1_500_000_000_900_000_000,) * 2)
    before = ClassArchive((jar,)).folder
    os.utime(jar, (1_500_000_000,) * 2)
    assert ClassArchive((jar,)).folder == before


def test_a_note_of_size_and_time_as_it_was_before_is_no_proof() -> None:
    archive = ClassArchive()
    file = made(archive)
    known = file.stat()
    (archive.folder / "recorded.json").write_text(json.dumps([known.st_size, known.st_mtime_ns]))
    assert (archive.options(), archive.is_due()) == ([], True)


def test_an_archive_that_others_can_write_is_not_run() -> None:
    archive = ClassArchive()
    made(archive).chmod(0o666)
    assert archive.options() == []


def test_other_jars_or_newer_ones_need_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "more.jar"
    jar.write_bytes(b"jar")
    archive = ClassArchive((jar,))
    before = archive.folder
    os.utime(jar, (1, 1))
    assert len({before, archive.folder, ClassArchive().folder}) == 3


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "recording killed"])
def test_an_archive_of_jars_as_they_were_before_is_dropped(tmp_path: Path, killed: bool) -> None:
    jar = tmp_path / "more.jar"
    jar.write_bytes(b"jar")
    archive, plain = ClassArchive((jar,)), ClassArchive()
    old = made(archive).parent
    half = old.rename(old.with_name(f".{old.name}.partial-x")) if killed else old
    made(plain)
    os.utime(jar, (1, 1))
    made(archive)
    archive._drop_outdated(archive.folder)
    assert (half.exists(), plain.folder.exists(), archive.folder.exists()) == (False, True, True)


def test_what_another_process_is_recording_stays(tmp_path: Path, cache: Path) -> None:
    """Of the same jars, under another name: with another Java."""
    archive = ClassArchive()
    made(archive)
    name = "spark-4.2.0-classes-other"
    recording = cache / f".{name}.partial-x"
    recording.mkdir()
    (recording / "origin.json").write_text(json.dumps(archive._origin()))
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive._drop_outdated(archive.folder)
        assert recording.exists()
    archive._drop_outdated(archive.folder)
    assert not recording.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_made_costs_the_quick_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o500)
    assert find_archive((), {}) is None
    assert "PYSPARK_PYTHON" not in jvm_environment(None)


def test_a_cache_in_the_way_of_a_file_costs_the_quick_start_only(cache: Path) -> None:
    cache.write_text("a file")
    assert find_archive((), {}) is None
    assert "PYSPARK_PYTHON" not in jvm_environment(None)


def test_a_process_that_was_started_quickly_uses_the_same_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    before = ClassArchive().folder
    for name, value in jvm_environment(None).items():
        monkeypatch.setenv(name, value)
    assert ClassArchive().folder == before


def test_another_spark_has_an_archive_of_its_own_and_one_more_jar_in_it_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ClassArchive().folder
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    before = ClassArchive().folder
    (jars / "one.jar").touch()
    assert len({own, before, ClassArchive().folder}) == 3


def test_a_spark_that_is_not_there_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/another/spark")
    assert find_archive((), {}) is None


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made(ClassArchive())
    monkeypatch.setattr(quick_start, "java_version", lambda: 17)
    monkeypatch.setenv("PYSPARK_PYTHON", "/my/python")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    environment = jvm_environment(find_archive((), {}))
    assert "PYSPARK_PYTHON" not in environment
    assert environment["SPARK_SUBMIT_OPTS"].startswith("-Dmine=1 -XX:SharedArchiveFile=")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine.jsa")
    assert find_archive((), {}) is None
    assert (
        find_archive((), {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/mine.jsa"})
        is None
    )


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="21"\n', 21),
        ("", None),
        (None, None),
    ],
)
def test_the_version_of_java_is_read_from_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None, version: int | None
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    if release is not None:
        (tmp_path / "release").write_text(release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() == version


@pytest.mark.parametrize(("version", "taken"), [(17, True), (21, False), (None, True)])
def test_java_21_is_given_no_archive(
    monkeypatch: pytest.MonkeyPatch, version: int | None, taken: bool
) -> None:
    monkeypatch.setattr(quick_start, "java_version", lambda: version)
    assert (quick_start.find_archive([], {}) is not None) is taken
