"""What each source of the plan is asked before a rewind, and in which of its logs it may look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from twophase.contract.source import Source, SourceLeg
from twophase.errors import RestoreRefusedError, SourceLossError
from twophase.spark.plan import operator_states
from twophase.spark.plan.operator_states import OperatorStates

SPARK = Path("/chk/orders/spark/1")
A, B, C = (SourceLeg("FileSource[/in]", {"path": name}) for name in "abc")
LATEST = SourceLeg("FileSource[/in]", {"startingOffsets": "latest"})


class Asked(Source):
    """Notes what it is asked; an option has it begin after everything that exists."""

    def __init__(self) -> None:
        self.logs: list[tuple[str, str | None]] = []

    def owns(self, line: str) -> bool:
        return True

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        self.logs.append((line, None if log is None else str(log.relative_to(SPARK))))
        return True

    def skips_existing(self, options: Mapping[str, str]) -> bool:
        return "startingOffsets" in options


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(operator_states, "source_of", lambda _: asked)
    return asked


def test_each_source_looks_in_the_log_that_spark_has_numbered_for_it(source: Asked) -> None:
    assert OperatorStates([B, A, C], {}).unproven(["1", "2", "3"], SPARK) == []
    assert source.logs == [("1", "sources/0"), ("2", "sources/1"), ("3", "sources/2")]
    source.logs.clear()
    assert OperatorStates([A], {}).unproven(["1"], None) == []
    assert source.logs == [("1", None)]


def test_from_the_second_of_two_equal_sources_on_the_number_of_the_log_is_not_guessed(
    source: Asked,
) -> None:
    """Spark numbers one source that the plan reads twice once, and two equal ones twice."""
    same = SourceLeg(A.name, {**A.options})
    OperatorStates([A, B, same, C], {}).unproven(["1", "2", "3", "4"], SPARK)
    assert source.logs == [("1", "sources/0"), ("2", "sources/1"), ("3", None), ("4", None)]


def test_a_source_without_an_offset_that_would_skip_what_exists_refuses_the_rewind(
    source: Asked,
) -> None:
    with pytest.raises(SourceLossError, match=r"FileSource\[/in\].*no offset") as caught:
        OperatorStates([A, LATEST], {}).unproven(["1", None], SPARK)
    assert "earliest" in caught.value.remedy
    assert OperatorStates([A, LATEST], {}).unproven(["1", "2"], SPARK) == []


def test_a_kafka_source_that_would_skip_what_exists_begins_at_the_earliest_instead() -> None:
    def unproven(starting: str) -> list[str]:
        options = {"subscribe": "orders", "startingOffsets": starting}
        return OperatorStates([SourceLeg("twophase-kafka", options)], {}).unproven([None], SPARK)

    with pytest.raises(SourceLossError, match="would begin after records") as caught:
        unproven("latest")
    assert "`startingOffsets=earliest`" in caught.value.remedy
    assert len(unproven("earliest")) == 1, "only whether its records are there is unproven"


def test_a_source_without_an_offset_that_begins_by_its_options_is_said_to_be_unknown(
    source: Asked,
) -> None:
    [why] = OperatorStates([A, B], {}).unproven(["1", None], SPARK)
    assert source.logs == [("1", "sources/0")]
    assert "begins as its options say" in why


@pytest.mark.parametrize("answer", [False, RestoreRefusedError("The topic 'a' is compacted.")])
def test_each_source_that_cannot_prove_it_is_named_with_the_reason(
    source: Asked, monkeypatch: pytest.MonkeyPatch, answer: bool | RestoreRefusedError
) -> None:
    def check_readable(*_: object) -> bool:
        if isinstance(answer, RestoreRefusedError):
            raise answer
        return answer

    monkeypatch.setattr(source, "check_readable", check_readable)
    first, second = OperatorStates([A, B], {}).unproven(["1", "2"], SPARK)
    if answer is False:
        assert "FileSource[/in] cannot tell" in first
        assert "after 2 " in second
    else:
        assert first == second == "The topic 'a' is compacted."
