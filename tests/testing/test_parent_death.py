"""What is on the leash ends with the one who holds it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def test_a_module_runs_with_its_arguments_and_ends_with_who_started_it(tmp_path: Path) -> None:
    script = "import sys, time; print(__name__, sys.argv[1:], flush=True); time.sleep(600)"
    (tmp_path / "module_on_the_leash.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, "-m", "twophase.testing.parent_death", "module_on_the_leash", "a", "b"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "__main__ ['a', 'b']\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == -signal.SIGKILL
