"""Runs twophase's command on a job file as users do: in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import yaml
from click.testing import CliRunner

from harness.folder_sink import FolderTarget
from twophase.cli.main import main

TIMEOUT_S = 240
CONF = {
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
}


class Command:
    """A job file in a folder, run by the command.

    Args:
        root: the folder.
        left: kills processes that a failed test leaves running.
        source: the job file's source.
        **job: other entries of the job file.

    Attributes:
        output: what it writes to, pipes or a file.
    """

    def __init__(self, root: Path, left: ExitStack, source: dict[str, Any], **job: Any) -> None:
        self.root = root
        self.left = left
        self.output: int | IO[bytes] = subprocess.PIPE
        sink = {
            "type": "harness.folder_sink:FolderSink",
            "options": {"path": str(root / "facts")},
        }
        content = {
            "name": "orders",
            "spark": {"master": "local[2]", "conf": CONF},
            "source": source,
            "sinks": {"facts": sink},
            "options": {"checkpointLocation": str(root / "job"), "restart.delay": "50 ms"},
        }
        (root / "job.yaml").write_text(yaml.safe_dump({**content, **job}))

    def start(
        self, *options: str, command: Sequence[str] = ("run",), **environment: str
    ) -> subprocess.Popen[str]:
        """Start the command; `environment` is added to ours."""
        words = [
            sys.executable,
            "-m",
            "twophase.cli",
            *command,
            str(self.root / "job.yaml"),
            *options,
        ]
        process = subprocess.Popen(
            words,
            cwd=self.root,
            env={**plain_environment(), **environment},
            stdout=self.output,
            stderr=self.output,
            text=True,
            start_new_session=True,
        )
        self.left.callback(process.kill)
        return process

    def run(
        self, *options: str, command: Sequence[str] = ("run",), **environment: str
    ) -> tuple[int, str, str]:
        """Run it to its end; return exit code, standard output and error."""
        process = self.start(*options, command=command, **environment)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out, err

    def ids(self) -> list[int]:
        """Return the rows that readers of the target see."""
        return sorted(row["id"] for row in FolderTarget(self.root / "facts").rows())

    def checkpoints(self) -> list[dict[str, Any]]:
        """Return the content of the job's folder."""
        result = CliRunner().invoke(main, ["checkpoints", str(self.root / "job"), "--json"])
        return list(json.loads(result.stdout)["checkpoints"])


def two_batches(root: Path, left: ExitStack, **job: Any) -> Command:
    """Two micro-batches of ten rows, with `--available-now`."""
    folder = root / "in"
    folder.mkdir()
    for file in range(2):
        (folder / f"{file}.json").write_text(
            "".join(f'{{"id": {10 * file + step}}}\n' for step in range(10))
        )
    options = {"path": str(folder), "maxFilesPerTrigger": 1}
    return Command(root, left, {"format": "json", "schema": "id long", "options": options}, **job)


def plain_environment() -> dict[str, str]:
    """Return our environment without the Python that tests choose for Spark's workers."""
    return {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}


def without_end(root: Path, left: ExitStack) -> Command:
    """Ten rows a second, for ever."""
    source = {"format": "rate-micro-batch", "options": {"rowsPerBatch": 10}}
    return Command(
        root, left, source, sql="select value as id from source", trigger={"processingTime": "1 s"}
    )


def wait_for_a_commit(process: subprocess.Popen[str]) -> None:
    """Read what the command prints up to the next checkpoint with rows."""
    assert process.stdout is not None
    for line in process.stdout:
        if " committed: 10 rows" in line:
            return
    raise AssertionError(process.communicate()[1])
