"""The options of the sink, parsed once."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from twophase.options.parsing import Options, PartitionColumns


class DeltaOptions(Options):
    """The options of `DeltaSink`."""

    path: str | None = Field(
        default=None,
        min_length=1,
        description="folder of the table, absolute or a URI such as `s3a://bucket/orders`; or",
        json_schema_extra={"default": "one of them"},
    )
    table: str | None = Field(
        default=None,
        min_length=1,
        description="its name in Spark's catalog",
        json_schema_extra={"default": "one of them"},
    )
    root: str | None = Field(
        default=None,
        min_length=1,
        description="`path` has to be this folder or inside it, even after links are followed",
    )
    create: bool = Field(
        default=False, description="create the table from the rows' columns if it does not exist"
    )
    partition_by: PartitionColumns = Field(
        default=(),
        description="partition columns of a new table; an existing one must have exactly these",
    )
    merge_schema: bool = Field(
        default=False,
        description="add columns that the table lacks, as nullable columns, "
        "in a commit before the rows",
    )
    allow_single_driver_log_store: bool = Field(
        default=False,
        description="accept a storage where Delta separates commits within one process only",
    )

    @field_validator("path", "root")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/") and ":/" not in value:
            raise ValueError(
                "give an absolute path or a URI: the driver's working "
                "folder is not a place for a table"
            )
        if value is not None and "\0" in value:
            raise ValueError("a path cannot contain NUL")
        return value

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path or table")
        if self.root is not None and self.path is None:
            raise ValueError("root requires path: the catalog decides where a named table is")
        return self

    @property
    def where(self) -> str:
        """The target as the user wrote it."""
        return self.path or self.table or ""
