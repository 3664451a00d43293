"""The page of each sink knows every option of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.config import Options
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.file.options import FileOptions
from twophase.sinks.hive.options import HiveOptions
from twophase.sinks.mysql.options import MySqlOptions

PAGES = Path(__file__).parents[3] / "docs" / "sinks"


@pytest.mark.parametrize(
    ("page", "options"),
    [
        ("mysql.md", MySqlOptions),
        ("delta.md", DeltaOptions),
        ("file.md", FileOptions),
        ("hive.md", HiveOptions),
    ],
)
def test_every_option_is_documented_in_order(page: str, options: type[Options]) -> None:
    table = (PAGES / page).read_text().partition("| option |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == options.keys()
