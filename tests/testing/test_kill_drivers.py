"""What drivers that the kill tests start have imported before they are forked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_driver_has_the_modules_of_all_suites_of_its_process() -> None:
    """In a process of its own: this one may have its server of processes already."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.testing.early_imports import main; main()"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "(0, ['colorsys', 'sched'])", done.stderr
