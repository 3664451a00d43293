"""Sources of installed packages: a broken one is the problem of those who ask for it alone."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from twophase.cli.jobfile import pipeline
from twophase.cli.jobfile.job_file import SourceSection
from twophase.contract import source_entry_points
from twophase.contract.source import UnknownSource
from twophase.contract.source_entry_points import (
    installed_sources,
    lag_of,
    loss_of,
    owner_of,
    source_of,
)
from twophase.errors import ConfigError, SourceLossError
from twophase.sources.spark_kafka import SparkKafkaSource

MODULES = {
    "broken_on_import": "raise RuntimeError('no licence')",
    "broken_source": """
from twophase.contract.source import UnknownSource

class Broken(UnknownSource):
    def __init__(self):
        raise RuntimeError("no licence")
""",
    "eager_source": """
from twophase.contract.source import UnknownSource

class Eager(UnknownSource):
    def owns(self, line):
        return True
""",
    "failing_source": """
from twophase.contract.source import UnknownSource

class Failing(UnknownSource):
    def owns(self, line):
        return line == "fails"

    def lag(self, end, latest):
        raise ValueError("no number")

    def loss(self, condition, said):
        raise KeyError(condition)
""",
}
ENTRIES = {
    "absent": "module_of_an_extra:Source",
    "missing": "broken_source:Nothing",
    "raising": "broken_on_import:Source",
    "refusing": "broken_source:Broken",
    "function": "json:loads",
    "eager": "eager_source:Eager",
    "kafka": "twophase.sources.spark_kafka:SparkKafkaSource",
}
BROKEN = ["absent", "missing", "raising", "refusing", "function"]


def forget() -> None:
    """Forget what is installed, in this process."""
    for kept in (
        source_entry_points._entries,
        source_entry_points._made,
        source_entry_points._usable,
    ):
        kept.cache_clear()


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EntryPoint]]:
    """What packages offer."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    found = {
        name: EntryPoint(name, value, source_entry_points.GROUP) for name, value in ENTRIES.items()
    }
    monkeypatch.setattr(source_entry_points, "offered", lambda _: found)
    forget()
    yield found
    sys.modules.pop("module_of_an_extra", None)
    forget()


def test_a_job_does_not_care_for_a_broken_package_that_it_does_not_use() -> None:
    assert isinstance(source_of("kafka"), SparkKafkaSource)
    assert isinstance(source_of("rate"), UnknownSource)


@pytest.mark.parametrize("name", BROKEN)
def test_whoever_asks_for_a_broken_one_is_told_why(name: str) -> None:
    with pytest.raises(ConfigError, match=r"twophase\.sources: ") as caught:
        source_of(f"{name}[orders]")
    assert caught.value.remedy


def install_what_it_needs(name: str, installed: dict[str, EntryPoint], site: Path) -> None:
    (site / "module_of_an_extra.py").write_text("from eager_source import Eager as Source\n")


def correct_it(name: str, installed: dict[str, EntryPoint], site: Path) -> None:
    installed[name] = EntryPoint(name, "eager_source:Eager", source_entry_points.GROUP)


def uninstall(name: str, installed: dict[str, EntryPoint], site: Path) -> None:
    del installed[name]


@pytest.mark.parametrize(
    ("name", "remedy", "follow", "is_usable"),
    [
        ("absent", "install what twophase needs for it", install_what_it_needs, True),
        ("absent", "or uninstall that package", uninstall, False),
        ("refusing", "or uninstall that package", uninstall, False),
        ("function", "correct the entry point 'function'", correct_it, True),
    ],
)
def test_what_the_error_says_makes_it_usable_or_lets_it_go(
    installed: dict[str, EntryPoint],
    tmp_path: Path,
    name: str,
    remedy: str,
    follow: Callable[[str, dict[str, EntryPoint], Path], None],
    is_usable: bool,
) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(f"{name}[orders]")
    assert remedy in caught.value.remedy
    follow(name, installed, tmp_path)
    importlib.invalidate_caches()
    forget()
    assert source_of(f"{name}[orders]").owns("") is is_usable


def test_a_job_file_that_names_a_broken_one_says_so_before_spark_looks_for_the_format() -> None:
    section = SourceSection.parse({"format": "raising"}, "job.yaml: source")
    with pytest.raises(ConfigError, match=r"'raising' cannot be loaded: .*no licence"):
        pipeline._load(None, section)  # type: ignore[arg-type]


def test_the_built_in_sources_are_asked_for_a_line_first() -> None:
    assert owner_of('{"orders":{"0":7}}')[0] == "kafka"
    assert owner_of('{"sequence":7}')[0] == "eager"


def test_those_that_cannot_be_loaded_are_left_out_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        assert [name for name, _ in installed_sources()] == ["kafka", "eager"]
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == len(BROKEN)


def test_what_a_source_cannot_tell_is_unknown_of_it_alone(
    installed: dict[str, EntryPoint], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be of a package that the job does not use."""
    other, eager = "failing_source:Failing", installed.pop("eager")
    installed["a failing one"] = EntryPoint("a failing one", other, source_entry_points.GROUP)
    installed["eager"] = eager
    kafka = ('{"t": {"0": 5}}', '{"t": {"0": 9}}')
    assert lag_of([("fails", "x"), kafka]) == 4
    assert lag_of([("fails", "x")]) is None
    assert loss_of("SOME_CONDITION", "The micro-batch failed.") is None
    assert "source a failing one cannot tell what SOME_CONDITION means: KeyError" in caplog.text
    lost = loss_of("KAFKA_DATA_LOSS.START_OFFSET_RESET", "The micro-batch failed.")
    assert isinstance(lost, SourceLossError)
