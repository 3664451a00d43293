"""The quick starts of README.md, run as they stand: only addresses, and where the input ends, are put in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.arena import Arena
from twophase.testing.services import KafkaService, MySqlService

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TIMEOUT_S = 240


def block(language: str) -> str:
    return README.partition(f"```{language}\n")[2].partition("```")[0]


def put_in(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is in the quick start {text.count(old)} times"
        text = text.replace(old, new)
    return text


def run(command: list[str], arena: Arena) -> None:
    environment = os.environ | {"SHOP_PASSWORD": arena.servers["facts"].password}
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


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> Arena:
    arena = Arena(kafka, {"facts": mysql}, tmp_path)
    arena.produce(500)
    return arena


def addresses(arena: Arena) -> dict[str, str]:
    url = arena.servers["facts"].url(arena.databases["facts"])
    return {
        "broker:9092": arena.settings["servers"],
        "mysql://app@db/shop": url,
        "/chk/orders": str(arena.scratch / "chk"),
    }


def test_the_python(arena: Arena) -> None:
    ends = {'processingTime="10 seconds"': "availableNow=True"}
    topic = {'"subscribe", "orders"': f'"subscribe", "{arena.topic}"'}
    script = arena.scratch / "job.py"
    script.write_text(put_in(block("python"), addresses(arena) | ends | topic))
    run([str(script)], arena)
    arena.verify()


def test_the_job_file(arena: Arena) -> None:
    script = arena.scratch / "job.yaml"
    script.write_text(put_in(block("yaml"), addresses(arena) | {"subscribe: orders": f"subscribe: {arena.topic}"}))
    run(["-m", "twophase.cli", "run", "--available-now", str(script)], arena)
    arena.verify()
