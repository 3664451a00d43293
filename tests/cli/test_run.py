"""`twophase run` as users run it: a process, a job file, signals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import yaml

from harness import delta_lake
from harness.job_command import (
    CONF,
    TIMEOUT_S,
    Command,
    two_batches,
    wait_for_a_commit,
    without_end,
)
from harness.selection import representatives
from twophase.spark.startup.java import pyspark_jars
from twophase.testing.services.delta import delta_jars

pytestmark = [pytest.mark.spark, pytest.mark.part("cli")]


@pytest.fixture
def left() -> Iterator[ExitStack]:
    """Kills what a failed test leaves running."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def files(tmp_path: Path, left: ExitStack) -> Command:
    return two_batches(tmp_path, left)


@pytest.fixture
def endless(tmp_path: Path, left: ExitStack) -> Command:
    return without_end(tmp_path, left)


@pytest.mark.proof
def test_a_driver_killed_between_decision_and_commit_loses_and_repeats_nothing(
    files: Command,
) -> None:
    code, _, err = files.run("--available-now", TWOPHASE_FAILPOINTS="C12=kill")
    assert (code, files.ids()) == (-signal.SIGKILL, []), err
    assert [(entry["state"], entry["pending_commits"]) for entry in files.checkpoints()] == [
        ("decided", {"facts": 1})
    ]

    code, out, err = files.run("--available-now")
    assert (code, files.ids(), err) == (0, list(range(20)), "")
    assert "generation 2 recovered" in out
    assert "1 checkpoint committed again" in out
    assert "orders: stopped after" in out.splitlines()[-1]
    assert [entry["state"] for entry in files.checkpoints()][-1] == "committed"


@pytest.mark.proof
def test_sigterm_stops_the_job_cleanly(endless: Command) -> None:
    process = endless.start()
    wait_for_a_commit(process)
    process.terminate()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    assert "orders: stopped after" in out.splitlines()[-1]
    assert endless.ids() == list(range(len(endless.ids())))


@pytest.mark.proof
def test_a_reader_of_the_progress_that_goes_away_neither_stops_nor_hangs_the_job(
    endless: Command,
) -> None:
    """`twophase run job.yaml --progress plain | head -3`."""
    process = endless.start()
    wait_for_a_commit(process)
    assert process.stdout is not None
    process.stdout.close()
    before, deadline_s = len(endless.ids()), time.monotonic() + TIMEOUT_S
    while len(endless.ids()) < before + 30:
        assert time.monotonic() < deadline_s, "the job does not go on"
        assert process.poll() is None, "the job has ended"
        time.sleep(0.1)
    process.terminate()
    assert process.stderr is not None
    err = process.stderr.read()
    assert (process.wait(TIMEOUT_S), err) == (0, "")
    assert endless.ids() == list(range(len(endless.ids())))


