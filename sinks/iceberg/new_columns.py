"""Adds columns of the rows that the table lacks, as optional ones, in a step of its own.

1. the rows' other columns fit the table, and the new ones have types that Iceberg has; a name
   that differs from a column's in case only is refused: engines take both for one
2. one commit adds them, and their names to the table's name mapping if it has one; it requires
   that the columns are as they were read
3. whoever was faster may have added them, or changed others: again from 1
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID

from twophase.errors import TargetUnreachableError
from twophase.sinks.common.lake.errors import brief
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.columns import check_rows, refused, table_schema

_TRIES = 10


def add_columns(catalog: Catalog, loaded: Table, rows: pa.Schema) -> Table:
    """Add what a table lacks of the columns of rows; return the table with them.

    Raises:
        ConfigError: the rows do not fit the table otherwise; nothing was added.
        TargetUnreachableError: the catalog does not take it.
    """
    failure: Exception | None = None
    uuid = loaded.metadata.table_uuid
    for _ in range(_TRIES):
        lacking = _lacking(loaded, rows)
        if not lacking.names:
            return loaded
        updates, requirements = private_api.new_columns(loaded, table_schema(lacking).fields)
        try:
            catalog.commit(loaded, [AssertTableUUID(uuid=uuid), *requirements], updates)
        except (CommitFailedException, OSError) as error:
            failure = error
        loaded = catalog.load()
    raise TargetUnreachableError(
        f"The columns {', '.join(map(repr, lacking.names))} could not be added to the table "
        f"{'.'.join(loaded.name())} in {_TRIES} tries: {brief(failure) if failure else ''}.",
        remedy="check that the catalog and the table's folder can be written, then start the job "
        "again.",
    )


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
    return new
