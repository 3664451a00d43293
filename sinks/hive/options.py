"""The options of the sink, parsed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from twophase.config import Duration, Names, Options
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.hive.policies import CommittedPartition


class Trigger(StrEnum):
    """The trigger that commits a partition with new files, which means that its policies run."""

    CHECKPOINT = "checkpoint"
    PARTITION_TIME = "partition_time"


class HiveOptions(Options):
    """The options of `HiveSink`.

    Attributes:
        table: its name in Spark's catalog, such as `shop.orders`.
        create: create the table from the rows' columns if it does not exist.
        format: of a table that is created, parquet or orc; an existing one keeps its own.
        partition_by: partition columns of a table that is created; an existing one keeps its own.
        partition: static partition: partition columns that the rows do not have, with their values.
        root: the table's folder has to be this folder or inside it.
        success_file: write an empty `_SUCCESS` into the folder of each committed partition.
        on_partition_commit: called on the driver for each committed partition, possibly more than once.
        partition_commit_trigger: `checkpoint`: with every checkpoint that has rows of it; or `partition_time`.
        partition_time: the partition's time, such as `$dt $hour:00:00`; for the trigger `partition_time`.
        event_time: the column with the time of a row; for the trigger `partition_time`.
        partition_commit_delay: how long a partition stays open after its time; for the trigger `partition_time`.
    """

    table: str = Field(min_length=1)
    create: bool = False
    format: Format = Format.PARQUET
    partition_by: Names = ()
    partition: Mapping[str, str] = Field(default_factory=dict)
    root: str | None = Field(default=None, min_length=1)
    success_file: bool = False
    on_partition_commit: Callable[[CommittedPartition], None] | None = None
    partition_commit_trigger: Trigger = Trigger.CHECKPOINT
    partition_time: str | None = None
    event_time: str | None = None
    partition_commit_delay: Duration = 0.0

    @field_validator("format")
    @classmethod
    def _known_to_hive(cls, value: Format) -> Format:
        if value not in (Format.PARQUET, Format.ORC):
            raise ValueError("a table is made as parquet or orc")
        return value

    @model_validator(mode="after")
    def _timed(self) -> Self:
        timed = self.partition_commit_trigger is Trigger.PARTITION_TIME
        if timed != (self.partition_time is not None) or timed != (self.event_time is not None):
            raise ValueError("partition_time and event_time go with partition_commit_trigger = partition_time")
        if self.partition_by and not self.create:
            raise ValueError("partition_by goes with create: an existing table has its own")
        return self
