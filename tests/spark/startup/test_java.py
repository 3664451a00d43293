"""Which Java the local servers and the tools run with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from twophase.errors import TwoPhaseError
from twophase.spark.startup.java import java


def test_a_machine_without_java_is_refused_until_java_home_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(java()).resolve().parents[1]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(TwoPhaseError, match="No Java was found") as caught:
        java()
    assert caught.value.remedy.endswith("or set JAVA_HOME.")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java() == str(home / "bin" / "java")
    subprocess.run([java(), "-version"], check=True)
