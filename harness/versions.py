"""Tries chosen tests with each release of PySpark, and of Python and Java, in an environment of
its own.

    python -m harness.versions                 every release, with what is there of Python and Java
    python -m harness.versions 4.1.4 4.3.0     these
    python -m harness.versions 4.2.0-python3.13      with another Python, which is on the PATH
    python -m harness.versions 4.2.0-java21          with another Java, which JAVA_21_HOME names or
                                                     a package has installed
    python -m harness.versions 4.1.4-python3.13-java21          with both
    python -m harness.versions 4.1.4 --subject savepoints      of the tests only these
    python -m harness.versions --pick 1234     one subject with one release, by any number

An environment is made on its first use, in `.versions/<release>`: everything of `constraints.txt`,
and the release in place of its PySpark; one of the Paimon sink beside it, where pypaimon has
the pyarrow that it wants. Tests of what a release lacks are skipped there
(`harness/spark_features.py`). How each subject ended, on which day and of which commit, is kept in
`harness/versions.json`, of which docs/limits.md has a table: `make versions` writes that too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from harness import paimon_environment
from harness.environments import ROOT, UnmadeError, is_made, make, python_in

FOLDER = ROOT / ".versions"
RECORD = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "limits.md"
JAVAS = Path("/usr/lib/jvm")
"""Where Debian's packages install each Java."""
VARIABLE = "TWOPHASE_RELEASE"
"""Names the release that is tried, with its Python and Java, for tests that need several
installations.
"""

RELEASES: Final = (
    "4.1.4",
    "4.1.4-python3.13-java21",
    "4.2.0",
    "4.2.0-python3.12",
    "4.2.0-python3.13",
    "4.2.0-java21",
    "4.2.1",
    "4.3.0",
    "4.3.0-python3.13-java21",
)
"""The newest release of each supported version, and the one of constraints.txt, which is tried with
newer Pythons and a newer Java too; the oldest and the newest version with both.
"""

UPGRADES: Final = (("4.1.4", "4.2.1"), ("4.2.1", "4.3.0"), ("4.1.4", "4.3.0"))
"""Pairs of releases: a job of the first goes on under the second, and back again."""


@dataclass(frozen=True)
class Trial:
    """Tests of one subject.

    Attributes:
        subject: what the page calls it.
        tests: files of them, or folders.
        options: of pytest, with which they are run.
        with_paimon: whether they need pypaimon.
    """

    subject: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    with_paimon: bool = False


_PROOF: Final = ("--proof",)

TRIALS: Final = (
    Trial("the cheapest tests, as make quick has them", ("tests", "verification"), ("--quick",)),
    Trial("the quick start, as typed", ("integration/getting_started/test_readme.py",), _PROOF),
    Trial("a job: restarts, retries, stops", ("tests/spark/job/test_job.py",)),
    Trial("the plugin form", ("tests/spark/plugin/test_plugin_spark.py",)),
    Trial("the plugin form over Spark Connect", ("integration/connect/test_short.py",)),
    Trial("declarative pipelines into MySQL, killed", ("integration/pipelines/test_pipelines.py",)),
    Trial("keyed state of functions", ("tests/functions/test_keyed_state_spark.py",)),
    Trial("savepoints", ("tests/operations/savepoint/test_savepoint_spark.py",)),
    Trial("rescaling a savepoint", ("tests/operations/savepoint/test_rescale_spark.py",)),
    Trial("formats of Spark's folder", ("tests/spark/folder/test_folder_formats_spark.py",)),
    Trial(
        "shuffles in local mode",
        ("tests/spark/plan/test_shuffle_settings.py", "tests/spark/plan/test_shuffles.py"),
    ),
    Trial("what is missing is refused", ("tests/test_spark_versions.py",)),
    Trial(
        "MySQL, Hive and, where it is, Delta in one checkpoint, killed",
        ("integration/three_sinks/test_short.py",),
    ),
    Trial(
        "the Delta sink", ("integration/delta/test_contract.py", "integration/delta/test_sink.py")
    ),
    Trial("Iceberg, killed", ("integration/iceberg/test_spark.py",)),
    Trial(
        "Iceberg's own reader in Spark",
        ("integration/iceberg/test_spark_reader.py", "integration/iceberg/test_statements.py"),
    ),
    Trial("Paimon, killed", ("integration/paimon/test_spark.py",), with_paimon=True),
    Trial("Kafka as a sink, killed", ("integration/kafka_sink/test_spark.py",)),
    Trial("source twophase-kafka", ("integration/kafka/test_source.py",)),
    Trial("Spark's Kafka source", ("integration/kafka/test_spark_kafka.py",), _PROOF),
    Trial(
        "a shuffle on a cluster whose executors die",
        ("integration/cluster/test_shuffle_attempts.py",),
        _PROOF,
    ),
    Trial(
        "a job of an older version goes on, and back again",
        ("integration/versions/test_upgrades.py",),
    ),
)

