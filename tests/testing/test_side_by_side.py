"""Services are fetched side by side: one that fails is named and stops no other, and whatever ends
a fetch leaves a whole cache and no process.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.held_jobs import wait_until
from twophase.spark.startup.cache import CACHE_VARIABLE
from twophase.testing.services.__main__ import _chains
from twophase.testing.services.maven import SETTINGS_VARIABLE
from twophase.testing.sessions import kill, session_of

pytestmark = pytest.mark.part("services")

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
PAIRS = (("Fetching a", "Fetching b"), ("Fetching b", "Fetching a"))
HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
from twophase.errors import ServiceError
from twophase.spark.startup import class_archive
from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.side_by_side import Task, run_side_by_side

here = Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.01)

def meet(own, other):
    def run():
        with show_progress(f"Fetching {own}") as progress:
            progress.update("on the way")
            (here / own).touch()
            wait_for(other)
    return Task(own, run)

def entry(name, fill=lambda folder: None):
    def build(folder):
        with (here / "built").open("a") as log:
            log.write(name + "\\n")
        (folder / "half").touch()
        fill(folder)
    return Task(name, lambda: cached(name, build))

def fail():
    raise ServiceError("no network", remedy="mend it.")

def main(*chains):
    failed = run_side_by_side(chains)
    print(failed)
    sys.exit(1 if failed else 0)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        kill(session_of(process.pid))
        process.communicate(timeout=TIMEOUT_S)


def begin(begun: list[subprocess.Popen[str]], folder: Path, text: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + text, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    begun.append(process)
    return process


def entries(cache: Path) -> list[str]:
    """The folders of the cache, whole or not."""
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def test_all_run_at_once_and_each_prints_one_plain_line_when_it_is_done(
    tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    process = begin(begun, tmp_path, "main([meet('a', 'b')], [meet('b', 'a')])")
    out, printed = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, "{}\n")
    lines = sorted(line.partition(" in ")[0] for line in printed.splitlines())
    assert lines == ["Fetching a: done", "Fetching b: done"]


def test_on_a_terminal_one_live_line_shows_all_that_run(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    text = "main([meet('a', 'seen')], [meet('b', 'seen')])"
    with subprocess.Popen(
        [sys.executable, "-c", HEAD + text, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ):
        os.close(theirs)
        printed = ""
        while chunk := _read(ours):
            printed += chunk
            if any(f"{one}: on the way · {other}: on the way" in printed for one, other in PAIRS):
                (tmp_path / "seen").touch()
    os.close(ours)
    assert printed.count("done in") == 2


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # EIO: nobody has its other end any more
        return ""


def test_one_that_fails_is_named_ends_its_chain_and_stops_no_other(
    tmp_path: Path, cache: Path, begun: list[subprocess.Popen[str]]
) -> None:
    text = """
def fail_first():
    (here / "failed").touch()
    fail()
main(
    [Task("broken", fail_first), entry("after-it")],
    [entry("well", lambda _: wait_for("failed")), entry("after-well")],
)
"""
    process = begin(begun, tmp_path, text)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert out.startswith("{'broken': 'no network")
    assert "mend it." in out
    assert entries(cache) == ["after-well", "well"]


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "exit code -9"),
        ("subprocess.run(['false'], check=True)", "returned non-zero exit status 1"),
        ("(here / 'absent').read_text()", "No such file or directory"),
    ],
)
def test_whatever_ends_a_fetch_is_an_error_that_names_it(
    tmp_path: Path, begun: list[subprocess.Popen[str]], cause: str, words: str
) -> None:
    process = begin(begun, tmp_path, f"main([Task('broken', lambda: {cause})], [entry('well')])")
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert out.startswith("{'broken': ")
    assert words in out


WAITING = {
    "a program": "subprocess.run(['sh', '-c', 'touch $0; sleep 600', note])",
    "a program that ignores the signal": (
        "subprocess.run(['sh', '-c', 'trap \"\" INT; touch $0; exec sleep 600', note])"
    ),
    "a recording": (
        "class_archive._run(['sh', '-c', 'sleep 600 & touch $0; wait', note], os.environ, None)"
    ),
    "the lock of another": "[Path(note).touch(), cached('held', lambda folder: None)]",
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fill", WAITING.values(), ids=WAITING.keys())
def test_ctrl_c_ends_all_and_leaves_neither_a_half_entry_nor_a_process(
    tmp_path: Path,
    cache: Path,
    begun: list[subprocess.Popen[str]],
    fill: str,
    number: signal.Signals,
) -> None:
    held = begin(
        begun, tmp_path, "cached('held', lambda _: [(here / 'holds').touch(), wait_for('x')])"
    )
    wait_until(lambda: (tmp_path / "holds").exists(), "the lock is held")
    text = f"""
