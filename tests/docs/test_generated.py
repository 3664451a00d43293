"""The pages that docs/generate.py makes are what it would make now."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from twophase.config import JobOptions, Options
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.file.options import FileOptions
from twophase.sinks.hive.options import HiveOptions
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sources.kafka.options import KafkaOptions

ROOT = Path(__file__).parents[2]
PAGE = "configuration.md"
GROUPS = [JobOptions, KafkaOptions, MySqlOptions, DeltaOptions, FileOptions, HiveOptions]


def option_tables() -> ModuleType:
    """docs/option_tables.py, which is no module of a package."""
    spec = spec_from_file_location("option_tables", ROOT / "docs" / "option_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_generated_page_is_what_its_sources_say() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_option_is_once_in_the_tables_of_its_group(group: type[Options]) -> None:
    name = re.escape(f"{group.__module__}.{group.__name__}")
    found = re.findall(
        rf"<!-- options: {name}(?:: [^\n]+)? -->\n(.*?)<!-- end -->",
        (ROOT / "docs" / PAGE).read_text(),
        re.DOTALL,
    )
    listed = [
        key for table in found for key in re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE)
    ]
    assert listed == group.keys()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_option_has_a_meaning(group: type[Options]) -> None:
    assert not [name for name, field in group.model_fields.items() if not field.description]


def test_a_default_that_is_changed_on_the_page_by_hand_is_found() -> None:
    text = (ROOT / "docs" / PAGE).read_text()
    changed = text.replace("| `10 min` | an attempt", "| `9 min` | an attempt")
    assert changed != text
    assert option_tables().filled(changed, PAGE) == text


def test_a_link_of_a_table_leads_from_the_folder_of_its_page() -> None:
    tables = option_tables()
    page = "<!-- options: twophase.config.JobOptions: checkpoint.max_concurrent -->\n<!-- end -->"
    assert "](architecture.md#" in tables.filled(page, PAGE)
    assert "](../architecture.md#" in tables.filled(page, "sinks/mysql.md")
