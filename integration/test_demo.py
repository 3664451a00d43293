"""The demo runs, small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_demo_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--records", "24000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "exactly once, after 4 kills" in done.stdout
