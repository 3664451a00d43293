"""Runs a job of the folder examples as its page says to, and gives it rows to read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.environments import ROOT


def run_example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m examples.NAME.job` to its end; the caller looks at how it ended."""
    return subprocess.run(
        [sys.executable, "-m", f"examples.{name}.job", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def add_rows(folder: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add a file of JSON lines to the folder that a job reads."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
