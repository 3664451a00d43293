"""What each source of the plan is asked before a rewind, and in which of its logs it may look."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.contract.source import Source, SourceLeg
from twophase.spark.plan import operator_states
from twophase.spark.plan.operator_states import OperatorStates

SPARK = Path("/chk/orders/spark/1")
A, B, C = (SourceLeg("FileSource[/in]", {"path": name}) for name in "abc")


class Asked(Source):
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.logs: list[tuple[str, str | None]] = []

    def owns(self, line: str) -> bool:
        return True

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        self.logs.append((line, None if log is None else str(log.relative_to(SPARK))))
        return True


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(operator_states, "source_of", lambda _: asked)
    return asked


def test_each_source_looks_in_the_log_that_spark_has_numbered_for_it(source: Asked) -> None:
    OperatorStates([B, A, C], {}).check_readable(["1", "2", "3"], SPARK)
    assert source.logs == [("1", "sources/0"), ("2", "sources/1"), ("3", "sources/2")]
    source.logs.clear()
    OperatorStates([A], {}).check_readable(["1"], None)
    assert source.logs == [("1", None)]


def test_from_the_second_of_two_equal_sources_on_the_number_of_the_log_is_not_guessed(
    source: Asked,
) -> None:
    """Spark numbers one source that the plan reads twice once, and two equal ones twice."""
    same = SourceLeg(A.name, {**A.options})
    OperatorStates([A, B, same, C], {}).check_readable(["1", "2", "3", "4"], SPARK)
    assert source.logs == [("1", "sources/0"), ("2", "sources/1"), ("3", None), ("4", None)]