def waiting(name):
    note = str(here / f"{{name}}-waits")
    return entry(name, lambda _: {fill})
main([entry("whole"), waiting("a")], [waiting("b")])
"""
    process = begin(begun, tmp_path, text)
    wait_until(lambda: len(list(tmp_path.glob("?-waits"))) == 2, "both wait")
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    assert not psutil.wait_procs(started, TIMEOUT_S)[1]
    assert held.poll() is None
    assert [name for name in entries(cache) if ".held." not in name] == ["whole"]


def test_the_processes_of_a_killed_fetch_end_too(
    tmp_path: Path, cache: Path, begun: list[subprocess.Popen[str]]
) -> None:
    text = """
def go_on(folder):
    with show_progress("Fetching") as progress:
        while True:
            progress.update("more")
            (here / "waits").touch()
            time.sleep(0.01)
main([entry("a", go_on)], [entry("b", go_on)])
"""
    process = begin(begun, tmp_path, text)
    wait_until(lambda: len(entries(cache)) == 2 and (tmp_path / "waits").exists(), "both run")
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert len(started) == 2
    assert not psutil.wait_procs(started, TIMEOUT_S)[1]
    assert entries(cache) == []


def test_two_fetches_at_once_build_each_entry_once(
    tmp_path: Path, cache: Path, begun: list[subprocess.Popen[str]]
) -> None:
    text = "main([entry('a', lambda _: wait_for('go'))], [entry('b', lambda _: wait_for('go'))])"
    pair = [begin(begun, tmp_path, text) for _ in range(2)]
    known = [psutil.Process(process.pid) for process in pair]
    wait_until(lambda: all(len(one.children()) == 2 for one in known), "all four have begun")
    wait_until(lambda: len(entries(cache)) == 2, "both entries are being built")
    (tmp_path / "go").touch()
    assert [process.communicate(timeout=TIMEOUT_S)[0] for process in pair] == ["{}\n"] * 2
    assert sorted((tmp_path / "built").read_text().split()) == ["a", "b"]
    assert entries(cache) == ["a", "b"]


def test_the_command_names_each_service_that_failed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="empty"/><resolvers><filesystem name="empty">'
        f'<artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    done = subprocess.run(
        [sys.executable, "-m", "twophase.testing.services", "fetch", "kafka", "delta"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    for name in ("kafka", "delta"):
        assert f"{name} could not be fetched: Ivy could not fetch the jars" in done.stderr
    assert entries(cache) == []


@pytest.mark.parametrize(
    ("services", "record", "chains"),
    [
        (("spark", "kafka", "delta"), True, [["kafka", "kafka"], ["delta", "spark", "spark"]]),
        (("spark",), True, [["spark", "spark"]]),
        (("kafka", "mysql", "delta"), False, [["kafka"], ["mysql"], ["delta"]]),
    ],
)
def test_spark_is_recorded_with_the_delta_that_is_fetched_before(
    services: tuple[str, ...], record: bool, chains: list[list[str]]
) -> None:
    assert [[task.name for task in chain] for chain in _chains(services, record)] == chains
