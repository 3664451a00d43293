"""Options: parsed once at the edge, frozen, checked before any write.

Every group of options is a subclass of `Options`. Values may be strings, as Spark passes them, or
typed. Unknown keys and bad values become one `ConfigError` that names the key, the value, what is
allowed and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from twophase.errors import ConfigError
from twophase.flink_keys import KEYS, with_our_keys

_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    # These are Flink's.
    "ns": 1e-9, "nano": 1e-9, "nanos": 1e-9, "nanosecond": 1e-9, "nanoseconds": 1e-9,
    "µs": 1e-6, "micro": 1e-6, "micros": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "milli": 0.001, "millis": 0.001, "secs": 1.0, "m": 60.0, "d": 86_400.0, "day": 86_400.0,
    "days": 86_400.0,
}  # fmt: skip

_UNITS_BYTES = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1024, "kb": 1024, "kibibytes": 1024,
    "m": 1024**2, "mb": 1024**2, "mebibytes": 1024**2,
}  # fmt: skip


def parse_duration_s(value: object) -> object:
    """Turn '10 seconds', '500 ms' or '10 min' into seconds; leave the rest to the type check."""
    if isinstance(value, bool):
        raise ValueError("a duration is a number with a unit, not true or false")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", value.lower())
    if match is None or (match[2] and match[2] not in _UNITS_S):
        raise ValueError("give a number with a unit: ms, s, min, h or d, such as '10 s'")
    return float(match[1]) * _UNITS_S.get(match[2], 1.0)


Duration = Annotated[float, BeforeValidator(parse_duration_s), Field(ge=0, allow_inf_nan=False)]
"""Seconds, zero or more."""


def parse_bytes(value: object) -> object:
    """Turn '20 kb' or '1 mb' into bytes, as Flink does; leave the rest to the type check."""
    if isinstance(value, bool):
        raise ValueError("a size is a number with a unit, not true or false")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if match is None or match[2] not in _UNITS_BYTES:
        raise ValueError("give a whole number with a unit: b, kb or mb, such as '20 kb'")
    return int(match[1]) * _UNITS_BYTES[match[2]]


Size = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]
"""Bytes, zero or more."""


def parse_names(value: object) -> object:
    """Split 'a, b', as Spark passes options, into names; leave the rest to the type check."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]
"""Names, as a list or separated by commas."""


class Options(BaseModel):
    """A frozen group of options. Unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """Parse and validate `options`.

        Args:
            options: keys as the user wrote them.
            where: what the options belong to, for the error, such as "sink 'facts'".

        Raises:
            ConfigError: a key is unknown or missing, or its value is not allowed.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(_explain(cls, error, where)) from None

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that a user may set, as documented."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def other_keys(cls) -> list[str]:
        """Return keys that are accepted for the same options; for the hint at an unknown one."""
        return []


def _explain(cls: type[Options], error: ValidationError, where: str) -> str:
    problems = []
    for detail in error.errors(include_url=False, include_context=False):
        key = ".".join(str(part) for part in detail["loc"]) or "options"
        match detail["type"]:
            case "extra_forbidden":
                near = difflib.get_close_matches(key, [*cls.keys(), *cls.other_keys()], n=1)
                known = ", ".join(sorted(cls.keys()))
                hint = f"did you mean {near[0]!r}?" if near else f"known options: {known}."
                problems.append(f"{where}: unknown option {key!r}; {hint}")
            case "missing":
                problems.append(f"{where}: option {key!r} is required.")
            case _:
                message = detail["msg"].removeprefix("Value error, ")
                problems.append(f"{where}: option {key!r} is {detail['input']!r}: {message}.")
    return " ".join(problems)


class CheckpointMode(StrEnum):
    """Delivery guarantee: of all sinks together, or of each sink alone."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class ExternalizedRetention(StrEnum):
    """Retention of the checkpoints of a job that ended before its input did."""

    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    DELETE_ON_CANCELLATION = "delete_on_cancellation"
    NO_EXTERNALIZED_CHECKPOINTS = "no_externalized_checkpoints"


class ClaimMode(StrEnum):
    """Who a restored savepoint belongs to."""

    NO_CLAIM = "no_claim"
    CLAIM = "claim"


class SinkAhead(StrEnum):
    """What a restore does if a sink has committed checkpoints after the restored one."""

    REFUSE = "refuse"
    REWIND = "rewind"
    FORK = "fork"


class StateBackend(StrEnum):
    """Spark's state store for keyed state, under Flink's names."""

    ROCKSDB = "rocksdb"
    HASHMAP = "hashmap"


class RestartStrategy(StrEnum):
    """Restart strategy of the job after a restartable error."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"
    FAILURE_RATE = "failure_rate"
    NONE = "none"


