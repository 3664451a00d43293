"""The example with a partition for each day: run again, it has the orders of both runs once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def add_orders(folder: Path, name: str, orders: dict[int, tuple[str, float]]) -> None:
    folder.mkdir(exist_ok=True)
    rows = [
        {"id": number, "customer": "c", "amount": amount, "at": f"{day}T23:59:59.999999Z"}
        for number, (day, amount) in orders.items()
    ]
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def taken(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "examples.daily_orders.job", folder / "orders", folder / "lake"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("20")]


@pytest.mark.spark
def test_each_day_has_its_orders_once_when_the_job_is_run_again(tmp_path: Path) -> None:
    first, second = "2026-11-27", "2026-11-28"
    add_orders(tmp_path / "orders", "1.json", {1: (first, 10.0), 2: (second, 0.5)})
    assert taken(tmp_path) == [f"{first}: 1 orders, 10.00", f"{second}: 1 orders, 0.50"]
    add_orders(tmp_path / "orders", "2.json", {3: (first, 7.25)})
    assert taken(tmp_path) == [f"{first}: 2 orders, 17.25", f"{second}: 1 orders, 0.50"]
