"""What a benchmark records becomes a table, a sentence and a drawing of its page."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.report import Curve, Ratio, Result, table
from tests.docs.test_generated import script

NAME = "kafka_to_mysql"
PAGE = f"# A page\n\n<!-- figures: {NAME} -->\n<!-- end -->\n"


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, which reads what is recorded in a folder of this test."""
    made = script("figures")
    monkeypatch.setattr(made, "FIGURES", tmp_path)
    monkeypatch.setattr(report, "_recorded", [tmp_path])
    monkeypatch.setattr(sys, "argv", ["-", "--record", "docs/figures", NAME, "--rounds", "2"])
    return made


def measured() -> Result:
    shown = table("Kafka to MySQL", "pipeline", "rows/s")
    shown.add_row("twophase", "160,000")
    return Result(
        NAME,
        [shown],
        [
            Ratio("twophase", "Spark", 1.723, "rows/s", [1.7, 1.75], goal=2.2),
            Ratio("all sinks", "each alone", 0.6, "s", goal=0.65, at_most=True),
        ],
        [Curve("MB", "records in a batch", [(1_000, 180.0), (1_000_000, 190.0)])],
        ["The goal of 300 MB is [bold]kept[/bold]."],
        others_cores=0.07,
    )


def test_a_section_has_what_was_measured_how_and_where(figures: ModuleType) -> None:
    measured().show()
    text = figures.filled(PAGE, "benchmarks.md")
    for part in (
        "| pipeline | rows/s |\n| -- | -- |\n| twophase | 160,000 |",
        "rows/s, twophase / Spark: **1.72** (by round 1.70 1.75); the goal is at least 2.2.",
        "s, all sinks / each alone: **0.60**; the goal is at most 0.65.",
        "The goal of 300 MB is **kept**.",
        f"`python -m benchmarks {NAME} --rounds 2`, 20",
        "other processes kept 0.07 cores busy",
        f'src="figures/{NAME}-light.svg"',
    ):
        assert part in text
    assert figures.filled(text, "benchmarks.md") == text
    assert f'src="../figures/{NAME}-light.svg"' in figures.filled(PAGE, "sinks/mysql.md")


def test_a_drawing_shows_each_ratio_and_each_curve_for_both_themes(figures: ModuleType) -> None:
    measured().show()
    made = figures.drawings()
    assert [*made] == [
        f"figures/{name}-{theme}.svg" for name in (NAME, "overview") for theme in ("light", "dark")
    ]
    assert figures.drawings() == made
    light, dark = (made[f"figures/{NAME}-{theme}.svg"] for theme in ("light", "dark"))
    assert light != dark
    for text in (light, dark):
        shown = " ".join(ET.fromstring(text).itertext())
        for word in ("1.72", "0.60", "twophase", "/ Spark", "records in a batch", "MB"):
            assert word in shown


def test_a_record_always_gives_the_same_drawing() -> None:
    figures = script("figures")
    for record in figures.records().values():
        if record["curves"]:
            assert len({figures.draw(record, "light") for _ in range(8)}) == 1


def test_the_overview_has_the_speed_of_each_record_against_others_only(figures: ModuleType) -> None:
    measured().show()
    ours = Ratio("chained", "twophase, not chained", 1.2, "rows/s")
    dataclasses.replace(measured(), name="several_sinks", ratios=[ours]).show()
    [ratio] = figures.overview(figures.records())["ratios"]
    assert (ratio["of"], ratio["to"], ratio["goal"]) == ("Kafka to MySQL", "Spark", None)


def test_what_is_recorded_does_not_name_the_folder_of_the_record(
    figures: ModuleType, tmp_path: Path
) -> None:
    del figures
    measured().show()
    record = json.loads((tmp_path / f"{NAME}.json").read_text())
    assert record["command"] == f"python -m benchmarks {NAME} --rounds 2"


def test_nothing_is_recorded_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "_recorded", [])
    measured().show()
    assert [*tmp_path.iterdir()] == []
    asked = CliRunner().invoke(main, ["--record", "here", NAME, "--records", "1"])
    assert asked.exit_code == 2  # too few records
    assert report._recorded == [Path("here")]


def test_every_picture_of_a_page_is_recorded() -> None:
    made = script("figures")
    for path in made.FIGURES.parent.rglob("*.md"):
        for name in made.MARKER.findall(path.read_text()):
            assert name[1] in made.records(), path