Ends = Mapping[str, str]
"""How each subject ended: `passed`, `failed` or `skipped`, by its name."""


@dataclass(frozen=True)
class Cell:
    """The last run of a subject with a release.

    Attributes:
        end: how it ended.
        day: on which it began, in UTC: `2026-11-29`.
        commit: what was tried, with a `+` if files were changed; empty if it was not noted.
    """

    end: str
    day: str
    commit: str = ""


class VersionsError(Exception):
    """A release or a subject is not known."""


def python_of(release: str, *, with_paimon: bool = False) -> Path:
    """Return the Python of a release's environment, which is made if it is not there.

    Raises:
        UnmadeError: it cannot be made; the next call begins again.
    """
    parts = Parts.of(release)
    folder = FOLDER / (f"{parts.environment}-paimon" if with_paimon else parts.environment)
    if not is_made(folder):
        # Delta's package asks for another one; the Delta sink is refused there by name.
        only_spark = ["--no-deps", f"pyspark=={parts.pyspark}"]
        if with_paimon:
            paimon_environment.make_in(folder, only_spark, python=parts.python)
        else:
            make(folder, ["-c", "constraints.txt", "-e", ".[dev]"], only_spark, python=parts.python)
    return python_in(folder)


@dataclass(frozen=True)
class Parts:
    """What a release consists of.

    Attributes:
        pyspark: its version.
        python: the command that makes the environment.
        java: the version of Java; None for the one that all tests have.
    """

    pyspark: str
    python: str = sys.executable
    java: str | None = None

    @classmethod
    def of(cls, release: str) -> Parts:
        """Read the name of a release."""
        pyspark, *others = release.split("-")
        javas = [other.removeprefix("java") for other in others if other.startswith("java")]
        pythons = [other for other in others if other.startswith("python")]
        return cls(pyspark, *pythons or [sys.executable], *javas)

    @property
    def environment(self) -> str:
        """The name of its folder: with another Java it is the same."""
        return self.pyspark if self.python == sys.executable else f"{self.pyspark}-{self.python}"

    @property
    def java_home(self) -> str | None:
        """The folder of its Java; None if it is not here."""
        named = os.environ.get(f"JAVA_{self.java}_HOME")
        packaged = sorted(map(str, JAVAS.glob(f"java-{self.java}-*")))
        return next((home for home in [named, *packaged] if home), None)

    def is_here(self) -> bool:
        """Return whether its Java is here, and its Python, and that one runs: a shim may stand for
        one that does not.
        """
        if self.java is not None and self.java_home is None:
            return False
        if shutil.which(self.python) is None:
            return False
        tried = subprocess.run([self.python, "-c", ""], capture_output=True, check=False)
        return tried.returncode == 0


def tried(release: str, trials: Sequence[Trial]) -> Ends:
    """Run tests with a release, and return how each subject ended.

    Raises:
        UnmadeError: there is no such Java here, or an environment cannot be made.
    """
    parts = Parts.of(release)
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
    environment[VARIABLE] = release
    if parts.java is not None:
        if parts.java_home is None:
            raise UnmadeError(f"there is no Java {parts.java}: name one in JAVA_{parts.java}_HOME")
        environment["JAVA_HOME"] = parts.java_home
    ends: dict[str, str] = {}
    for with_paimon, options in dict.fromkeys(map(_how, trials)):
        chosen = [trial for trial in trials if _how(trial) == (with_paimon, options)]
        python = str(python_of(release, with_paimon=with_paimon))
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            command = [python, "-m", "pytest", "-q", f"--junitxml={report.name}", *options]
            command += [file for trial in chosen for file in trial.tests]
            code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
            ends |= ends_of(chosen, Path(report.name).read_text() if code <= 1 else "")
    return ends


def _how(trial: Trial) -> tuple[bool, tuple[str, ...]]:
    return trial.with_paimon, trial.options


def ends_of(trials: Iterable[Trial], report: str) -> dict[str, str]:
    """Return how subjects ended.

    Args:
        trials: all that were run.
        report: of pytest, as JUnit's XML; empty if the run broke off, which fails them all.
    """
    found: dict[str, set[str]] = {}
    for case in ElementTree.fromstring(report).iter("testcase") if report else ():
        told = {child.tag for child in case}
        end = "failed" if told & {"failure", "error"} else "passed"
        found.setdefault(_module(case), set()).add("skipped" if "skipped" in told else end)
    return {
        trial.subject: _end([_within(tests, found) for tests in trial.tests]) for trial in trials
    }


