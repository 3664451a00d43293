"""The program that the workers run is there whenever one is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twophase.spark.startup.worker_interpreter import restore_worker_python
from twophase.spark.startup.worker_python import is_this_python, worker_python


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))


def test_a_program_that_a_cleaner_has_deleted_without_its_folder_is_made_again() -> None:
    program = worker_python()
    program.unlink()
    context: Any = SimpleNamespace(pythonExec=str(program))
    restore_worker_python(context)
    assert is_this_python(str(program))
    assert worker_python() == program
