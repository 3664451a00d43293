"""Options: checked at the edge, before any write; an error names the key, the value, what is
allowed and what to do.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from twophase.errors import ConfigError
from twophase.options.job_options import CheckpointMode, JobOptions, RestartStrategy, StateBackend
from twophase.options.parsing import Duration, Options, parse_duration_s

LOCATION = {"checkpointLocation": "/chk/orders"}


def parse(**options: Any) -> JobOptions:
    return JobOptions.parse({**LOCATION, **options}, "job 'orders'")


def refuses(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    return str(caught.value)


# -- durations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ms", 0.5),
        ("1 millisecond", 0.001),
        ("10 s", 10),
        ("10s", 10),
        ("10 Seconds", 10),
        (" 2.5 min ", 150),
        ("1 minute", 60),
        ("2 h", 7200),
        ("1 hour", 3600),
        ("7", 7),
        (7, 7),
        (0.25, 0.25),
        ("0 s", 0),
    ],
)
def test_a_duration_is_a_number_with_a_unit_in_seconds_without_one(
    text: object, seconds: float
) -> None:
    assert parse(**{"checkpoint.min_pause": text}).min_pause_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "10 weeks", "10 mo", "-1 s", "1e3 s", "1,5 s", "ten s", "10 s 5 ms", "1..5 s"]
)
def test_a_duration_of_another_form_is_refused_with_the_forms(text: str) -> None:
    message = refuses(**{"checkpoint.min_pause": text})
    assert (
        f"option 'checkpoint.min_pause' is {text!r}: give a number with a unit: ms, s, min, h or d"
        in message
    )


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "9" * 400, None, [], True])
def test_a_duration_that_is_negative_endless_or_no_number_is_refused(value: object) -> None:
    assert "option 'checkpoint.min_pause'" in refuses(**{"checkpoint.min_pause": value})


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = parse_duration_s(text)
    except ValueError:
        return
    assert isinstance(seconds, float)
    assert seconds >= 0


def test_a_long_text_is_refused_in_bounded_time() -> None:
    assert "checkpoint.min_pause" in refuses(
        **{"checkpoint.min_pause": " " * 100_000 + "1" * 100_000 + "x"}
    )


# -- keys and values -------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_documentation() -> None:
    options = parse()
    assert (options.mode, options.timeout_s, options.min_pause_s) == (
        CheckpointMode.EXACTLY_ONCE,
        600,
        0,
    )
    assert (options.tolerable_failures, options.num_retained) == (0, 1)
    assert (options.restart_strategy, options.restore_path) == (RestartStrategy.EXPONENTIAL, None)
    assert not options.allow_non_restored_state
    assert not options.error_if_no_checkpoint


def test_values_may_be_strings_as_spark_gives_them() -> None:
    options = parse(
        **{
            "checkpoint.num_retained": "3",
            "restore.error_if_no_checkpoint": "true",
            "restart.strategy": "none",
        }
    )
    assert (options.num_retained, options.error_if_no_checkpoint) == (3, True)
    assert options.restart_strategy is RestartStrategy.NONE


def test_checkpoints_may_be_under_way_at_once_unless_each_is_to_be_followed_by_a_pause() -> None:
    assert parse().max_concurrent == 1
    assert parse(**{"checkpoint.max_concurrent": "3"}).max_concurrent == 3
    said = refuses(**{"checkpoint.max_concurrent": 2, "checkpoint.mode": "at_least_once"})
    assert "checkpoint.mode at_least_once requires checkpoint.max_concurrent = 1" in said
    said = refuses(**{"checkpoint.max_concurrent": 2, "checkpoint.min_pause": "1 s"})
    assert (
        "option 'checkpoint.min_pause' is '1 s': checkpoint.min_pause requires "
        "checkpoint.max_concurrent = 1"
    ) in said
    assert "option 'checkpoint.max_concurrent'" in refuses(**{"checkpoint.max_concurrent": 0})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("checkpoint.timout", "did you mean 'checkpoint.timeout'?"),
        ("checkpointlocation", "did you mean 'checkpointLocation'?"),
        ("checkpoint.tolerable_failure", "did you mean 'checkpoint.tolerable_failures'?"),
        ("xyzzy", "known options: chaining, checkpoint.interval, checkpoint.max_concurrent"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, hint: str) -> None:
    message = refuses(**{key: "1"})
    assert f"job 'orders': unknown option {key!r}; {hint}" in message


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("checkpoint.tolerable_failures", -1, "greater than or equal to 0"),
        ("checkpoint.tolerable_failures", "many", "valid integer"),
        ("checkpoint.tolerable_failures", 1.5, "valid integer"),
        ("checkpoint.tolerable_failures", 10**30, "less than or equal to 1000"),
        ("checkpoint.num_retained", 0, "greater than or equal to 1"),
        ("checkpoint.timeout", 0, "greater than 0"),
        ("checkpoint.timeout", "0 ms", "greater than 0"),
        ("checkpoint.mode", "at_most_once", "'exactly_once'"),
        ("restart.strategy", "always", "'exponential', 'fixed', 'failure_rate' or 'none'"),
        ("restore.error_if_no_checkpoint", "perhaps", "valid boolean"),
        ("checkpointLocation", "", "at least 1 character"),
        ("checkpointLocation", 7, "valid string"),
        ("restore.path", ["a"], "valid string"),
        ("commit.backoff", "0 s", "greater than 0"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(
    key: str, value: object, allowed: str
) -> None:
    message = refuses(**{key: value})
    assert f"option {key!r} is" in message
    assert repr(value) in message or isinstance(value, str)
    assert allowed in message


def test_a_missing_required_key_is_named() -> None:
    with pytest.raises(ConfigError, match="job 'orders': option 'checkpointLocation' is required"):
        JobOptions.parse({}, "job 'orders'")


def test_all_problems_are_named_at_once() -> None:
    message = refuses(**{"checkpoint.num_retained": 0, "checkpoint.timout": 1})
    assert "checkpoint.num_retained" in message
    assert "checkpoint.timout" in message


def test_a_mistake_in_the_options_exits_as_a_usage_error() -> None:
    assert ConfigError.exit_code == 2
    assert not ConfigError.restartable


def test_options_cannot_be_changed_after_they_were_checked() -> None:
    options = parse()
    with pytest.raises(ValidationError, match="frozen"):
        options.num_retained = 5  # type: ignore[misc]


def test_the_keys_are_those_that_the_user_writes() -> None:
    keys = JobOptions.keys()
    assert "checkpointLocation" in keys
    assert "checkpoint_location" not in keys


class Sample(Options):
    wait_s: Duration = Field(default=1.0, alias="wait")


def test_a_group_names_itself_in_its_errors() -> None:
    with pytest.raises(ConfigError, match=r"^sink 'facts': option 'wait' is 'long'"):
        Sample.parse({"wait": "long"}, "sink 'facts'")


@given(
    st.dictionaries(
        st.text(max_size=10), st.none() | st.integers() | st.text(max_size=10), max_size=5
    )
)
def test_whatever_is_given_is_accepted_or_a_config_error(options: dict[str, Any]) -> None:
    try:
        parse(**options)
    except ConfigError:
        return


# -- the state backend -----------------------------------------------------------------------------


def test_a_state_backend_is_one_of_two_or_left_to_spark() -> None:
    assert parse().state_backend is None
    assert parse(**{"state.backend": "rocksdb"}).state_backend is StateBackend.ROCKSDB
    assert "'state.backend' is 'forst'" in refuses(**{"state.backend": "forst"})


@pytest.mark.parametrize("incremental", ["true", "false"])
def test_only_rocksdb_is_incremental_or_not(incremental: str) -> None:
    given = {"state.backend.incremental": incremental}
    parsed = parse(**given, **{"state.backend": "rocksdb"})
    assert parsed.state_backend_incremental is (incremental == "true")
    assert "it applies to RocksDB only" in refuses(**given, **{"state.backend": "hashmap"})
