"""The Hive sink with a metastore service that dies before the decision, after
it, and comes back.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.part("hive"), pytest.mark.proof]

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 500


def test_nothing_is_visible_early_and_nothing_is_lost_when_the_metastore_dies(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "integration.hive.metastore_cases", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["as it should be"]), (
        ended.stderr[-5000:]
    )
