"""Plain jobs into a Paimon table. pypaimon has an environment of its own; elsewhere these tests are
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.paimon_environment import pytest_pycollect_makemodule
from integration.paimon.scenario import PaimonScenario
from integration.without_spark.process import Zygote

__all__ = ["pytest_pycollect_makemodule"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote("twophase.sinks.paimon.open_sink")
    yield zygote
    zygote.close()


@pytest.fixture
def make_scenario(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., PaimonScenario]]:
    made: list[PaimonScenario] = []

    def make(kinds: tuple[str, ...] = ("paimon",), **options: Any) -> PaimonScenario:
        folder = tmp_path / f"scenario-{len(made)}"
        folder.mkdir()
        scenario = PaimonScenario(zygote, {}, kinds, folder, options)
        made.append(scenario)
        return scenario

    yield make
    for scenario in made:
        scenario.end()
