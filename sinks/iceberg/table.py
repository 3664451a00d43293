"""The table that rows go to, as its writers need it; the sink takes it to the executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.sorting import SortOrder

from twophase.sinks.common.lake.rows import TableColumn
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.iceberg.partitions import Partitions
from twophase.sinks.iceberg.sorting import Sorting

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class WrittenTable:
    """One version of a table, for the writers of one job and sink, which compute the rest.

    Attributes:
        area: the staging area of the job and sink, in the table's folder.
        target: the target's identity (I10).
        schema_json: the table's schema, as Iceberg's metadata has it.
        spec_json: its partition spec, likewise.
        order_json: its sort order, likewise; empty if rows are not sorted.
        properties: of the table: how files are written.
        fields: the type of each column, by its id, as the manifest has it.
    """

    area: StagingArea
    target: str
    schema_json: str
    spec_json: str
    order_json: str
    properties: Mapping[str, str]
    fields: Mapping[str, str]

    @classmethod
    def of(cls, area: StagingArea, target: str, metadata: TableMetadata) -> WrittenTable:
        """Return the current version of a table."""
        order = metadata.sort_order()
        properties = {
            key: value for key, value in metadata.properties.items() if key.startswith("write.")
        }
        return cls(
            area,
            target,
            metadata.schema().model_dump_json(),
            metadata.spec().model_dump_json(),
            order.model_dump_json() if order.fields else "",
            properties,
            fields_of(metadata),
        )

    @cached_property
    def schema(self) -> Schema:
        """The table's schema."""
        return Schema.model_validate_json(self.schema_json)

    @cached_property
    def spec(self) -> PartitionSpec:
        """Its partition spec."""
        return PartitionSpec.model_validate_json(self.spec_json)

    @cached_property
    def partitions(self) -> Partitions:
        """Its partitions."""
        return Partitions(self.spec, self.schema)

    @cached_property
    def sorting(self) -> Sorting | None:
        """Its sort order; None if rows are not sorted."""
        if not self.order_json:
            return None
        return Sorting(SortOrder.model_validate_json(self.order_json), self.schema)

    @cached_property
    def file_schema(self) -> Schema:
        """The schema of data files, whose columns have names that Avro allows."""
        return sanitize_column_names(self.schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The same as Arrow has it, with the ids of the columns."""
        return schema_to_pyarrow(self.file_schema)

    @cached_property
    def columns(self) -> Sequence[TableColumn]:
        """The columns as rows have them, with the table's names outside and inside."""
        forms = schema_to_pyarrow(self.schema)
        return [
            TableColumn(field.name, form.type, field.required)
            for field, form in zip(self.schema.fields, forms, strict=True)
        ]


def fields_of(metadata: TableMetadata) -> dict[str, str]:
    """Return the type of each column, and whether it is required, by its id."""
    return {
        str(field.field_id): f"{field.field_type}{' required' if field.required else ''}"
        for field in metadata.schema().fields
    }