class JobOptions(Options):
    """Options of a job. Flink's keys are accepted too: `twophase.flink_keys`."""

    checkpoint_location: str = Field(
        alias="checkpointLocation",
        min_length=1,
        description="the job's folder, on a local file system; made for its user only (0700), "
        "refused if it, or a folder above it without the sticky bit, is writable by everyone, or "
        "if it is writable by a group with other accounts in it",
    )
    interval_s: Duration | None = Field(
        default=None,
        alias="checkpoint.interval",
        description="time from one trigger to the next; without it and without a trigger, the next "
        "begins when the last is done; a `.trigger(...)` wins over it, "
        "a job file with both is refused",
    )
    mode: CheckpointMode = Field(
        default=CheckpointMode.EXACTLY_ONCE,
        alias="checkpoint.mode",
        description="the delivery guarantee: `exactly_once` for all sinks together; with "
        "`at_least_once` a sink commits as soon as it has acknowledged, before the others "
        "([architecture](architecture.md#sinks-that-commit-ahead)); "
        "not with `checkpoint.max_concurrent` above 1",
    )
    timeout_s: Duration = Field(
        default=600.0,
        alias="checkpoint.timeout",
        gt=0,
        description="an attempt that has not been decided by then is declined",
    )
    max_concurrent: int = Field(
        default=1,
        alias="checkpoint.max_concurrent",
        ge=1,
        le=100,
        description="how many checkpoints may be in progress: above 1, a checkpoint is committed "
        "behind the next micro-batches "
        "([architecture](architecture.md#commits-behind-the-next-micro-batch)); "
        "not with `checkpoint.min_pause`",
    )
    min_pause_s: Duration = Field(
        default=0.0,
        alias="checkpoint.min_pause",
        description="least time between a commit and the next trigger",
    )
    tolerable_failures: int = Field(
        default=0,
        alias="checkpoint.tolerable_failures",
        ge=0,
        le=1000,
        description="consecutive declined attempts of a micro-batch that are retried in "
        "place before the query fails",
    )
    num_retained: int = Field(
        default=1,
        alias="checkpoint.num_retained",
        ge=1,
        le=10_000,
        description="committed checkpoints that keep their body, and can be restored; the newest "
        "with rows of each sink keeps it too",
    )
    copies: Names = Field(
        default=(),
        alias="checkpoint.copies",
        description="more folders for the bodies and state files of checkpoints, best on other "
        "disks, each for this job only; a file that is damaged or missing in the job's folder is "
        "read from the first copy that is intact ([operations](operations.md#copies))",
    )
    savepoint_dir: str | None = Field(
        default=None,
        alias="savepoint.dir",
        description="the folder for savepoints that are made without a path, each under a name of "
        "its own; outside the job's",
    )
    memory_threshold: Size = Field(
        default=20 * 1024,
        alias="checkpoint.memory_threshold",
        ge=0,
        le=1024 * 1024,
        description="a state of a function that is larger gets a file of its own, beside the "
        "checkpoint's body ([functions with state](howto/functions-with-state.md))",
    )
    externalized_retention: ExternalizedRetention = Field(
        default=ExternalizedRetention.RETAIN_ON_CANCELLATION,
        alias="checkpoint.externalized_retention",
        description="retention of the checkpoints of a stopped job: kept, or deleted "
        "with Spark's folder, and the job does not start again from here; "
        "`no_externalized_checkpoints` deletes them after a failure too that no restart follows",
    )
    commit_backoff_s: Duration = Field(
        default=0.1,
        alias="commit.backoff",
        gt=0,
        description="first pause before a decided checkpoint is committed again; it doubles",
    )
    commit_backoff_max_s: Duration = Field(
        default=30.0,
        alias="commit.backoff_max",
        gt=0,
        description="longest such pause; a decided checkpoint is tried until it is committed",
    )
    restart_strategy: RestartStrategy = Field(
        default=RestartStrategy.EXPONENTIAL,
        alias="restart.strategy",
        description="how a failed query is restarted",
    )
    restart_attempts: int = Field(
        default=10,
        alias="restart.attempts",
        ge=0,
        description="fixed: restarts in all; failure_rate: failures within the window",
    )
    restart_delay_s: Duration = Field(
        default=1.0,
        alias="restart.delay",
        description="pause before a restart; exponential: the first one, and it doubles",
    )
    restart_delay_max_s: Duration = Field(
        default=60.0,
        alias="restart.delay_max",
        description="exponential: the longest pause",
    )
    restart_window_s: Duration = Field(
        default=600.0,
        alias="restart.window",
        gt=0,
        description="failure_rate: what failures are counted over; exponential: time without "
        "failure after which the pause is "
        "reset",
    )
    state_backend: StateBackend | None = Field(
        default=None,
        alias="state.backend",
        description="where Spark keeps keyed state: `rocksdb` (on disk, for large state and "
        "`transformWithState`) or `hashmap` (in the executors' memory); without it, what "
        "`spark.sql.streaming.stateStore.providerClass` says",
    )
    state_backend_incremental: bool | None = Field(
        default=None,
        alias="state.backend.incremental",
        description="only with RocksDB: write the changes of a micro-batch instead of whole tables "
        "(changelog checkpointing); without it, `true` with `state.backend` `rocksdb`, unless "
        "`spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled` is set",
    )
    allow_changed_plan: bool = Field(
        default=False,
        alias="state.allow_changed_plan",
        description="continue, with a warning, although the plan now keeps state of other "
        "expressions: set it if they mean the same or the state fits them; otherwise such a plan "
        "is refused",
    )
    restore_path: str | None = Field(
        default=None,
        alias="restore.path",
        description="begin a new lineage with the state of this checkpoint or savepoint; may stay "
        "set",
    )
    claim_mode: ClaimMode = Field(
        default=ClaimMode.NO_CLAIM,
        alias="restore.claim_mode",
        description="`no_claim`: the savepoint stays, and is the user's to delete; `claim`: it "
        "belongs to the job, which deletes it when `checkpoint.num_retained` newer checkpoints are "
        "committed; not for a checkpoint in another folder",
    )
    sink_ahead: SinkAhead = Field(
        default=SinkAhead.REFUSE,
        alias="restore.sink_ahead",
        description="what a restore does if a sink has committed checkpoints after the restored "
        "one: `refuse` it; `rewind` takes their rows back out of the targets; `fork` begins a job "
        "of another name with a savepoint, beside the original "
        "([savepoints](howto/savepoints.md#an-older-savepoint))",
    )
    allow_non_restored_state: bool = Field(
        default=False,
        alias="restore.allow_non_restored_state",
        description="drop state that the job has no operator for, or whose file is missing or "
        "damaged; let a sink have another name; "
        "restore a plan that looks stateful to twophase and is not",
    )
    error_if_no_checkpoint: bool = Field(
        default=False,
        alias="restore.error_if_no_checkpoint",
        description="refuse a fresh start",
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """Parse and validate `options`, under our keys or Flink's; see `Options.parse`."""
        return super().parse(with_our_keys(options, where), where)

    @classmethod
    def other_keys(cls) -> list[str]:
        """Return Flink's keys."""
        return [key.name for key in KEYS]

    @field_validator("max_concurrent")
    @classmethod
    def _ahead_alone(cls, max_concurrent: int, info: ValidationInfo) -> int:
        """A sink is ahead in the one checkpoint that follows the newest decided one."""
        if max_concurrent > 1 and info.data.get("mode") is CheckpointMode.AT_LEAST_ONCE:
            raise ValueError("checkpoint.mode at_least_once requires checkpoint.max_concurrent = 1")
        return max_concurrent

    @field_validator("min_pause_s")
    @classmethod
    def _pause_alone(cls, pause_s: float, info: ValidationInfo) -> float:
        """Flink's rule: with a pause after each commit, no commit can overlap a checkpoint."""
        if pause_s and info.data.get("max_concurrent", 1) > 1:
            raise ValueError("checkpoint.min_pause requires checkpoint.max_concurrent = 1")
        return pause_s

    @field_validator("state_backend_incremental")
    @classmethod
    def _incremental_rocksdb(cls, incremental: bool | None, info: ValidationInfo) -> bool | None:
        """The other backend has one way to write its files, which has no name."""
        if incremental is not None and info.data.get("state_backend") == StateBackend.HASHMAP:
            raise ValueError("it applies to RocksDB only: leave it out with state.backend hashmap")
        return incremental
