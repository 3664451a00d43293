"""Which releases of PySpark are tried, and with which tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import versions
from harness.spark_features import needs
from harness.versions import CHOSEN, RELEASES, VersionsError, main
from twophase.internals.pyspark_version import NEWEST, OLDEST
from twophase.spark_versions import SPARK, Feature, version_in

ROOT = Path(__file__).parents[2]


def test_every_supported_version_is_tried_and_no_other() -> None:
    tried = {version_in(release) for release in RELEASES}
    (major, oldest), (_, newest) = OLDEST, NEWEST
    assert tried == {(major, minor) for minor in range(oldest, newest + 1)}


def test_the_release_of_the_constraints_is_tried() -> None:
    [used] = re.findall(r"^pyspark==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert used in RELEASES


@pytest.mark.parametrize("path", CHOSEN)
def test_what_is_chosen_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_page_names_no_release_that_is_not_tried() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    [tried] = re.findall(r"^\| PySpark \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    named = re.findall(r"\d+\.\d+\.\d+", tried)
    assert named
    assert {*named} <= {*RELEASES}


def test_another_release_is_refused_before_any_environment_is_made() -> None:
    with pytest.raises(VersionsError, match=r"9\.9\.9: not one of 4\.1"):
        main(["9.9.9"])


@pytest.mark.parametrize(("right", "code"), [({"4.1.4": True}, 0), ({"4.1.4": False}, 1)])
def test_a_failure_with_one_release_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: dict[str, bool],
    code: int,
) -> None:
    monkeypatch.setattr(versions, "passes", lambda release: right.get(release, True))
    assert main([]) == code
    shown = capsys.readouterr().out
    assert f"failed with PySpark: {'4.1.4' if code else 'none'}\n" in shown
    assert all(f"== PySpark {release} ==" in shown for release in RELEASES)


def test_tests_of_what_is_missing_are_skipped_with_the_reason() -> None:
    missing = needs(Feature("The sink", "It was never tried.", since=(9, 0)))
    here = needs(Feature("The sink", "It is there.", since=SPARK))
    assert missing.args == (True,)
    assert "The sink needs PySpark 9.0 or newer" in missing.kwargs["reason"]
    assert here.args == (False,)
