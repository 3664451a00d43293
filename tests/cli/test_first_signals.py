"""A signal that comes while `twophase run` is still being imported stops it cleanly.

The job file is a pipe that nobody writes to, so that the command goes no further.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from harness.job_command import plain_environment

ROOT = Path(__file__).parents[2]
SAID = "Stopped by a signal before the job had begun: nothing was written."
TIMEOUT_S = 60
PROGRAM = """
import runpy, signal, sys
wanted, numbers = sys.argv.pop(1), map(int, sys.argv.pop(1).split(","))
is_torn = sys.argv.pop(1) == "torn"
class Finder:
    def find_spec(self, name, *_):
        if name == wanted:
            sys.meta_path.remove(self)
            try:
                for number in numbers:
                    signal.raise_signal(number)
            except BaseException as error:
                if is_torn:  # as a library may be that is in the middle of its own imports
                    raise ImportError(name) from error
                raise
sys.meta_path.insert(0, Finder())
runpy.run_module("twophase.cli", run_name="__main__", alter_sys=True)
"""
IN_THE_IMPORTS = {
    "twophase.cli.main": signal.SIGINT,
    "logging": signal.SIGTERM,
    "click": signal.SIGINT,
    "rich.console": signal.SIGTERM,
    "twophase.cli.signals": signal.SIGINT,
    "twophase.cli.run": signal.SIGTERM,
    "pydantic": signal.SIGINT,
    "yaml": signal.SIGTERM,
}
AFTER_THE_HANDLERS = ("twophase.cli.run", "pydantic", "yaml")
"""A signal there is an exception."""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "job.yaml")
    return tmp_path / "job.yaml"


def run(
    job_file: Path,
    module: str,
    *numbers: int,
    torn: bool = False,
    more: tuple[str, ...] = (),
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, str]:
    """Run the command; send it signals when it is about to import a module.

    Args:
        job_file: the job's.
        module: the one.
        numbers: of the signals.
        torn: whether the import turns what a signal raises into an error of its own.
        more: options of the command.
        timeout_s: for all of it.
    """
    sent = ",".join(str(int(number)) for number in numbers)
    program = [sys.executable, "-c", PROGRAM, module, sent, "torn" if torn else "whole"]
    words = [*program, "run", str(job_file), *more]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(("module", "number"), IN_THE_IMPORTS.items())
def test_a_signal_in_the_middle_of_the_imports_is_a_clean_stop(
    job_file: Path, module: str, number: signal.Signals
) -> None:
    assert run(job_file, module, number) == (0, f"{SAID}\n")


@pytest.mark.parametrize("module", AFTER_THE_HANDLERS)
def test_what_a_library_makes_of_a_signal_in_its_imports_is_no_failure(
    job_file: Path, module: str
) -> None:
    assert run(job_file, module, signal.SIGTERM, torn=True) == (0, f"{SAID}\n")


def test_it_is_told_as_json_too(job_file: Path) -> None:
    code, out = run(job_file, "click", signal.SIGTERM, more=("--log-format", "json"))
    assert (code, json.loads(out)["message"]) == (0, SAID)


@pytest.mark.parametrize("module", ["click", "twophase.cli.main"])
def test_a_second_signal_there_ends_the_process(job_file: Path, module: str) -> None:
    assert run(job_file, module, signal.SIGINT, signal.SIGTERM) == (128 + signal.SIGTERM, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_takes_both_signals_before_anything_else(
    job_file: Path, number: signal.Signals
) -> None:
    """As another process sends them, at the first moment at which it can be seen that they are
    kept.
    """
    wanted = (1 << (signal.SIGINT - 1)) | (1 << (signal.SIGTERM - 1))
    words = [sys.executable, "-m", "twophase.cli", "run", str(job_file)]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        caught = 0
        while caught & wanted != wanted:
            assert process.poll() is None, process.communicate()
            status = Path(f"/proc/{process.pid}/status").read_text()
            caught = int(status.partition("SigCgt:\t")[2].partition("\n")[0], 16)
        process.send_signal(number)
        assert process.communicate(timeout=TIMEOUT_S) == (f"{SAID}\n", "")
        assert process.returncode == 0


def test_the_script_begins_there() -> None:
    given = ConfigParser()
    given.read(ROOT / "setup.cfg")
    scripts = given["options.entry_points"]["console_scripts"].split()
    assert scripts == ["twophase", "=", "twophase.cli.__main__:main"]


def test_little_is_imported_before_that() -> None:
    program = (
        "import sys; before = {*sys.modules}; import twophase.cli.__main__; "
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"logging", "click", "rich", "re", "threading"}.isdisjoint(done.stdout.split())
