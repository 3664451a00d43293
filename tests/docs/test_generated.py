"""The pages that docs/generate.py makes are what it would make now."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness import versions
from harness.own_sinks import own_sinks, sink_options
from twophase.options.job_options import JobOptions
from twophase.options.parsing import Options
from twophase.sources.kafka.options import KafkaOptions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = "configuration.md"
GROUPS = [JobOptions, KafkaOptions, *sink_options().values()]
TABLES = [
    *((PAGE, group) for group in GROUPS),
    ("kafka.md", KafkaOptions),
    *((f"sinks/{sink}.md", group) for sink, group in sink_options().items()),
]
# Those of option tables and of Flink's keys, on whichever page somebody puts one.
WITH_TABLES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted(DOCS.rglob("*.md"))
    if re.search(r"^<!-- (options|flink): ", path.read_text(), re.MULTILINE)
]
WHOLE = ["job.schema.json", "errors.md", "quickstart.md", "sinks/index.md"]


def script(name: str) -> ModuleType:
    """A module of docs/, which is not a package: load what it imports from there first."""
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def option_tables() -> ModuleType:
    script("type_tables")
    return script("option_tables")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Every page as its sources say."""
    option_tables()
    script("figures")
    script("job_schema")
    pages: dict[str, str] = script("generate").pages()
    return pages


@pytest.mark.parametrize("page", [*WHOLE, *WITH_TABLES])
def test_a_generated_page_is_what_its_sources_say(page: str, made: dict[str, str]) -> None:
    assert (DOCS / page).read_text() == made[page]


def test_the_check_of_generated_pages_passes() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "group"), TABLES)
def test_every_option_is_once_in_the_tables_of_its_group(page: str, group: type[Options]) -> None:
    name = re.escape(f"{group.__module__}.{group.__name__}")
    found = re.findall(
        rf"<!-- options: {name}(?:: [^\n]+)? -->\n(.*?)<!-- end -->",
        (DOCS / page).read_text(),
        re.DOTALL,
    )
    listed = [
        key for table in found for key in re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE)
    ]
    assert listed == group.keys()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_option_has_a_meaning(group: type[Options]) -> None:
    assert not [name for name, field in group.model_fields.items() if not field.description]


@pytest.mark.parametrize("sink", own_sinks())
def test_the_page_of_each_sink_has_a_table_of_types(sink: str) -> None:
    text = (DOCS / "sinks" / f"{sink}.md").read_text()
    assert re.search(r"^<!-- (columns|types): \S+ -->\n\n\|", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("sink", "check", "says"),
    [
        ("file", "twophase.sinks.common.staging.formats.refusal", lambda *_: "no"),
        ("file", "twophase.sinks.common.staging.formats._check_for_orc", lambda *_, **__: None),
        ("file", "twophase.sinks.common.staging.rows.refusal", lambda *_: ""),
        ("hive", "twophase.sinks.common.staging.hive_files._in_hybrid_calendar", lambda rows: rows),
        ("delta", "twophase.sinks.delta.rows._widens", lambda *_: True),
        ("iceberg", "twophase.sinks.iceberg.columns._fits", lambda *_: True),
        ("kafka", "twophase.sinks.kafka.rows.refusal", lambda *_: ""),
        ("mysql", "twophase.sinks.mysql.rows.column_types.COLUMN_TYPES", ()),
        ("paimon", "twophase.sinks.paimon.columns.fits", lambda *_: True),
    ],
)
def test_a_check_that_changes_changes_the_table_of_types(
    sink: str, check: str, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = f"sinks/{sink}.md"
    text = (DOCS / page).read_text()
    assert option_tables().filled(text, page) == text
    monkeypatch.setattr(check, says)
    assert option_tables().filled(text, page) != text


@pytest.mark.parametrize("page", WITH_TABLES)
def test_a_cell_that_is_changed_by_hand_is_found_on_each_page(page: str) -> None:
    text = (DOCS / page).read_text()
    changed = re.sub(  # the last cell of the last row of each table
        r"[^|]+ \|(\n\n<!-- end -->)", r" by hand |\1", text
    )
    assert changed.count("by hand |") == text.count("<!-- end -->") > 0
    assert option_tables().filled(changed, page) == text


def test_the_table_of_releases_shows_what_is_not_tried_and_the_oldest_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third, fourth, *_ = (trial.subject for trial in versions.TRIALS)
    whole = {trial.subject: versions.Cell("passed", "2026-11-30") for trial in versions.TRIALS}
    known = {
        versions.RELEASES[0]: whole
        | {
            first: versions.Cell("skipped", "2026-11-09", "0b"),
            second: versions.Cell("passed", "2026-11-10", "0d"),
            third: versions.Cell("passed", "2026-11-09", "0a+"),
            fourth: versions.Cell("passed", "2026-11-09"),
        },
        versions.RELEASES[1]: {second: versions.Cell("passed", "2026-12-01")},
    }
    monkeypatch.setattr(versions, "recorded", lambda: known)
    table = option_tables().filled("<!-- versions: tried -->\n<!-- end -->", PAGE)
    rows = [[cell.strip() for cell in row.split("|")[1:4]] for row in table.splitlines() if row]
    assert [first, "skipped", "not tried"] in rows
    assert [second, "passed", "passed"] in rows
    assert ["the oldest of these runs", "9 November 2026, 0a+, 0b", "1 December 2026"] in rows
    assert table.count(" - |") == len(versions.RELEASES) - 2


def test_a_link_of_a_table_leads_from_the_folder_of_its_page() -> None:
    tables = option_tables()
    group = "twophase.options.job_options.JobOptions"
    page = f"<!-- options: {group}: checkpoint.max_concurrent -->\n<!-- end -->"
    assert "](architecture.md#" in tables.filled(page, PAGE)
    assert "](../architecture.md#" in tables.filled(page, "sinks/mysql.md")
