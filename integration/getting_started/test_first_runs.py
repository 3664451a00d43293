"""The class archive as users meet it: the first run records it behind the job, later runs take it,
and its loss costs time only.

A first run has an empty cache folder and an environment without what `conftest.py` has set
for the other tests.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from harness.held_jobs import wait_until
from harness.job_command import TIMEOUT_S, Command, two_batches, wait_for_a_commit, without_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.part("cli"),
    pytest.mark.proof,
    pytest.mark.timeout(3600),
]

CACHE = "TWOPHASE_CACHE"
SET_BY_CONFTEST = (
    "PYSPARK_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_SUBMIT_OPTS",
    "TWOPHASE_PRELOAD",
)
RECORDER = "twophase.spark.startup.class_archive"
REHEARSAL = "twophase.spark.job.class_archive_rehearsal"
DUMPING = "-XX:ArchiveClassesAtExit"
WORKERS = "twophase.spark.startup.daemon"
LEAST_URGENT = 19


@pytest.fixture(scope="module", autouse=True)
def an_environment_as_users_have_it() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in SET_BY_CONFTEST:
            patch.delenv(name, raising=False)
        yield


class Cache:
    """A cache folder, and the processes that were started with it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def environment(self) -> dict[str, str]:
        return {CACHE: str(self.path)}

    def archives(self) -> list[Path]:
        return list(self.path.glob("spark-*-classes-*/classes.jsa"))

    def unfinished(self) -> list[Path]:
        return list(self.path.glob(".*.partial-*"))

    def content(self) -> Mapping[Path, int]:
        """Every path with the time of its last change."""
        return {path: path.stat().st_mtime_ns for path in self.path.rglob("*")}

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Those with a word in their command."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(CACHE) == str(self.path) and word in " ".join(
                    process.cmdline()
                ):
                    found.append(process)
            except psutil.Error:  # it has ended
                continue
        return found

    def wait_until_recorded(self) -> None:
        """Wait until nobody records any more."""
        while recording := self.processes():
            psutil.wait_procs(recording)

    def kill(self, word: str = "") -> None:
        for process in self.processes(word):
            with suppress(psutil.NoSuchProcess):  # it ended by itself, or with one killed before
                process.kill()


@pytest.fixture
def left() -> Iterator[ExitStack]:
    """Kills what a failed test leaves running."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cache(tmp_path: Path, left: ExitStack) -> Cache:
    """An empty one."""
    made = Cache(tmp_path / "cache")
    left.callback(made.kill)
    return made


@dataclass(frozen=True)
class FirstRun:
    """A first run of a job, and what it has left.

    Attributes:
        cache: with the archive.
        command: of the job.
        ended: its exit code and what it printed as errors.
        recorders: how urgent the processes were that recorded when it ended; by nice(2).
        temporary: the folder for temporary files that all had.
    """

    cache: Cache
    command: Command
    ended: tuple[int, str]
    recorders: list[int]
    temporary: Path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRun]:
    root = tmp_path_factory.mktemp("first")
    cache, temporary = Cache(root / "cache"), root / "temporary"
    temporary.mkdir()
    with ExitStack() as left:
        left.callback(cache.kill)
        command = job(root, left)
        code, _, err = command.run("--available-now", **cache.environment, TMPDIR=str(temporary))
        recorders = [process.nice() for process in cache.processes(RECORDER)]
        assert cache.archives() == []
        cache.wait_until_recorded()
        yield FirstRun(cache, command, (code, err), recorders, temporary)


@pytest.fixture
def recorded(first: FirstRun, cache: Cache) -> Cache:
    """As a first run has left it."""
    shutil.copytree(first.cache.path, cache.path)
    assert len(cache.archives()) == 1
    return cache


def job(root: Path, left: ExitStack, name: str = "job") -> Command:
    (root / name).mkdir()
    return two_batches(root / name, left)


def run_to_its_end(command: Command, cache: Cache, **environment: str) -> None:
    code, _, err = command.run("--available-now", **cache.environment, **environment)
    assert (code, err, command.ids()) == (0, "", list(range(20)))


def takes_the_archive(command: Command, cache: Cache) -> bool:
    """Run a job; whether its JVM has Spark's classes from the archive."""
    loaded = command.root / "loaded"
    run_to_its_end(
        command, cache, SPARK_SUBMIT_OPTS=shlex.join([f"-Xlog:class+load:file={loaded}"])
    )
    [line] = [
        line
        for line in loaded.read_text().splitlines()
        if " org.apache.spark.SparkContext source: " in line
    ]
    return line.endswith("shared objects file (top)")


def assert_recorded_once(cache: Cache) -> None:
    cache.wait_until_recorded()
    assert (len(cache.archives()), cache.unfinished()) == (1, [])


def test_the_first_run_does_not_wait_for_the_recording_which_leaves_the_archive_and_nothing_else(
    first: FirstRun,
) -> None:
    assert (first.ended, first.command.ids()) == ((0, ""), list(range(20)))
    assert first.recorders == [LEAST_URGENT]
    assert_recorded_once(first.cache)
    assert list(first.temporary.iterdir()) == []
    assert {path.name for path in first.command.root.iterdir()} == {
        "in",
        "facts",
        "job",
        "job.yaml",
    }


def test_the_next_run_takes_its_classes_from_the_archive_and_records_nothing(
    recorded: Cache, tmp_path: Path, left: ExitStack
) -> None:
    before = recorded.content()
    assert takes_the_archive(job(tmp_path, left), recorded)
    recorded.wait_until_recorded()
    assert recorded.content() == before


