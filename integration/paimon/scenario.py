"""A plain job with a target that is a Paimon table, partitioned by `kafka_partition`, beside a
table of another application. Read by pypaimon without the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness import checker, order_files
from integration.without_spark.scenario import Scenario
from integration.without_spark.targets import CANARY, CANARY_ROWS, Pieces, Target
from twophase.testing.services.access import SqlAccess


class PaimonScenario(Scenario):
    """See `Scenario`; its targets may be Paimon tables."""

    def new_target(self, kind: str, servers: Mapping[str, SqlAccess], brokers: str) -> Target:
        """See `Scenario.new_target`."""
        if kind == "paimon":
            return PaimonTarget(self.scratch)
        return super().new_target(kind, servers, brokers)


class PaimonTarget:
    """One table.

    Args:
        scratch: a folder for the warehouse.
    """

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "lake"
        self.folder.mkdir()
        rows = [{"id": number, "word": word} for number, word in CANARY_ROWS]
        found = pa.Table.from_pylist(rows)
        catalog = self._catalog()
        catalog.create_database("shop", False)
        schema = import_module("pypaimon").Schema.from_pyarrow_schema(found.schema)
        catalog.create_table(f"shop.{CANARY}", schema, False)
        builder = catalog.get_table(f"shop.{CANARY}").new_batch_write_builder()
        with closing(builder.new_write()) as write, closing(builder.new_commit()) as commit:
            write.write_arrow(found)
            commit.commit(write.prepare_commit())

    def sink(self) -> dict[str, Any]:
        return {
            "type": "paimon",
            "warehouse": str(self.folder),
            "table": "shop.orders",
            "create": True,
            "partition_by": ["kafka_partition"],
        }

    def pieces(self, lineage: str | None) -> Pieces:
        areas = self.folder.glob("**/_twophase/*")
        staged = [Path(path) for area in areas for path in order_files.staged(area)]
        prepared = [path for path in staged if (path / "manifest").exists()]
        return Pieces(len(prepared), len(staged) - len(prepared), len(self.rows()))

    def rows(self) -> checker.Records:
        if not (self.folder / "shop.db" / "orders" / "schema").exists():
            return order_files.records([])
        return order_files.records(self._read("orders"))

    def check_canary(self) -> None:
        found = [(row["id"], row["word"]) for row in self._read(CANARY)]
        assert sorted(found) == CANARY_ROWS

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, table: str) -> list[dict[str, Any]]:
        builder = self._catalog().get_table(f"shop.{table}").new_read_builder()
        return list(builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist())

    def _catalog(self) -> Any:
        factory = import_module("pypaimon").CatalogFactory
        return factory.create({"warehouse": str(self.folder)})
