"""Adds columns of the rows that the table lacks, as optional ones, in a step of its own.

1. the rows' other columns fit the table, and the new ones have types that Iceberg has; a name
   that differs from a column's in case only is refused: engines take both for one
2. one commit adds them, and their names to the table's name mapping if it has one; it requires
   that the columns are as they were read
3. whoever was faster may have added them, or changed others: again from 1
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID

from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.catalog import Catalog, Change
from twophase.sinks.iceberg.columns import check_rows, name_problems, refused, table_schema


def add_columns(catalog: Catalog, rows: pa.Schema) -> Table:
    """Add what the table lacks of the columns of rows; return the table with them.

    Raises:
        ConfigError: the rows do not fit the table otherwise; nothing was added.
        TargetUnreachableError: the catalog does not take it.
    """
    found: list[Table] = []

    def plan() -> Change | None:
        loaded = catalog.load()
        found[:] = [loaded]
        lacking = table_schema(_lacking(loaded, rows)).fields
        if not lacking:
            return None
        if problems := catalog.refusals(lacking):
            raise refused(problems)
        updates, requirements = private_api.new_columns(loaded, lacking)
        table = AssertTableUUID(uuid=loaded.metadata.table_uuid)
        return Change(loaded, [table, *requirements], updates)

    catalog.commit_with_retries(plan, "The columns that the table lacks could not be added")
    return found[0]


def _lacking(loaded: Table, rows: pa.Schema) -> pa.Schema:
    """Step 1: return the columns to add."""
    schema = loaded.schema()
    names = [column.name for column in schema.fields]
    lower = {name.lower(): name for name in names}
    new = pa.schema([field for field in rows if field.name not in names])
    check_rows(pa.schema([field for field in rows if field.name in names]), schema)
    alike = [name for name in new.names if name.lower() in lower]
    if alike:
        raise refused(
            [
                f"column {name!r} is not in the table, and differs from {lower[name.lower()]!r} in "
                "case only"
                for name in alike
            ]
        )
    if problems := name_problems([*schema.fields, *table_schema(new).fields]):
        raise refused(problems)
    return new
