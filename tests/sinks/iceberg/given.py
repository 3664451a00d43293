"""Tests of this folder as functions of a table, for those that call them: with a rule taken out, or
in another kind of catalog.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from tests.sinks.iceberg import (
    others,
    test_branches,
    test_moments,
    test_new_columns,
    test_rewind,
)
from tests.sinks.iceberg import test_protocol as protocol
from twophase.testing.contract import ArrowSinkContract, RewindContract
from twophase.testing.harness import FIRST

MISSING = "DID NOT RAISE"


@dataclass
class Given:
    """What a test is given: where its table is, and a patch that is undone after it.

    Attributes:
        folder: of its own.
        patch: the patch.
        place: where its table is, if it is not in an SQLite catalog in that folder.
    """

    folder: Path
    patch: pytest.MonkeyPatch
    place: Place | None = None

    @property
    def where(self) -> Path | Place:
        return self.place or self.folder

    def harness(self, **options: Any) -> IcebergHarness:
        return IcebergHarness(others.lake(self.where), others.FIELDS, **options)

    def filled(self, version: int = 2) -> IcebergHarness:
        return test_rewind.filled(self.harness(format_version=version))


Test = Callable[[Given], object]


def with_sink(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table and an open sink."""

    def run(given: Given) -> object:
        harness = given.harness()
        more = (given.patch,) if patched else ()
        return test(harness, harness.opened(), *args, *more)

    return run


def in_flight(test: Callable[..., object], *args: Any) -> Test:
    """The same, of something that happens while a commit is in flight."""
    return with_sink(test, *args, patched=True)


def of_rewind(
    test: Callable[..., object], *args: Any, patched: bool = False, version: int = 2
) -> Test:
    """A test of a table with three checkpoints."""
    return lambda given: test(given.filled(version), *((given.patch,) if patched else ()), *args)


def of_contract(suite: type[ArrowSinkContract | RewindContract], name: str, *args: Any) -> Test:
    """A test of the contract."""

    def run(given: Given) -> object:
        made = suite()
        made.use(given.harness())
        made.harness_in_use = IcebergHarness(given.folder / "contract")
        sink = made.opened()
        sink.fence(FIRST)
        return getattr(made, name)(sink, *args)

    return run


def of_branch(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table whose branch is audited."""

    def run(given: Given) -> object:
        harness = test_branches.audited(others.lake(given.where))
        return test(harness, *args, *((given.patch,) if patched else ()))

    return run


def dropped(in_flight: bool, has_committed: bool, what: others.Change = test_branches.drop) -> Test:
    test = (
        test_branches.test_a_branch_that_is_gone_or_replaced_stops_by_name_and_set_back_it_commits
    )
    named = "branch audit is gone"
    return lambda given: test(given.where, 2, has_committed, what, named, in_flight, given.patch)


def of_new_columns(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table that lacks columns."""

    def run(given: Given) -> object:
        harness = given.harness(schema_change="add_columns")
        others.commit(harness, harness.opened(), others.rows(0), 0)
        harness.fields = test_new_columns.MORE
        return test(harness, *args, *((given.patch,) if patched else ()))

    return run


def of_deletes(*args: Any) -> Test:
    test = test_rewind.test_a_delete_file_refuses_a_rewind_if_it_can_touch_its_rows
    return lambda given: test(given.folder, *args)


def left_over(test: Callable[..., object]) -> Test:
    def run(given: Given) -> object:
        harness = given.harness()
        made = inspect.unwrap(protocol.left_over)
        return test(harness, getattr(made, "__wrapped__", made)(harness))

    return run


def at(moment: str, what: others.Change) -> Test:
    """A test of what others do at a moment of a checkpoint."""
    row = next(row for row in test_moments.TABLE if row.what is what)
    test = test_moments.test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone
    return lambda given: test(given.harness(), row, moment, given.patch)
