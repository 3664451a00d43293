"""The demo runs, small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900

pytestmark = [pytest.mark.part("several_sinks"), pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.proof)])
def test_the_demo_ends_well(kills: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--records", "24000", "--kills", str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert f"exactly once, after {kills} kill" in done.stdout
