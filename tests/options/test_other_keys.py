"""Flink's keys are accepted for ours; others are refused by name, with what to do instead."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.options.test_config import LOCATION, parse, refuses
from twophase.cli.jobfile.job_file import load_job_file
from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.options.other_keys import KEYS, REFUSED, FlinkKey, our_key
from twophase.spark.job.job import Job

# For each option, a value as Flink has it, and what it is here.
VALUES: dict[str, tuple[Any, Any]] = {
    "checkpointLocation": ("file:///chk/flink", "file:///chk/flink"),
    "checkpoint.interval": ("10 min", 600.0),
    "checkpoint.mode": ("EXACTLY_ONCE", "exactly_once"),
    "checkpoint.timeout": ("30s", 30.0),
    "checkpoint.max_concurrent": ("2", 2),
    "checkpoint.min_pause": ("500 ms", 0.5),
    "checkpoint.tolerable_failures": ("3", 3),
    "checkpoint.num_retained": ("4", 4),
    "state.backend": ("HASHMAP", "hashmap"),
    "state.backend.incremental": ("true", True),
    "checkpoint.memory_threshold": ("64kb", 65_536),
    "restart.strategy": ("fixed-delay", "fixed"),
    "restart.attempts": ("5", 5),
    "restart.delay": ("2 m", 120.0),
    "restart.delay_max": ("1 d", 86_400.0),
    "restart.window": ("1 h", 3600.0),
    "restore.path": ("/chk/orders/chk/a-1-1.1", "/chk/orders/chk/a-1-1.1"),
    "restore.allow_non_restored_state": ("true", True),
    "savepoint.dir": ("file:///savepoints", "file:///savepoints"),
}
NAMES = [key.name for key in KEYS]


def field_of(options: JobOptions, key: str) -> Any:
    name = next(name for name, field in JobOptions.model_fields.items() if field.alias == key)
    return getattr(options, name)


@pytest.mark.parametrize("key", KEYS, ids=NAMES)
def test_a_key_of_flinks_sets_the_option_that_it_is_an_alias_of(key: FlinkKey) -> None:
    given, expected = VALUES[key.ours]
    strategy = {"restart.strategy": key.strategy} if key.strategy else {}
    location = {} if key.ours == "checkpointLocation" else LOCATION
    options = JobOptions.parse({**location, **strategy, key.name: given}, "job 'orders'")
    assert field_of(options, key.ours) == expected


@pytest.mark.parametrize("key", KEYS, ids=NAMES)
def test_an_option_that_is_given_by_both_names_is_refused_with_both(key: FlinkKey) -> None:
    theirs, ours = VALUES[key.ours]
    message = refuses(**{key.ours: ours, key.name: theirs})
    assert f"{key.ours!r} and {key.name!r} set the same option" in message
    strategy = {"restart.strategy": key.strategy} if key.strategy else {}
    for kept in ({key.ours: ours}, {key.name: theirs}):
        location = {} if key.ours == "checkpointLocation" else LOCATION
        assert field_of(JobOptions.parse({**location, **strategy, **kept}, "job"), key.ours) == ours


@pytest.mark.parametrize("given", [60_000, 60_000.0, "60000", " 60000 ", "60000.0"])
def test_a_duration_without_a_unit_is_milliseconds_under_flinks_key_and_seconds_under_ours(
    given: Any,
) -> None:
    assert parse(**{"execution.checkpointing.timeout": given}).timeout_s == 60
    assert parse(**{"checkpoint.timeout": given}).timeout_s == 60_000


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ("none", "none"),
        ("off", "none"),
        (False, "none"),  # `off` in YAML
        ("disable", "none"),
        ("FixedDelay", "fixed"),
        ("failure-rate", "failure_rate"),
        ("exponential-delay", "exponential"),
    ],
)
def test_the_restart_strategies_have_flinks_names_under_flinks_key(
    given: Any, strategy: str
) -> None:
    assert parse(**{"restart-strategy.type": given}).restart_strategy == strategy


def test_an_empty_strategy_is_refused_and_switches_nothing_off() -> None:
    assert "'restart-strategy.type' is None" in refuses(**{"restart-strategy.type": None})


def test_a_key_of_another_restart_strategy_is_refused() -> None:
    message = refuses(**{"restart-strategy.fixed-delay.delay": "1 s"})
    assert (
        "'restart-strategy.fixed-delay.delay' does not apply to the job's restart "
        "strategy 'exponential'"
    ) in message
    assert 'set .option("restart.strategy", "fixed")' in message
    [(name, value)] = re.findall(r'\.option\("(.+?)", "(.+?)"\)', message)
    options = parse(**{"restart-strategy.fixed-delay.delay": "1 s", name: value})
    assert (options.restart_strategy, options.restart_delay_s) == ("fixed", 1)
    assert parse().restart_strategy == "exponential", "left out"


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key.ours != "checkpointLocation"], ids=lambda key: key.name
)
def test_a_value_is_refused_under_the_name_and_as_the_user_wrote_it(key: FlinkKey) -> None:
    bad: Any = -1 if key.duration else [7]
    given = {"restart-strategy.type": key.strategy.replace("_", "-")} if key.strategy else {}
    message = refuses(**{**given, key.name: bad})
    assert f"option {key.name!r} is {bad!r}: " in message
    assert not re.search(rf"(?<![\w.-]){re.escape(key.ours)}(?![\w.-])", message)


def test_an_option_that_depends_on_another_names_both_as_they_are_written() -> None:
    message = refuses(
        **{
            "execution.checkpointing.max-concurrent-checkpoints": 2,
            "execution.checkpointing.min-pause": 500,
        }
    )
    assert (
        "option 'execution.checkpointing.min-pause' is 500: execution.checkpointing.min-pause "
        "requires execution.checkpointing.max-concurrent-checkpoints = 1." in message
    )


def test_a_mistyped_key_of_flinks_is_refused_with_the_nearest_one() -> None:
    assert "did you mean 'execution.checkpointing.timeout'?" in refuses(
        **{"execution.checkpointing.timeut": "1 s"}
    )


def job_file(folder: Path, option: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(
        "name: orders\n"
        "source: {format: rate}\n"
        "sinks: {facts: {type: mysql, options: {url: 'mysql://app@db/shop', table: orders}}}\n"
        f"options:\n  checkpointLocation: /chk/orders\n  {option}\n"
    )
    return path


def test_a_job_file_may_have_flinks_keys(tmp_path: Path) -> None:
    job = load_job_file(job_file(tmp_path, "restart-strategy.type: off"), {})
    assert job.options == {**LOCATION, "restart.strategy": "none"}


@pytest.mark.parametrize(("written", "shown"), [("5 weeks", "'5 weeks'"), ("-5", "-5")])
def test_a_job_file_s_mistake_is_named_as_it_is_written(
    tmp_path: Path, written: str, shown: str
) -> None:
    path = job_file(tmp_path, f"execution.checkpointing.min-pause: {written}")
    with pytest.raises(ConfigError) as caught:
        load_job_file(path, {"checkpointLocation": "/chk"})
    assert f"option 'execution.checkpointing.min-pause' is {shown}: " in caught.value.what


def test_the_command_line_wins_over_flinks_key_in_the_job_file(tmp_path: Path) -> None:
    path = job_file(tmp_path, "execution.state-recovery.path: /chk/a")
    assert load_job_file(path, {"restore.path": "/chk/b"}).options["restore.path"] == "/chk/b"


def test_a_key_that_means_nothing_here_is_refused_in_a_job_file_too(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"job.yaml: options: option 'state.checkpoint-storage' is not supported",
    ):
        load_job_file(job_file(tmp_path, "state.checkpoint-storage: jobmanager"), {})


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_is_refused_by_name_with_what_to_do_instead(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**{name: "true"})
    assert f"job 'orders': option {name!r} is not supported." in str(caught.value)
    assert caught.value.remedy == f"{REFUSED[name]}."
    assert "\n" not in caught.value.remedy
    instead = re.match("write `(.+)` or `(.+)`", caught.value.remedy)
    assert instead or caught.value.remedy.startswith("leave it out: ")
    for key in instead.groups() if instead else ():
        ours = our_key(key)
        given = VALUES[ours][ours == key]
        options = JobOptions.parse(
            {**(LOCATION if ours != "checkpointLocation" else {}), key: given}, "job"
        )
        assert field_of(options, ours) == VALUES[ours][1]
    assert parse().checkpoint_location == LOCATION["checkpointLocation"], "left out"


@pytest.mark.parametrize("given", [True, False])
def test_drain_of_a_savepoint_is_refused_by_name_and_the_job_runs_on(given: Any) -> None:
    job: Any = SimpleNamespace(name="orders")  # nothing to stop
    with pytest.raises(ConfigError) as caught:
        Job.stop_with_savepoint(job, "/savepoints/orders-1", drain=given)
    assert "argument 'drain' is not supported. The job runs on." in str(caught.value)
    assert caught.value.remedy == "leave it out: open windows stay in the savepoint."


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_no_option_under_any_name(name: str) -> None:
    assert name not in {*JobOptions.keys(), *JobOptions.other_keys()}


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("checkpoint.copies", "back up the job's folder"),
        ("checkpoint.externalized_retention", "delete it by hand"),
        ("execution.checkpointing.externalized-checkpoint-retention", "delete it by hand"),
        ("restore.claim_mode", "`twophase savepoint dispose PATH`"),
        ("execution.state-recovery.claim-mode", "`twophase savepoint dispose PATH`"),
        ("execution.savepoint-restore-mode", "`twophase savepoint dispose PATH`"),
        (
            "execution.savepoint.ignore-unclaimed-state",
            "write `execution.state-recovery.ignore-unclaimed-state` or `restore.allow_non",
        ),
        (
            "execution.savepoint.path",
            "write `execution.state-recovery.path` or `restore.path`",
        ),
        ("restart-strategy", "write `restart-strategy.type` or `restart.strategy`"),
        ("state.backend.fs.memory-threshold", "or `checkpoint.memory_threshold`"),
        (
            "state.checkpoints.dir",
            "write `execution.checkpointing.dir` or `checkpointLocation`",
        ),
        (
            "state.checkpoints.num-retained",
            "write `execution.checkpointing.num-retained` or `checkpoint.num_retained`",
        ),
        (
            "state.savepoints.dir",
            "write `execution.checkpointing.savepoint-dir` or `savepoint.dir`",
        ),
        (
            "state.storage.fs.memory-threshold",
            "write `execution.checkpointing.data-inline-threshold` or `checkpoint.memory_thre",
        ),
    ],
)
def test_what_earlier_drafts_accepted_is_refused_with_what_to_use(name: str, instead: str) -> None:
    assert instead in REFUSED[name]
