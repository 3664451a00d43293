"""The page about sinks knows every option of every sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.config import Options
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.file.options import FileOptions
from twophase.sinks.hive.options import HiveOptions
from twophase.sinks.mysql.options import MySqlOptions

PAGE = (Path(__file__).parents[3] / "sinks" / "README.md").read_text()


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("### What the MySQL sink needs", MySqlOptions),
        ("### What the Delta sink needs", DeltaOptions),
        ("### What the file sink needs", FileOptions),
        ("### What the Hive sink needs", HiveOptions),
    ],
)
def test_every_option_is_documented_in_order(heading: str, options: type[Options]) -> None:
    table = PAGE.partition(heading)[2].partition("| option |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == options.keys()
