"""Tests that hand one job on to each other: `pytest.mark.relay`, a pytest plugin.

Some jobs are too expensive to make for each test: the tests of such a module run in order, and each
continues where the previous one has stopped. So that a failing test is one failure,
and can be repeated:

1. Links after a failed one are skipped, and name it.
2. A link that is selected with `-k` also selects those before it.

`pytest.mark.relay("kind")` is a relay for each value of the parameter `kind`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

MARK = "relay"

_broken: dict[tuple[Any, ...], str] = {}
"""The first failed link, by relay."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers", f"{MARK}(*parameters): hands its job on to the next test of its module"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Restore links that `-k` has deselected and a selected link needs. A relay stays where pytest
    has put its first link.
    """
    collected = list(items)
    yield
    chosen, placed, found = {*items}, set(), list[pytest.Item]()
    for item in items:
        relay = _relay(item)
        if relay is None:
            found.append(item)
        elif relay not in placed:
            placed.add(relay)
            links = [link for link in collected if _relay(link) == relay]
            last = max(index for index, link in enumerate(links) if link in chosen)
            found += links[: last + 1]
    items[:] = found


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip links whose job is lost."""
    relay = _relay(item)
    if relay in _broken:
        pytest.skip(f"the relay stopped at {_broken[relay]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the link that has failed."""
    report = yield
    relay = _relay(item)
    if relay is not None and report.failed:
        _broken.setdefault(relay, item.name)
    return report


def _relay(item: pytest.Item) -> tuple[Any, ...] | None:
    """Return the name of a test's relay; None if it is in none."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return (item.path, *(parameters.get(name) for name in mark.args))
