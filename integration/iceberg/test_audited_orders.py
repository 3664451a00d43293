"""The example of write, audit, publish: main shows what passed the audit, and nothing else."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from harness.example import add_rows, run_example


def add_orders(folder: Path, name: str, amounts: dict[int, float]) -> None:
    rows = [
        {"id": number, "customer": "c", "amount": amount, "at": "2026-11-28T00:00:00Z"}
        for number, amount in amounts.items()
    ]
    add_rows(folder, name, rows)


def ran(folder: Path) -> CompletedProcess[str]:
    return run_example("audited_orders", folder / "orders", folder / "lake")


def ids(folder: Path, branch: str) -> list[int]:
    with closing(SqlCatalog("default", uri=f"sqlite:///{folder}/lake/catalog.db")) as catalog:
        table = catalog.load_table("shop.orders")
        head = table.snapshot_by_name(branch)
        assert head is not None
        return sorted(table.scan(snapshot_id=head.snapshot_id).to_arrow()["id"].to_pylist())


@pytest.mark.spark
@pytest.mark.part("files")
def test_orders_are_published_once_they_pass_the_audit(tmp_path: Path) -> None:
    add_orders(tmp_path / "orders", "1.json", {1: 10.0, 2: 0.5})
    done = ran(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Published: 2 orders." in done.stdout
    add_orders(tmp_path / "orders", "2.json", {3: -1.0, 4: 7.0})
    done = ran(tmp_path)
    assert done.returncode == 1
    assert "Not published, 1 orders are wrong: [3]" in done.stderr
    assert ids(tmp_path, "main") == [1, 2]
    assert ids(tmp_path, "audit") == [1, 2, 3, 4]
