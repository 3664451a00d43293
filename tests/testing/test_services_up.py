"""`python -m twophase.testing.services up`: servers to try things with, whose addresses are printed
as lines for a shell.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pymysql
import pytest
from kafka import KafkaAdminClient

pytestmark = [pytest.mark.server, pytest.mark.part("services")]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "twophase.testing.services", "up"]
TIMEOUT_S = 180


class Up:
    """The command, up.

    Args:
        names: of services.
        folder: where the servers put their data.
    """

    def __init__(self, names: list[str], folder: Path) -> None:
        # Servers that the environment names are somebody else's: this one starts its own.
        strangers = {
            "TWOPHASE_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "TWOPHASE_MYSQL_URL": "mysql://root@127.0.0.1:1",
        }
        self._process = subprocess.Popen(
            [*COMMAND, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | strangers | {"TMPDIR": str(folder)},
            start_new_session=True,
        )
        self.lines = [*self._read_until_up()]
        self.family = psutil.Process(self._process.pid).children(recursive=True)

    def _read_until_up(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line
            if line.startswith("# Up"):
                return
        raise AssertionError(self._process.communicate(timeout=TIMEOUT_S)[1])

    def exported(self) -> dict[str, str]:
        """The variables that a shell has after the lines were pasted into it."""
        script = "".join(self.lines) + "env -0"
        done = subprocess.run(
            ["bash", "-euc", script], capture_output=True, text=True, check=True, env={}
        )
        return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)

    def shown(self, what: str) -> str:
        """What a comment says of an option."""
        (found,) = re.findall(
            rf"^# .*\b{re.escape(what)} is (\S+)$", "".join(self.lines), flags=re.MULTILINE
        )
        return str(found)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for its end; its exit code, and what it has said at last."""
        output, errors = self._process.communicate(timeout=TIMEOUT_S)
        return self._process.returncode, output + errors

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(["kafka", "mysql"], tmp_path)
    yield started
    started.kill()


def nothing_is_left(up: Up, folder: Path) -> None:
    _, alive = psutil.wait_procs(up.family, timeout=TIMEOUT_S)
    assert not alive
    assert list(folder.iterdir()) == []


@pytest.mark.proof
def test_the_lines_lead_to_servers_with_what_the_quick_start_needs(up: Up, tmp_path: Path) -> None:
    exported = up.exported()
    assert up.shown("kafka.bootstrap.servers") == exported["TWOPHASE_KAFKA_BOOTSTRAP_SERVERS"]
    admin = KafkaAdminClient(bootstrap_servers=exported["TWOPHASE_KAFKA_BOOTSTRAP_SERVERS"])
    assert "orders" in admin.list_topics()
    admin.close()
    assert up.shown("url") == f"{exported['TWOPHASE_MYSQL_URL']}/shop"
    host, port = up.shown("url").partition("@")[2].removesuffix("/shop").split(":")
    password = exported["SHOP_PASSWORD"]
    with pymysql.connect(
        host=host, port=int(port), user="root", password=password, database="shop"
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("DESCRIBE orders")
        assert [(name, kind.partition("(")[0]) for name, kind, *_ in cursor.fetchall()] == [
            ("id", "bigint"),
            ("customer", "varchar"),
            ("amount", "double"),
            ("kafka_partition", "int"),
            ("kafka_offset", "bigint"),
        ]
    (line,) = [line for line in up.lines if ".services sql " in line]
    program, *words = shlex.split(line.partition("its rows: ")[2])
    assert program == "python"
    elsewhere = {key: value for key, value in os.environ.items() if "TWOPHASE_" not in key}
    refused = subprocess.run(
        [sys.executable, *words], env=elsewhere, capture_output=True, text=True, check=False
    )
    assert "Next: paste the lines that `python -m twophase.testing.services up`" in refused.stderr
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | exported,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["id", "customer", "amount", "kafka_partition", "kafka_offset"]
    up.signal(signal.SIGINT)
    assert up.end() == (0, "# Stopped, and their data removed.\n")
    nothing_is_left(up, tmp_path)


@pytest.mark.proof
def test_a_second_signal_does_not_disturb_the_stop(up: Up, tmp_path: Path) -> None:
    for _ in range(3):
        up.signal(signal.SIGTERM)
    assert up.end() == (0, "# Stopped, and their data removed.\n")
    nothing_is_left(up, tmp_path)


@pytest.mark.proof
def test_a_server_that_ends_by_itself_ends_the_command_and_the_others(
    up: Up, tmp_path: Path
) -> None:
    (server,) = [process for process in up.family if process.name() == "mysqld"]
    server.terminate()
    code, said = up.end()
    assert code == 1
    assert "Error: MySqlService ended by itself (0). The end of its log:" in said
    _, alive = psutil.wait_procs(up.family, timeout=TIMEOUT_S)
    assert not alive
    assert [path.name for path in tmp_path.glob("*/*")] == ["server.log"]


@pytest.mark.proof
def test_a_watchdog_that_is_gone_ends_the_command_which_can_be_run_again(tmp_path: Path) -> None:
    up = Up(["mysql"], tmp_path)
    again: Up | None = None
    try:
        [watchdog] = [one for one in up.family if "mysqld" not in one.name()]
        watchdog.kill()
        code, said = up.end()
        assert code == 1
        assert "watchdog of a server is gone, so all of them are stopped. Next: run this" in said
        again = Up(["mysql"], tmp_path)
        assert again.shown("url")
    finally:
        for one in filter(None, (up, again)):
            one.kill()


def test_a_name_of_no_service_is_refused_with_those_that_there_are() -> None:
    done = subprocess.run(
        [*COMMAND, "oracle"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "'oracle' is not one of 'kafka', 'mysql', 'mariadb'" in done.stderr
