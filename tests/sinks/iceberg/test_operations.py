"""What docs/operations.md says of the files in a table that no snapshot names, by the product's own
commands.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner

from harness.iceberg_harness import IcebergHarness
from harness.savepoint_world import killed
from tests.sinks.iceberg.others import FIELDS, ids_of, rows
from twophase.cli.main import main
from twophase.testing.plain_host import ListedRows, plain_engine

NAME = "orders"


def run(harness: IcebergHarness, folder: Path) -> None:
    """Run a job of two micro-batches to its end."""
    given = {"checkpointLocation": str(folder), "restart.strategy": "none"}
    batches = [pa.RecordBatch.from_pylist(rows(number), schema=FIELDS) for number in range(2)]
    listed = ListedRows([[batch] for batch in batches])
    engine = plain_engine(NAME, {"lake": harness.new_sink()}, listed, given)
    engine.start()
    assert engine.await_termination(120)


def shown(folder: Path) -> list[tuple[str, dict[str, int]]]:
    """State and pending commits of each checkpoint."""
    result = CliRunner().invoke(main, ["checkpoints", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["checkpoints"]
    return [(entry["state"], entry.get("pending_commits", {})) for entry in found]


def named(harness: IcebergHarness) -> dict[str, str]:
    """By data file, the checkpoint that the summary of its snapshot names."""
    table = harness.table()
    return {
        Path(entry.data_file.file_path).name: str(snapshot.summary["twophase.checkpoint"])
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if snapshot.summary and entry.snapshot_id == snapshot.snapshot_id
    }


def test_a_file_that_no_snapshot_names_is_of_a_decided_checkpoint_that_the_next_start_commits(
    harness: IcebergHarness, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    assert killed("D01@2", lambda: run(harness, folder))
    assert shown(folder) == [("committed", {}), ("decided", {"lake": 1})]
    assert [*named(harness).values()] == ["0"]
    [orphan] = {*harness.data_files()} - named(harness).keys()
    assert len(harness.staged()) == 1

    run(harness, folder)
    assert shown(folder) == [("subsumed", {}), ("committed", {})]
    assert named(harness)[orphan] == "1"
    assert harness.data_files() == sorted(named(harness))
    assert harness.staged() == []
    assert ids_of(harness) == [0, 1]