@pytest.mark.parametrize("by", ["environment", "job file"])
def test_switched_off_it_leaves_the_folder_empty(
    cache: Cache, tmp_path: Path, left: ExitStack, by: str
) -> None:
    command = job(tmp_path, left)
    if by == "job file":
        file = command.root / "job.yaml"
        content = yaml.safe_load(file.read_text())
        content["spark"]["quick_start"] = False
        file.write_text(yaml.safe_dump(content))
        run_to_its_end(command, cache)
    else:
        run_to_its_end(command, cache, TWOPHASE_QUICK_START="0")
    assert cache.processes(RECORDER) == []
    cache.wait_until_recorded()  # Spark's own JVM may end a moment after the command
    assert dict(cache.content()) == {}


def test_an_archive_that_was_cut_is_not_used_and_a_new_one_is_begun(
    recorded: Cache, tmp_path: Path, left: ExitStack
) -> None:
    [archive] = recorded.archives()
    with archive.open("r+b") as file:
        file.truncate(archive.stat().st_size // 2)
    assert not takes_the_archive(job(tmp_path, left), recorded)
    assert recorded.processes(RECORDER) != []


def test_an_archive_that_was_overwritten_is_not_used_and_is_recorded_again(
    recorded: Cache, tmp_path: Path, left: ExitStack
) -> None:
    [archive] = recorded.archives()
    size = archive.stat().st_size
    with archive.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * (size // 4))
    assert not takes_the_archive(job(tmp_path, left, "damaged"), recorded)
    assert_recorded_once(recorded)
    assert takes_the_archive(job(tmp_path, left, "recorded"), recorded)


def test_the_recording_outlives_a_run_that_is_killed(
    cache: Cache, tmp_path: Path, left: ExitStack
) -> None:
    first_run_that_records(cache, tmp_path, left).kill()
    assert_recorded_once(cache)
    assert takes_the_archive(job(tmp_path, left), cache)


def test_the_folder_that_a_recorder_was_started_in_may_be_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        "import os, runpy, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); "
        "sys.argv[1:] = ['{}']; "
    )
    script += f"runpy.run_module({REHEARSAL!r}, run_name='__main__')"
    command = [sys.executable, "-c", script, str(gone)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        error = (
            process.stderr.read() if process.stderr else ""
        )  # its standard input stays open: it ends with its recorder
    assert (process.returncode, gone.exists()) == (0, False), error


def test_a_recorder_that_is_killed_takes_its_spark_with_it(
    cache: Cache, tmp_path: Path, left: ExitStack
) -> None:
    first_run_that_records(cache, tmp_path, left).kill()
    kill_the_recorder(cache)
    cache.wait_until_recorded()
    assert (cache.archives(), len(cache.unfinished())) == ([], 1)


def test_what_a_killed_recording_has_left_is_in_no_later_run_s_way(
    cache: Cache, tmp_path: Path, left: ExitStack
) -> None:
    first_run_that_records(cache, tmp_path, left).kill()
    cache.kill()
    cache.wait_until_recorded()
    assert (cache.archives(), len(cache.unfinished())) == ([], 1)
    assert not takes_the_archive(job(tmp_path, left), cache)
    assert_recorded_once(cache)


def first_run_that_records(cache: Cache, root: Path, left: ExitStack) -> subprocess.Popen[str]:
    """It runs on, and the classes are being noted."""
    (root / "killed").mkdir()
    process = without_end(root / "killed", left).start(**cache.environment)
    wait_for_a_commit(process)
    wait_until(lambda: bool(cache.processes(DUMPING)), "a JVM that notes its classes")
    return process


def kill_the_recorder(cache: Cache) -> None:
    """Its Spark ends with it; one that is held would not end by itself."""
    held = cache.processes(DUMPING)
    for process in held:
        process.suspend()
    cache.kill(RECORDER)
    wait_until(lambda: not cache.processes(REHEARSAL), "the rehearsal to end with its recorder")
    for process in held:
        process.resume()


def test_two_first_runs_at_once_record_one_archive(
    cache: Cache, tmp_path: Path, left: ExitStack
) -> None:
    commands = [job(tmp_path, left, name) for name in ("one", "two")]
    runs = [command.start("--available-now", **cache.environment) for command in commands]
    for process, command in zip(runs, commands, strict=True):
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err, command.ids()) == (0, "", list(range(20)))
    assert_recorded_once(cache)


def test_the_folder_may_be_deleted_under_a_running_job(
    recorded: Cache, tmp_path: Path, left: ExitStack
) -> None:
    """What the workers' Python is run by lies in it: when Spark starts one, it is made again."""
    (tmp_path / "endless").mkdir()
    endless = without_end(tmp_path / "endless", left)
    process = endless.start(**recorded.environment)
    wait_for_a_commit(process)
    wait_for_a_commit(process)  # by the first one it was found that nothing has to be recorded
    shutil.rmtree(recorded.path)
    recorded.kill(WORKERS)
    wait_for_a_commit_after_a_restart(process)
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, endless.ids()) == (0, list(range(len(endless.ids()))))

    run_to_its_end(job(tmp_path, left), recorded)
    assert recorded.processes(RECORDER) != []


def wait_for_a_commit_after_a_restart(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    restarts = 0
    for line in process.stdout:
        restarts += ": restart " in line
        if restarts and " committed: 10 rows" in line:
            return
        assert restarts < 3, line
    raise AssertionError(process.communicate()[1])