@pytest.mark.proof
@pytest.mark.parametrize("options", [(), ("--log-format", "json"), ("--progress", "live")])
def test_a_job_whose_lines_find_a_full_disk_goes_on_to_its_end(
    files: Command, options: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as files.output:
        assert files.start("--available-now", *options).wait(TIMEOUT_S) == 0
    assert files.ids() == list(range(20))


def signal_to(receivers: str, pid: int, number: signal.Signals) -> list[psutil.Process]:
    """Signal a process and others as `timeout` or systemd do; return all of its family."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    if receivers == "process group":
        os.killpg(pid, number)
    else:
        process, *others = family
        for member in others:
            with suppress(psutil.NoSuchProcess):  # it ended with one before it
                member.send_signal(number)
        # Whoever is killed by it has died before the job stops.
        psutil.wait_procs(others, timeout=1)
        process.send_signal(number)
    return family


@pytest.mark.parametrize(
    "to", representatives(["process group", "every process"], {"process group"})
)
def test_sigterm_to_all_of_us_stops_the_job_as_cleanly(endless: Command, to: str) -> None:
    """`timeout` signals the group, systemd by default every process of the unit."""
    process = endless.start()
    wait_for_a_commit(process)
    family = signal_to(to, process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    assert "orders: stopped after" in out.splitlines()[-1]
    assert endless.ids() == list(range(len(endless.ids())))
    assert psutil.wait_procs(family, timeout=TIMEOUT_S)[1] == []


@pytest.mark.proof
@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGINT, "process group"),
        (signal.SIGTERM, "process group"),
        (signal.SIGTERM, "every process"),
    ],
)
def test_a_signal_in_the_middle_of_a_checkpoint_says_what_became_of_it(
    files: Command, number: signal.Signals, to: str
) -> None:
    """Ctrl-C signals the group, systemd every process: also a worker in the middle of a task."""
    held = files.root / "points"
    process = files.start(
        TWOPHASE_FAILPOINTS="C03=delay:3600000", TWOPHASE_FAILPOINTS_LOG=str(held)
    )
    deadline_s = time.monotonic() + TIMEOUT_S
    while not held.exists():
        assert time.monotonic() < deadline_s, "no task has pre-committed"
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    signal_to(to, process.pid, number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err, files.ids()) == (0, "", [])
    reported = (
        "checkpoint 0 (1.1) was not decided before the stop: "
        "none of its rows are visible, and the next start writes them"
    )
    assert reported in out
    assert "declined" not in out
    assert "orders: stopped after" in out.splitlines()[-1]

    code, _, err = files.run("--available-now")
    assert (code, files.ids(), err) == (0, list(range(20)), "")


@pytest.mark.proof
def test_nothing_of_spark_outlives_a_killed_driver(endless: Command) -> None:
    process = endless.start()
    wait_for_a_commit(process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    assert psutil.wait_procs(family, timeout=TIMEOUT_S)[1] == []


@pytest.mark.proof
def test_the_loss_of_spark_ends_the_command(endless: Command) -> None:
    process = endless.start()
    wait_for_a_commit(process)
    (java,) = [child for child in psutil.Process(process.pid).children() if "java" in child.name()]
    java.kill()
    err = process.communicate(timeout=TIMEOUT_S)[1]
    assert process.returncode == 1
    assert "its Spark application has ended" in err
    assert "[SparkLostError]" in err
    assert "Next: start the job again" in err


def test_a_target_that_is_not_there_is_reported_before_spark_starts(files: Command) -> None:
    """There is no Java here: a start of Spark would be another error."""
    job = yaml.safe_load((files.root / "job.yaml").read_text())
    options = {
        "url": "mysql://app@127.0.0.1:1/shop",
        "table": "orders",
        "password_env": "SHOP_PASSWORD",
        "tls": "off",
    }
    job["sinks"]["shop"] = {"type": "mysql", "options": options}
    (files.root / "job.yaml").write_text(yaml.safe_dump(job))
    code, _, err = files.run(SHOP_PASSWORD="secret", JAVA_HOME="/nowhere", PATH="/nowhere")
    assert code == 1
    assert "127.0.0.1:1" in err
    assert "[TargetUnreachableError]" in err
    assert not (files.root / "job").exists()


def test_a_folder_of_a_newer_version_is_refused_and_left_as_it_is(files: Command) -> None:
    log = files.root / "job" / "log"
    log.mkdir(parents=True, mode=0o700)
    record = log / "0000000001"
    record.write_bytes(b"twophase/2 FENCE crc32c 00c0ffee\n{}")
    code, _, err = files.run("--available-now")
    assert (code, files.ids()) == (3, []), err
    assert (
        "log/0000000001 was written by a newer twophase (format 2; this one reads up to 1). "
        "[NewerFormatError]"
    ) in err
    assert "No data is lost: the file was left unchanged." in err
    assert "Next: start the newer version again." in err
    assert "Traceback" not in err
    assert [path.name for path in log.iterdir()] == ["0000000001"]
    assert record.read_bytes() == b"twophase/2 FENCE crc32c 00c0ffee\n{}"


@pytest.mark.proof
def test_delta_that_is_installed_with_spark_is_not_fetched(tmp_path: Path, left: ExitStack) -> None:
    """Ivy would make its folder."""
    installed = pyspark_jars()
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for path in (path for path in installed.parent.iterdir() if path != installed):
        (home / path.name).symlink_to(path)
    for jar in [*installed.iterdir(), *delta_jars()]:
        (home / "jars" / jar.name).symlink_to(jar)
    lake = {"type": "delta", "options": {"path": str(tmp_path / "lake"), "create": True}}
    conf = {**CONF, "spark.jars.ivy": str(tmp_path / "ivy")}
    command = two_batches(
        tmp_path, left, sinks={"lake": lake}, spark={"master": "local[2]", "conf": conf}
    )
    code, out, err = command.run(
        "--available-now", SPARK_HOME=str(home), TWOPHASE_QUICK_START="off"
    )
    assert (code, err) == (0, ""), err
    assert "looks for" not in out
    assert not (tmp_path / "ivy").exists()
    assert delta_lake.count(tmp_path / "lake") == 20


@pytest.mark.proof
def test_a_half_filled_maven_folder_of_the_user_is_not_looked_into(
    tmp_path: Path, left: ExitStack
) -> None:
    """Maven has left a description there without its jar."""
    entry = tmp_path / "home" / ".m2" / "repository" / "javax" / "inject" / "javax.inject" / "1"
    entry.mkdir(parents=True)
    (entry / "javax.inject-1.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>javax.inject</groupId>"
        "<artifactId>javax.inject</artifactId><version>1</version></project>"
    )
    conf = {
        **CONF,
        "spark.jars.packages": "javax.inject:javax.inject:1",
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.driver.extraJavaOptions": f"-Duser.home={tmp_path / 'home'}",
    }
    command = two_batches(tmp_path, left, spark={"master": "local[2]", "conf": conf})
    cache = str(tmp_path / "cache")
    code, out, err = command.run(
        "--available-now", TWOPHASE_CACHE=cache, TWOPHASE_QUICK_START="off"
    )
    found = "Spark resolves javax.inject:javax.inject:1; the first start downloads it\n"
    assert (code, err) == (0, found), out
    assert "loading settings" not in out
    assert [*(tmp_path / "ivy" / "jars").glob("*javax.inject-1.jar")]
    assert command.ids() == list(range(20))


def test_spark_that_does_not_start_is_a_twophase_error_and_both_remedies_help(
    files: Command,
) -> None:
    right = (files.root / "job.yaml").read_text()
    wrong = yaml.safe_load(right)
    wrong["spark"]["conf"]["spark.driver.memory"] = "1x"
    (files.root / "job.yaml").write_text(yaml.safe_dump(wrong))
    no_java = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    for environment in ({}, no_java):
        code, _, err = files.run("--available-now", **environment)
        assert code == 2, err
        assert "Error: Spark failed to start: " in err
        assert "[PreflightError]" in err
        assert "Next: check that Java 17 or 21 is on the PATH, and the spark section of" in err
        (files.root / "job.yaml").write_text(right)
    code, _, err = files.run("--available-now")
    assert (code, files.ids()) == (0, [*range(20)]), err
