"""A disk that is full, or cannot be written, before and after the decision: nothing
visible, nothing lost.

Each case runs `disk_cases.py` in a mount namespace of its own, with a tmpfs of one
megabyte for the table.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.file import disk_cases

ROOT = Path(__file__).parents[3]
_UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
_TIMEOUT_S = 120


@pytest.mark.parametrize("case", disk_cases.CASES)
def test_nothing_is_visible_and_nothing_is_lost(tmp_path: Path, case: str) -> None:
    if subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this account may not make a mount namespace")
    mount = (
        'mount -t tmpfs -o size=1m,mode=755 tmpfs "$1" && exec "$2" -m '
        'tests.sinks.file.disk_cases "$1" "$3"'
    )
    ended = subprocess.run(
        [*_UNSHARE, "sh", "-c", mount, "sh", str(tmp_path), sys.executable, case],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert (ended.returncode, ended.stdout) == (0, f"{case}: as it should be\n"), ended.stderr
