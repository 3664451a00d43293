"""Which releases of PySpark are tried, and with which tests."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from harness import environments, versions
from harness.environments import UnmadeError
from harness.spark_features import needs
from harness.versions import (
    RELEASES,
    TRIALS,
    UPGRADES,
    Cell,
    Parts,
    Trial,
    VersionsError,
    ends_of,
    main,
    record,
    recorded,
)
from twophase.internals.pyspark_version import NEWEST, OLDEST
from twophase.spark_versions import SPARK, Feature, version_in

ROOT = Path(__file__).parents[2]
DAY, COMMIT = "2026-11-29", "0a1b2c3d"


def test_every_supported_version_is_tried_and_no_other() -> None:
    tried = {version_in(release) for release in RELEASES}
    (major, oldest), (_, newest) = OLDEST, NEWEST
    assert tried == {(major, minor) for minor in range(oldest, newest + 1)}


def test_the_release_of_the_constraints_is_tried() -> None:
    [used] = re.findall(r"^pyspark==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert used in RELEASES


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.subject)
def test_what_is_chosen_exists(trial: Trial) -> None:
    assert trial.tests
    assert all((ROOT / path).exists() for path in trial.tests)


def test_each_subject_and_each_file_is_chosen_once() -> None:
    files = [path for trial in TRIALS for path in trial.tests]
    assert len({*files}) == len(files)
    assert len({trial.subject for trial in TRIALS}) == len(TRIALS)


def test_a_job_is_taken_from_each_version_to_each_newer_one() -> None:
    tried = [(version_in(older), version_in(newer)) for older, newer in UPGRADES]
    versions = sorted({version_in(release) for release in RELEASES})
    pairs = [(older, newer) for newer in versions for older in versions if older < newer]
    assert sorted(tried) == sorted(pairs)


CASES = {
    "passed": ("<testcase classname='tests.test_one'/>", "passed"),
    "in a class": ("<testcase classname='tests.test_one.TestIt'/>", "passed"),
    "some skipped": (
        (
            "<testcase classname='tests.test_one'/>"
            "<testcase classname='tests.test_one'><skipped/></testcase>"
        ),
        "passed",
    ),
    "all skipped": ("<testcase classname='tests.test_one'><skipped/></testcase>", "skipped"),
    "one failed": (
        (
            "<testcase classname='tests.test_one'/>"
            "<testcase classname='tests.test_one'><failure/></testcase>"
        ),
        "failed",
    ),
    "a fixture failed": ("<testcase classname='tests.test_one'><error/></testcase>", "failed"),
    "no test of the file": ("<testcase classname='tests.test_other'/>", "failed"),
}


FOLDERS = {
    "of its folder": ("tests.folder.test_one", "passed"),
    "of one that begins so": ("tests.folders.test_one", "failed"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_ends_as_the_tests_in_it_do(case: str) -> None:
    module, end = FOLDERS[case]
    report = f"<testsuites><testcase classname='{module}'/></testsuites>"
    assert ends_of([Trial("it", ("tests/folder",))], report) == {"it": end}


@pytest.mark.parametrize("case", CASES)
def test_a_subject_ends_as_its_tests_do(case: str) -> None:
    cases, end = CASES[case]
    trial = Trial("it", ("tests/test_one.py",))
    assert ends_of([trial], f"<testsuites>{cases}</testsuites>") == {"it": end}


def test_a_run_that_broke_off_has_failed() -> None:
    assert ends_of([Trial("it", ("tests/test_one.py",))], "") == {"it": "failed"}


def test_how_subjects_ended_is_kept_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "RECORD", tmp_path / "record.json")
    first, second, *_ = (trial.subject for trial in TRIALS)
    record("4.3.0", {first: "passed"}, DAY, "")
    record("4.1.4", {second: "failed"}, "2026-11-28", COMMIT)
    record("4.1.4", {first: "skipped", "it was once tried": "passed"}, DAY, f"{COMMIT}+")
    assert recorded() == {
        "4.1.4": {
            first: Cell("skipped", DAY, f"{COMMIT}+"),
            second: Cell("failed", "2026-11-28", COMMIT),
        },
        "4.3.0": {first: Cell("passed", DAY)},
    }
    assert [[*cells] for cells in recorded().values()] == [[first, second], [first]]


def test_the_commit_that_was_tried_is_kept_with_the_day_and_a_mark_if_files_were_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        as_somebody = ["-c", "user.name=one", "-c", "user.email=one@localhost"]
        command = ["git", *as_somebody, *words]
        run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    for name in ("RECORD", "PAGE"):
        monkeypatch.setattr(versions, name, tmp_path / name)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    monkeypatch.setattr(versions, "tried", lambda *_: {TRIALS[0].subject: "passed"})

    def kept() -> Cell:
        assert main(["4.1.4"]) == 0
        return recorded()["4.1.4"][TRIALS[0].subject]

    begun = datetime.now(UTC).date().isoformat()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert kept().commit == ""
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    commit = git("rev-parse", "--short=8", "HEAD")
    versions.PAGE.touch()
    assert kept().commit == commit
    (tmp_path / "module.py").touch()
    assert kept().commit == f"{commit}+"
    assert begun <= kept().day <= datetime.now(UTC).date().isoformat()


def test_of_all_subjects_only_the_chosen_ones_are_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "RECORD", tmp_path / "record.json")
    ran: list[tuple[str, list[str]]] = []

    def tried(release: str, trials: list[Trial]) -> dict[str, str]:
        ran.append((release, [trial.subject for trial in trials]))
        return {}

    monkeypatch.setattr(versions, "tried", tried)
    assert main(["4.1.4", "--subject", "savepoints"]) == 0
    assert main(["4.3.0"]) == 0
    assert ran == [("4.1.4", ["savepoints"]), ("4.3.0", [trial.subject for trial in TRIALS])]


@pytest.mark.skipif(versions.VARIABLE in os.environ, reason="make versions makes the record")
def test_no_subject_has_failed_with_any_release_in_its_last_run() -> None:
    """Of those that were tried; the page shows the others as not tried."""
    tried = recorded()
    assert {*tried} <= {*RELEASES}
    for release, cells in tried.items():
        assert {*cells} <= {trial.subject for trial in TRIALS}
        assert {cell.end for cell in cells.values()} <= {"passed", "skipped"}, release
        assert all(date.fromisoformat(cell.day) for cell in cells.values())


def test_the_page_names_no_release_that_is_not_tried() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    [tried] = re.findall(r"^\| PySpark \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    named = re.findall(r"\d+\.\d+\.\d+", tried)
    assert named
    assert {*named} <= {*RELEASES}


@pytest.mark.parametrize("arguments", [["9.9.9"], ["4.1.4", "--subject", "9.9.9"]])
def test_what_is_not_known_is_refused_before_any_environment_is_made(arguments: list[str]) -> None:
    with pytest.raises(VersionsError, match=r"9\.9\.9: not one of "):
        main(arguments)


@pytest.mark.parametrize(("end", "code"), [("passed", 0), ("skipped", 0), ("failed", 1)])
def test_a_failure_with_one_release_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    end: str,
    code: int,
) -> None:
    monkeypatch.setattr(versions, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(
        versions, "tried", lambda release, _: {"it": end if release == "4.1.4" else "passed"}
    )
    assert main([]) == code
    shown = capsys.readouterr().out
    assert f"failed with PySpark: {'4.1.4 (it)' if code else 'none'}\n" in shown
    here = [release for release in RELEASES if Parts.of(release).is_here()]
    assert all(f"== PySpark {release} ==" in shown for release in here)


def test_each_subject_with_each_release_is_picked_once_in_as_many_numbers() -> None:
    count = len(RELEASES) * len(TRIALS)
    pairs = [versions.picked(number, RELEASES, TRIALS) for number in range(7, count + 7)]
    assert {(release, trial) for [release], [trial] in pairs} == {
        (release, trial) for release in RELEASES for trial in TRIALS
    }


def test_only_what_is_picked_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(versions, "RECORD", tmp_path / "record.json")
    ran: list[tuple[str, list[Trial]]] = []

    def tried(release: str, trials: list[Trial]) -> dict[str, str]:
        ran.append((release, trials))
        return {}

    monkeypatch.setattr(versions, "tried", tried)
    assert main(["4.1.4", "4.3.0", "--pick", str(len(TRIALS) + 1)]) == 0
    assert ran == [("4.3.0", [TRIALS[1]])]


@pytest.mark.parametrize(
    ("release", "parts"),
    {
        "4.1.4": Parts("4.1.4"),
        "4.2.0-python3.13": Parts("4.2.0", python="python3.13"),
        "4.2.0-java21": Parts("4.2.0", java="21"),
        "4.1.4-python3.13-java21": Parts("4.1.4", python="python3.13", java="21"),
    }.items(),
)
def test_a_release_names_its_parts(release: str, parts: Parts) -> None:
    assert Parts.of(release) == parts


def test_an_environment_is_made_again_when_the_packages_have_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    made_of = ["setup.cfg", "constraints-paimon.txt", "environment/.ready", "constraints.txt"]
    for number, name in enumerate(made_of):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (number, number))
    assert not environments.is_made(tmp_path / "environment")
    os.utime(tmp_path / "environment/.ready", (3, 3))
    assert environments.is_made(tmp_path / "environment")
    assert not environments.is_made(tmp_path / "other")


def test_a_shim_for_a_python_that_is_not_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shim = tmp_path / "python9.9"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert not Parts.of("4.2.0-python9.9").is_here()
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert Parts.of("4.2.0-python9.9").is_here()


def test_a_java_is_here_where_a_variable_names_it_or_a_package_has_installed_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "JAVAS", tmp_path)
    monkeypatch.delenv("JAVA_21_HOME", raising=False)
    release = Parts.of("4.2.0-java21")
    (tmp_path / "java-17-openjdk-amd64").mkdir()
    assert not release.is_here()
    with pytest.raises(UnmadeError, match="there is no Java 21: name one in JAVA_21_HOME"):
        main(["4.2.0-java21"])
    (tmp_path / "java-21-openjdk-amd64").mkdir()
    assert release.java_home == str(tmp_path / "java-21-openjdk-amd64")
    monkeypatch.setenv("JAVA_21_HOME", "/opt/java")
    assert release.java_home == "/opt/java"
    assert release.is_here()


def test_tests_of_what_is_missing_are_skipped_with_the_reason() -> None:
    missing = needs(Feature("The sink", "It was never tried.", since=(9, 0)))
    here = needs(Feature("The sink", "It is there.", since=SPARK))
    assert missing.args == (True,)
    assert "The sink needs PySpark 9.0 or newer" in missing.kwargs["reason"]
    assert here.args == (False,)


def test_a_python_that_is_not_here_is_left_out_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(versions, "FOLDER", tmp_path)
    monkeypatch.setattr(versions, "RELEASES", ("4.2.0-python9.9",))
    assert main([]) == 0
    assert "not tried, no such Python or Java is here: 4.2.0-python9.9" in capsys.readouterr().out
    with pytest.raises(UnmadeError, match=r"there is no python9\.9 on the PATH"):
        main(["4.2.0-python9.9"])
    assert not [*tmp_path.iterdir()]