def _within(tests: str, found: Mapping[str, set[str]]) -> set[str]:
    """Return how tests of a file, or of the files of a folder, ended."""
    of_file = found.get(tests, set())
    return of_file.union(*(ends for file, ends in found.items() if file.startswith(f"{tests}/")))


def _module(case: ElementTree.Element) -> str:
    """Return the file of a test: classes in it are named behind the module."""
    words = case.get("classname", "").split(".")
    while words and not words[-1].startswith("test_"):
        words.pop()
    return "/".join(words) + ".py"


def _end(files: Sequence[set[str]]) -> str:
    """Return the end of a subject, which has failed too if one of its files has no test."""
    ends = set().union(*files)
    if "failed" in ends or not all(files):
        return "failed"
    return "passed" if "passed" in ends else "skipped"


def recorded() -> dict[str, dict[str, Cell]]:
    """Return the last run of each subject with each release that was tried."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {
        release: {subject: Cell(*text.split()) for subject, text in cells.items()}
        for release, cells in known.items()
    }


def record(release: str, ends: Ends, day: str, commit: str) -> None:
    """Keep how subjects ended with a release, beside what is known of others."""
    known = recorded()
    new = {subject: Cell(end, day, commit) for subject, end in ends.items()}
    known[release] = known.get(release, {}) | new
    kept = {
        one: {
            trial.subject: " ".join(astuple(known[one][trial.subject])).rstrip()
            for trial in TRIALS
            if trial.subject in known[one]
        }
        for one in RELEASES
        if one in known
    }
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def tried_commit() -> str:
    """Return the commit whose files these are, with a `+` if they were changed; empty if this is no
    repository. What `make versions` writes is no change.
    """
    commit, changed = (
        subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        for words in (
            ["rev-parse", "--short=8", "HEAD"],
            ["status", "--porcelain", "--", ".", f":(exclude){RECORD}", f":(exclude){PAGE}"],
        )
    )
    return f"{commit}+" if commit and changed else commit


def main(arguments: Sequence[str]) -> int:
    """Run the chosen releases one after the other; return the exit code.

    Raises:
        VersionsError: a release or a subject is not known.
    """
    parser = argparse.ArgumentParser(prog="python -m harness.versions")
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    parser.add_argument("--subject", action="append", default=[])
    parser.add_argument("--pick", type=int, metavar="NUMBER")
    chosen = parser.parse_args(arguments)
    _check(chosen.releases, RELEASES)
    _check(chosen.subject, [trial.subject for trial in TRIALS])
    trials = [trial for trial in TRIALS if trial.subject in (chosen.subject or [trial.subject])]
    releases = chosen.releases or [one for one in RELEASES if Parts.of(one).is_here()]
    if not chosen.releases and (missing := sorted({*RELEASES} - {*releases})):
        sys.stdout.write(f"== not tried, no such Python or Java is here: {', '.join(missing)} ==\n")
    if chosen.pick is not None:
        releases, trials = picked(chosen.pick, releases, trials)
        sys.stdout.write(
            f'== RELEASE={releases[0]} SUBJECT="{trials[0].subject}" repeats this ==\n'
        )
    failed, commit = [], tried_commit()
    for release in releases:
        sys.stdout.write(f"== PySpark {release} ==\n")
        sys.stdout.flush()
        day = datetime.now(UTC).date().isoformat()
        ends = tried(release, trials)
        record(release, ends, day, commit)
        failed += [f"{release} ({subject})" for subject, end in ends.items() if end == "failed"]
    sys.stdout.write(f"failed with PySpark: {', '.join(failed) or 'none'}\n")
    return 1 if failed else 0


def picked(
    number: int, releases: Sequence[str], trials: Sequence[Trial]
) -> tuple[list[str], list[Trial]]:
    """Return one release and one trial: all pairs come in turn as the number grows."""
    pairs = [(release, trial) for release in releases for trial in trials]
    release, trial = pairs[number % len(pairs)]
    return [release], [trial]


def _check(given: Sequence[str], known: Sequence[str]) -> None:
    if unknown := sorted({*given} - {*known}):
        raise VersionsError(f"{', '.join(unknown)}: not one of {', '.join(known)}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (VersionsError, UnmadeError) as error:
        sys.exit(f"error: {error}")
