"""The ways on which a path with symbolic links is followed, each of which somebody may change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from twophase.errors import ConfigError, PreflightError
from twophase.internals.links import ways_to
from twophase.sinks.common.staging.preflight import check_owned
from twophase.state.files.folder_rights import check_rights
from twophase.state.files.storage import LocalStorage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two in it, `open` to everyone and `own`."""
    for name in ("own", "open"):
        (tmp_path / name / "jobs").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    return tmp_path


def straight(root: Path) -> Path:
    return root / "open" / "jobs"


def absolute(root: Path) -> Path:
    (root / "link").symlink_to(root / "open" / "jobs")
    return root / "link"


def relative(root: Path) -> Path:
    (root / "own" / "link").symlink_to("../open/jobs")
    return root / "own" / "link"


def over_another_link(root: Path) -> Path:
    """Where it ends nobody else may write; where its second link lies everyone may."""
    (root / "open" / "second").symlink_to(root / "own" / "jobs")
    (root / "link").symlink_to("open/second")
    return root / "link"


def nowhere(root: Path) -> Path:
    (root / "link").symlink_to("open/later")
    return root / "link"


LEADING = [straight, absolute, relative, over_another_link, nowhere]


@pytest.mark.parametrize("below", ["", "orders", "2025/orders"])
@pytest.mark.parametrize("lead", LEADING)
def test_a_link_that_leads_through_a_folder_open_to_everyone_is_refused(
    root: Path, lead: Callable[[Path], Path], below: str
) -> None:
    path = lead(root) / below
    for check, error in (
        (lambda: check_rights(path, "checkpointLocation"), ConfigError),
        (lambda: check_owned(path), PreflightError),
    ):
        with pytest.raises(error, match="open is writable by everyone") as caught:
            check()
        assert caught.value.remedy.startswith("run: chmod o-w ")
        assert Path(caught.value.remedy.rpartition(" ")[2]).samefile(root / "open")
    (root / "open").chmod(0o755)
    check_rights(path, "checkpointLocation")
    check_owned(path)


def test_a_link_over_folders_that_nobody_else_may_change_is_followed(root: Path) -> None:
    (root / "first").symlink_to("own/second")
    (root / "own" / "second").symlink_to(root / "own" / "jobs")
    LocalStorage(root / "first" / "orders").create("log/1", b"")
    check_owned(root / "first" / "orders")
    assert (root / "own" / "jobs" / "orders" / "log" / "1").exists()


def test_links_in_a_circle_have_an_end(root: Path) -> None:
    (root / "here").symlink_to("there")
    (root / "there").symlink_to("here")
    assert len([*ways_to(root / "here")]) == 41
    check_owned(root / "here" / "table")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        (root / "here").stat()


def test_the_last_way_has_no_links(root: Path) -> None:
    path = over_another_link(root)
    assert [*ways_to(path)][-1] == path.resolve() == root.resolve() / "own" / "jobs"
