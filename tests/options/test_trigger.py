"""`.trigger(...)` is checked when it is called: as Spark would, and for what a job can run with."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
import yaml
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from twophase.errors import ConfigError
from twophase.options.trigger import check_trigger, in_yaml
from twophase.spark.job.stream_writer import StreamWriter


def trigger(**given: Any) -> Any:
    frame: Any = None
    return StreamWriter(frame, "orders").trigger(**given)._trigger


INTERVALS_MS = {
    "10 seconds": 10_000,
    "10 second": 10_000,
    "10 SECONDS": 10_000,
    "  10   seconds ": 10_000,
    "INTERVAL 10 seconds": 10_000,
    "interval\t1 second": 1_000,
    "+ 1 second": 1_000,
    "0 seconds": 0,
    "-0 seconds": 0,
    "0.5 seconds": 500,
    ".5 seconds": 500,
    "5. seconds": 5_000,
    "1.123456789 seconds": 1_123,
    "1 minute 30 seconds": 90_000,
    "2 hours -1 minutes": 7_140_000,
    "2 days 3 hours": 183_600_000,
    "12 weeks": 7_257_600_000,
    "1 second 1 second": 2_000,
    "100 milliseconds": 100,
    "100 microseconds": 0,
}
NOT_INTERVALS = [
    "",
    " ",
    "interval",
    "10 secnds",
    "10seconds.",
    "10 seconds foo",
    "1 minute, 30 seconds",
    "1 minute30 seconds",
    "-10 seconds",
    "1 hour -2 hours",
    "1 month",
    "1 year",
    "1.5 weeks",
    "interval10 seconds",
    "interval interval 1 second",
    "1e3 seconds",
    "0x10 seconds",
    "PT10S",
    "ten seconds",
    "--1 second",
    "1_0 seconds",
]


@pytest.mark.parametrize("text", INTERVALS_MS)
def test_an_interval_is_what_spark_makes_of_it(text: str) -> None:
    assert trigger(processingTime=text) == {"processingTime": f"{INTERVALS_MS[text]} milliseconds"}


@pytest.mark.parametrize("text", ["10 s", "500 ms", "1.5 min"])
def test_an_interval_may_be_a_duration_as_in_the_options(text: str) -> None:
    assert trigger(processingTime=text)["processingTime"].endswith("00 milliseconds")


@pytest.mark.parametrize("value", [*NOT_INTERVALS, True, [], -1, float("inf")])
def test_what_is_no_interval_is_named_with_what_is_allowed(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        trigger(processingTime=value)
    assert caught.value.what == (
        f"Job 'orders': trigger: processingTime is {value!r}, not an interval."
    ).replace("\n", " ")
    assert "'1 minute 30 seconds'" in caught.value.remedy


@pytest.mark.spark
def test_spark_itself_draws_the_same_line(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    triggers = jvm.org.apache.spark.sql.streaming.Trigger
    found = {text: triggers.ProcessingTime(text).intervalMs() for text in INTERVALS_MS}
    assert found == INTERVALS_MS
    for text in NOT_INTERVALS:
        with pytest.raises(IllegalArgumentException):
            triggers.ProcessingTime(text)


def test_the_others_are_true_or_left_out() -> None:
    assert trigger(availableNow=True) == {"availableNow": True}
    assert trigger(once=True, processingTime=None) == {"once": True}
    for value in (False, "yes", 1):
        with pytest.raises(ConfigError, match=f"availableNow is {value!r}; only true is allowed"):
            trigger(availableNow=value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "none"),
        ({"processingTime": None}, "none"),
        ({"processingTime": "1 second", "once": False}, "processingTime and once"),
        ({"availableNow": True, "once": True}, "availableNow and once"),
    ],
)
def test_exactly_one_is_given(given: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=f"give exactly one trigger, not {found}") as caught:
        trigger(**given)
    assert "processingTime='10 seconds'" in caught.value.remedy


@pytest.mark.parametrize("name", ["continuous", "realTime"])
def test_what_spark_has_and_a_job_cannot_run_with_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"trigger: {name} is not possible: Spark's") as caught:
        trigger(**{name: "1 second"})
    assert "foreachBatch" in caught.value.what


def test_an_unknown_one_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no trigger 'processing_time'\. Did you mean 'process"):
        check_trigger({"processing_time": "1 second"}, "job.yaml: trigger")


WRONG: list[dict[str, Any]] = [
    {},
    {"continuous": "1 second"},
    {"procesingTime": "1 second"},
    {"processingTime": "10 secnds"},
    {"availableNow": False},
    {"once": True, "availableNow": True},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_to_write_instead_can_be_pasted_into_a_program_and_into_a_job_file(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError) as caught:
        trigger(**wrong)
    pasted = re.findall(r"\.trigger\((\w+)=([^)]+)\)", caught.value.remedy)
    assert pasted
    for key, value in pasted:
        assert trigger(**{key: ast.literal_eval(value)})
    with pytest.raises(ConfigError) as caught:
        check_trigger(wrong, "job.yaml: trigger", in_yaml)
    lines = re.findall(r"trigger: \{[^}]+\}", caught.value.remedy)
    assert len(lines) == len(pasted)
    for line in lines:
        assert check_trigger(yaml.safe_load(line)["trigger"], "job.yaml: trigger")
