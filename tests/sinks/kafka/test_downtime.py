"""What a job may make a transaction wait, against how long Kafka keeps it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from twophase.contract.committable import Committable
from twophase.contract.sink import Waits
from twophase.engine.restart import waits_of
from twophase.errors import ConfigError
from twophase.ids import Subtask
from twophase.options.job_options import JobOptions
from twophase.sinks.kafka.downtime import UNTIL, check_waits, time_left
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.testing.harness import transaction_id


def options(timeout: str = "15 min") -> KafkaSinkOptions:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "transaction_timeout": timeout}
    return KafkaSinkOptions.parse(given)


def waits(**given: str) -> Waits:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return waits_of(JobOptions.parse({"checkpointLocation": "/job", **named}, "job"))


def test_the_defaults_of_job_and_sink_go_together(caplog: pytest.LogCaptureFixture) -> None:
    check_waits(waits(), options(), "out")
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("given", "option", "seconds"),
    [
        ({"checkpoint__timeout": "15 min"}, "checkpoint.timeout", 900),
        ({"commit__backoff_max": "20 min"}, "commit.backoff_max", 1200),
        ({"restart__delay_max": "1 h"}, "restart.delay_max", 3600),
        ({"restart__strategy": "fixed", "restart__delay": "16 min"}, "restart.delay", 960),
        ({"restart__strategy": "failure_rate", "restart__delay": "16 min"}, "restart.delay", 960),
        ({"restart__delay": "17 min"}, "restart.delay", 1020),
    ],
)
def test_a_setting_that_is_too_long_is_refused_by_name_and_both_remedies_help(
    given: dict[str, str], option: str, seconds: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_waits(waits(**given), options(), "out")
    assert caught.value.what.startswith(f"{option} is {seconds} s")
    assert caught.value.remedy.startswith(
        f"set {option} below 900 s, or transaction_timeout above {seconds} s"
    )
    assert "; or set `protocol=staged`" in caught.value.remedy
    check_waits(waits(**given), options(f"{seconds + 1} s"), "out")
    key = option.replace(".", "__")
    check_waits(waits(**{**given, key: "899 s"}), options(), "out")


@pytest.mark.parametrize(
    "given",
    [
        {"restart__strategy": "none", "restart__delay": "1 h"},
        {"restart__strategy": "fixed", "restart__delay_max": "1 h"},
        {"checkpoint__min_pause": "1 h"},
        {"checkpoint__interval": "1 h"},
    ],
)
def test_what_no_transaction_waits_for_may_be_as_long_as_it_likes(
    given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    check_waits(waits(**given), options(), "out")
    assert caplog.text == ""


def test_settings_that_are_too_long_together_are_warned_about_and_the_way_on_helps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"checkpoint__timeout": "14 min"}
    with caplog.at_level(logging.WARNING):
        check_waits(waits(**given), options(), "out")
    for part in (
        "sink out",
        "840 s",
        "60 s",
        "restart.delay_max",
        "checkpoint.timeout below 840 s",
    ):
        assert part in caplog.text
    caplog.clear()
    check_waits(waits(checkpoint__timeout="839 s"), options(), "out")
    check_waits(waits(**given), options("901 s"), "out")
    assert caplog.text == ""


def test_a_wait_for_another_sink_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_waits(replace(waits(), behind=("facts", "lake")), options(), "out")
    for part in (
        "sink out: checkpoint.max_concurrent is above 1",
        "while facts or lake cannot commit",
        "After 900 s",
        "Set checkpoint.max_concurrent to 1; or set `protocol=staged`",
    ):
        assert part in caplog.text


def piece(**handle: object) -> Committable:
    return Committable(transaction_id(), Subtask(0, 0), "kafka:x", 1, handle)


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([], ""),
        ([piece(id="x")], ""),
        ([piece(**{UNTIL: 1_300}), piece(**{UNTIL: 1_200}), piece(id="x")], "in 200 s"),
        ([piece(**{UNTIL: 990})], "has aborted it 10 s ago"),
    ],
)
def test_the_time_left_is_that_of_the_oldest(pieces: list[Committable], says: str) -> None:
    found = time_left(pieces, 1_000.0)
    assert says in found
    assert bool(says) is bool(found)
