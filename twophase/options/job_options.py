"""The options of a job.

Flink's keys are accepted too: `twophase.options.other_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from twophase.options.other_keys import KEYS, as_written, with_our_keys
from twophase.options.parsing import Duration, Interval, Options, Size


class CheckpointMode(StrEnum):
    """Delivery guarantee: of all sinks together, or of each sink alone."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


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


class Chaining(StrEnum):
    """Whether tasks read a source and write a sink's rows in one Python process."""

    AUTO = "auto"
    OFF = "off"


class JobOptions(Options):
    """Options of a job. Flink's keys are accepted too: `twophase.options.other_keys`."""

    checkpoint_location: str = Field(
        alias="checkpointLocation",
        min_length=1,
        description="the job's folder, on a local file system; made for its user only (0700), "
        "refused if it, or a folder above it without the sticky bit, is writable by everyone "
        "(but for a [volume of a container](decisions/0069-a-volume-of-a-container.md)), or "
        "if it is writable by a group with other accounts in it",
    )
    interval_s: Interval | None = Field(
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
    chaining: Chaining = Field(
        default=Chaining.OFF,
        description="`auto`: where the rows of a sink are columns of the source, renamed, "
        "reordered or left out, each task reads from the source and writes to the sink in one "
        "process, and all such sinks share the read; `off`: every row goes through Spark "
        "([architecture](architecture.md#chained-sinks))",
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
        "failure since the restart after which the pause is reset",
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
        "is refused. The first start under another release of PySpark compares nothing",
    )
    restore_path: str | None = Field(
        default=None,
        alias="restore.path",
        description="begin a new lineage with the state of this checkpoint or savepoint, once; "
        "may stay set",
    )
    restore_id: str = Field(
        default="",
        alias="restore.id",
        description="names the restore: what `restore.path` names is restored once for each name, "
        "so another one restores it once more",
        json_schema_extra={"default": "no name"},
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
    allow_unproven_sources: bool = Field(
        default=False,
        alias="restore.allow_unproven_sources",
        description="rewind although a source cannot prove that what is taken back can be read "
        "again: set it if you know that it can ([savepoints](howto/savepoints.md#rewind))",
    )
    error_if_no_checkpoint: bool = Field(
        default=False,
        alias="restore.error_if_no_checkpoint",
        description="refuse a fresh start",
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """Parse and validate `options`, under our keys or Flink's; see `Options.parse`."""
        return cls.validated(with_our_keys(options, where), where, as_written(options))

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
