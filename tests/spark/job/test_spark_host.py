"""What ends a run, as the job on Spark reports it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twophase.errors import (
    DeclinedError,
    FencedError,
    LostCommittableError,
    SourceUnavailableError,
    SparkLostError,
    TwoPhaseError,
)
from twophase.spark.job.spark_host import SparkHost


def host(*, is_lost: bool) -> SparkHost:
    """A host whose Spark has ended, or has not."""
    found = object.__new__(SparkHost)
    context = SimpleNamespace(isStopped=lambda: is_lost)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))
    )
    description: Any = SimpleNamespace(name="orders")
    found._spark, found._description = spark, description
    return found


@pytest.mark.parametrize("error", [FencedError("overtaken"), LostCommittableError("gone")])
def test_an_error_that_must_stop_the_job_is_itself_also_when_spark_has_ended(
    error: TwoPhaseError,
) -> None:
    assert host(is_lost=True).failed(error) is error


@pytest.mark.parametrize("error", [DeclinedError("no"), OSError("reset"), SystemExit(1)])
def test_what_a_restart_would_resolve_is_the_end_of_spark(error: BaseException) -> None:
    found = host(is_lost=True).failed(error)
    assert isinstance(found, SparkLostError)
    assert "its Spark application has ended" in str(found)


def test_what_a_restart_resolves_is_itself_while_spark_lives() -> None:
    error = SourceUnavailableError("no answer")
    assert host(is_lost=False).failed(error) is error
    assert isinstance(host(is_lost=False).failed(SystemExit(1)), RuntimeError)
