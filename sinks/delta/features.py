"""The allow-list of Delta table features, each entry with a test on a real table.

A feature that is not on it is refused by name before any write. A new feature of Delta may require
something of writers that phase 1 and phase 2, in two transactions, do not provide.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from twophase.sinks.delta.layout import TableLayout

SUPPORTED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",  # as a table feature; a column that uses it is refused
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


def refusals(layout: TableLayout) -> list[str]:
    """Return why this sink does not write to a table with that layout; empty if it does."""
    found = [
        f"table feature {name!r} is not supported"
        for name in layout.features
        if name not in SUPPORTED
    ]
    found += [
        f"column {name!r} is an identity column: its numbers are assigned in the "
        "transaction that writes the files, and this sink commits them in another"
        for name in layout.identity_columns()
    ]
    found += [
        (
            f"column {field['name']!r} is {field['metadata'][_CHAR_VARCHAR]}: its length is not "
            "checked here, use string"
        )
        for field in layout.fields
        if _CHAR_VARCHAR in field["metadata"]
    ]
    return found


def refusal_of_column(kind: DataType) -> str:
    """Return why a column of this type is not added to any table; empty if it may be.

    Its feature would come into the table with it, and the table would be refused from then on.
    """
    match kind:
        case VariantType():
            return "a VARIANT is not supported; convert it to a string, for example with to_json"
        case StructType():
            inside = [field.dataType for field in kind.fields]
        case ArrayType():
            inside = [kind.elementType]
        case MapType():
            inside = [kind.keyType, kind.valueType]
        case _:
            inside = []
    return next((reason for one in inside if (reason := refusal_of_column(one))), "")
