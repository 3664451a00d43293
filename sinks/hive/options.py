"""The options of the sink, parsed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from twophase.options.parsing import Duration, Names, Options
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.hive.policies import CommittedPartition


class Trigger(StrEnum):
    """The trigger that commits a partition with new files, which means that its policies run."""

    CHECKPOINT = "checkpoint"
    PARTITION_TIME = "partition_time"


class HiveOptions(Options):
    """The options of `HiveSink`."""

    table: str = Field(
        min_length=1, description="its name in Spark's catalog, such as `shop.orders`"
    )
    create: bool = Field(
        default=False, description="create the table from the rows' columns if it does not exist"
    )
    format: Format = Field(
        default=Format.PARQUET,
        description="of a new table; an existing one keeps its own",
        json_schema_extra={"type": "`parquet`, `orc`"},
    )
    partition_by: Names = Field(
        default=(),
        description="partition columns of a new table; an existing one keeps its own",
    )
    partition: Mapping[str, str] = Field(
        default_factory=dict,
        description="static partition: partition columns that the rows do not have, "
        "with their values",
    )
    root: str | None = Field(
        default=None,
        min_length=1,
        description="the table's folder has to be this folder or inside it",
    )
    success_file: bool = Field(
        default=False, description="an empty `_SUCCESS` in the folder of each committed partition"
    )
    on_partition_commit: Callable[[CommittedPartition], None] | None = Field(
        default=None,
        description="called on the driver for each committed partition, perhaps more than once",
    )
    partition_commit_trigger: Trigger = Field(
        default=Trigger.CHECKPOINT,
        description="when partitions are committed: with each checkpoint that has rows of them, "
        "or `partition_time`",
    )
    partition_time: str | None = Field(
        default=None, description="the partition's time, such as `$dt $hour:00:00`"
    )
    event_time: str | None = Field(
        default=None, description="the column of the rows with their time"
    )
    partition_commit_delay: Duration = Field(
        default=0.0, description="how long a partition stays open after its time"
    )
    partition_commit_watermark_time_zone: str = Field(
        default="UTC",
        description="the time zone of `partition_time`, such as `America/New_York`",
    )
    event_time_max_future: Duration = Field(
        default=86_400.0,
        description="a row whose `event_time` is further ahead of the clock does not move the "
        "watermark",
    )

    @field_validator("partition_commit_watermark_time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("no such time zone: give its name, as America/New_York") from error
        return value

    @field_validator("format")
    @classmethod
    def _known_to_hive(cls, value: Format) -> Format:
        if value not in (Format.PARQUET, Format.ORC):
            raise ValueError("a new table is parquet or orc")
        return value

    @model_validator(mode="after")
    def _timed(self) -> Self:
        timed = self.partition_commit_trigger is Trigger.PARTITION_TIME
        if timed != (self.partition_time is not None) or timed != (self.event_time is not None):
            raise ValueError(
                "set partition_time and event_time if partition_commit_trigger is partition_time, "
                "and only then"
            )
        if self.partition_by and not self.create:
            raise ValueError("partition_by requires create: an existing table keeps its own")
        return self
