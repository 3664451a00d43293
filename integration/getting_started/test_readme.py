"""The quick start of README.md, the job file of docs/tutorial.md, and what docs/kafka.md has in
their place with PySpark 4.1, run as they stand: only addresses and folders are put in.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.jars import CONNECTORS
from harness.spark_features import needs
from integration.mysql.scenario import Scenario
from twophase.spark.startup.cache import cache_root
from twophase.spark_versions import LIMITED_READS, SPARK
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.services.spark_start import spark_environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
KAFKA = (ROOT / "docs" / "kafka.md").read_text()
TIMEOUT_S = 240
pytestmark = pytest.mark.part("kafka")
READS_ITSELF = needs(LIMITED_READS)

UP = "python -m twophase.testing.services up kafka mysql"


def block(page: str, language: str) -> str:
    return page.partition(f"```{language}\n")[2].partition("```")[0]


def put_in(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is in the quick start {text.count(old)} times"
        text = text.replace(old, new)
    return text


def run(command: list[str], scenario: Scenario) -> None:
    server = scenario.servers["facts"]
    environment = os.environ | {
        "SHOP_PASSWORD": server.password,
        "TWOPHASE_KAFKA_BOOTSTRAP_SERVERS": str(scenario.settings["servers"]),
        "TWOPHASE_MYSQL_URL": server.url("").rstrip("/"),
    }
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "refused" not in done.stderr


@pytest.fixture
def scenario(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> Scenario:
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path)
    scenario.produce(500)
    return scenario


@READS_ITSELF
@pytest.mark.proof
def test_the_python(scenario: Scenario) -> None:
    places = {
        '"/shop"': f'"/{scenario.databases["facts"]}"',
        '"subscribe", "orders"': f'"subscribe", "{scenario.topic}"',
        "/tmp/orders-job": str(scenario.scratch / "chk"),
    }
    script = scenario.scratch / "job.py"
    script.write_text(put_in(block(README, "python"), places))
    run([str(script)], scenario)
    scenario.verify()


@READS_ITSELF
@pytest.mark.proof
def test_the_job_file(scenario: Scenario) -> None:
    places = {
        "broker:9092": scenario.settings["servers"],
        "mysql://app@db/shop": scenario.servers["facts"].url(scenario.databases["facts"]),
        "/tmp/orders-job": str(scenario.scratch / "chk"),
        "subscribe: orders": f"subscribe: {scenario.topic}",
    }
    script = scenario.scratch / "job.yaml"
    script.write_text(put_in(block(TUTORIAL, "yaml"), places))
    run(["-m", "twophase.cli", "run", "--available-now", str(script)], scenario)
    scenario.verify()


class Up:
    """The servers of the quick start, and the lines that a shell is to get."""

    def __init__(self) -> None:
        assert [page.count(f"\n{UP}\n") for page in (README, TUTORIAL)] == [1, 1]
        command = [sys.executable, *UP.split()[1:]]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("# Up"):
                break
        self.text = "".join(lines)

    def shown(self, option: str) -> str:
        (found,) = re.findall(rf"\b{re.escape(option)} is (\S+)$", self.text, flags=re.MULTILINE)
        return str(found)

    def shell(self, command: str, folder: Path) -> str:
        """Run a line in a shell that has got the printed ones."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
        script = ["bash", "-eu", "-o", "pipefail", "-c", self.text + command]
        done = subprocess.run(
            script,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        assert "refused" not in done.stderr
        return done.stdout

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(TIMEOUT_S) == 0


@pytest.fixture
def up() -> Iterator[Up]:
    servers = Up()
    yield servers
    servers.stop()


def the_rows(up: Up, folder: Path) -> list[list[str]]:
    """The rows, as the page has a reader look at them."""
    (line,) = re.findall(r"^python .*\.services sql \"SELECT id.*$", TUTORIAL, flags=re.MULTILINE)
    head, *rows = up.shell(line, folder).splitlines()
    assert head.split() == ["id", "customer", "amount"]
    return [row.split() for row in rows]


def echo(page: str) -> str:
    """The line of a page that writes a record."""
    (line,) = re.findall(r"^echo .*$", page, flags=re.MULTILINE)
    return str(line)


def with_spark_s_source(language: str) -> str:
    """The program or the job file of the page on Kafka.

    With PySpark 4.1 it is as it stands; another version has another connector.
    """
    text = block(KAFKA.partition("### With PySpark 4.1")[2], language)
    return put_in(text, {f'{CONNECTORS[4, 1]}"': f'{CONNECTORS[SPARK]}"'})


BY_SPARK = pytest.mark.skipif(SPARK not in CONNECTORS, reason="no connector is known")


@pytest.mark.parametrize(
    "by_spark",
    [
        pytest.param(False, id="as it stands", marks=READS_ITSELF),
        pytest.param(True, id="with Spark's source", marks=[BY_SPARK, pytest.mark.proof]),
    ],
)
def test_the_job_file_with_nothing_but_the_servers_that_the_page_starts(
    up: Up, tmp_path: Path, by_spark: bool
) -> None:
    places = {
        "broker:9092": up.shown("kafka.bootstrap.servers"),
        "mysql://app@db/shop": up.shown("url"),
        "/tmp/orders-job": str(tmp_path / "chk"),
    }
    text = with_spark_s_source("yaml") if by_spark else block(TUTORIAL, "yaml")
    (tmp_path / "job.yaml").write_text(put_in(text, places))
    up.shell(echo(TUTORIAL), tmp_path)
    reported = up.shell(
        "python -m twophase.cli run --available-now --progress plain job.yaml", tmp_path
    )
    assert "committed: 1 row in " in reported
    assert the_rows(up, tmp_path) == [["1", "ann", "9.5"]]


@pytest.mark.proof
@pytest.mark.parametrize(
    "by_spark",
    [
        pytest.param(False, id="as it stands", marks=READS_ITSELF),
        pytest.param(True, id="with Spark's source", marks=BY_SPARK),
    ],
)
def test_the_python_with_nothing_but_the_servers_that_the_page_starts(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    if by_spark:  # Spark fetches as it does for a user, into a folder that later runs find
        fetched = {"spark.jars.ivy": str(cache_root() / "ivy-of-the-quick-start")}
        for name, value in spark_environment(fetched).items():
            monkeypatch.setenv(name, value)
    program = with_spark_s_source("python") if by_spark else block(README, "python")
    places = {"/tmp/orders-job": str(tmp_path / "chk")}
    (tmp_path / "job.py").write_text(put_in(program, places))
    up.shell(echo(README), tmp_path)
    out = up.shell("python job.py", tmp_path)
    assert re.search(
        r"^<Job 'orders' in .*: stopped, \d+ checkpoints? and 1 row committed>$", out, re.MULTILINE
    )
    assert the_rows(up, tmp_path) == [["1", "ann", "9.5"]]
