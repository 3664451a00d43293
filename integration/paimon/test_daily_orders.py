"""The example with a partition for each day: run again, it has the orders of both runs once."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.example import add_rows, run_example


def add_orders(folder: Path, name: str, orders: dict[int, tuple[str, float]]) -> None:
    rows = [
        {"id": number, "customer": "c", "amount": amount, "at": f"{day}T23:59:59.999999Z"}
        for number, (day, amount) in orders.items()
    ]
    add_rows(folder, name, rows)


def taken(folder: Path) -> list[str]:
    done = run_example("daily_orders", folder / "orders", folder / "lake")
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("20")]


@pytest.mark.spark
def test_each_day_has_its_orders_once_when_the_job_is_run_again(tmp_path: Path) -> None:
    first, second = "2026-11-27", "2026-11-28"
    add_orders(tmp_path / "orders", "1.json", {1: (first, 10.0), 2: (second, 0.5)})
    assert taken(tmp_path) == [f"{first}: 1 orders, 10.00", f"{second}: 1 orders, 0.50"]
    add_orders(tmp_path / "orders", "2.json", {3: (first, 7.25)})
    assert taken(tmp_path) == [f"{first}: 2 orders, 17.25", f"{second}: 1 orders, 0.50"]
