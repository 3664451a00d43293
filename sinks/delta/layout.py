"""The layout of a table: what in its metadata and protocol decides whether a data file fits.

Between the two phases others may alter the table. The commit compares the layout of phase 1 with
the layout of the latest snapshot. Equal, or wider by nullable columns: the files read as if written
now. Anything else: the job stops (H26).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

_FILE_PROPERTIES = ("delta.columnMapping.mode", "delta.enableVariantShredding")
_FILE_PROPERTY_PREFIXES = ("delta.constraints.", "delta.enableIcebergCompat")
_HARMLESS_METADATA = frozenset({"comment", "CURRENT_DEFAULT"})
_GENERATION = "delta.generationExpression"
_INVARIANTS = "delta.invariants"
_IDENTITY = "delta.identity."

Field = Mapping[str, Any]


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table.

    Attributes:
        fields: its columns as Spark writes them in JSON: name, type, nullable, metadata.
        partition_columns: in order.
        features: the table features that its protocol names; empty if the protocol
            predates features.
        properties: the table properties that constrain data files.
    """

    fields: tuple[Field, ...]
    partition_columns: tuple[str, ...]
    features: tuple[str, ...]
    properties: Mapping[str, str]

    @classmethod
    def read(cls, protocol: str, metadata: str) -> Self:
        """Return the layout in the two actions that Delta writes in JSON."""
        named = json.loads(protocol)["protocol"]
        table = json.loads(metadata)["metaData"]
        features = {*named.get("readerFeatures", ()), *named.get("writerFeatures", ())}
        configuration = table.get("configuration", {})
        return cls(
            fields=tuple(json.loads(table["schemaString"])["fields"]),
            partition_columns=tuple(table.get("partitionColumns", ())),
            features=tuple(sorted(features)),
            properties={
                key: value
                for key, value in sorted(configuration.items())
                if key in _FILE_PROPERTIES or key.startswith(_FILE_PROPERTY_PREFIXES)
            },
        )

    def identity_columns(self) -> list[str]:
        """Return the columns whose values Delta numbers itself."""
        return [field["name"] for field in self.fields if _has(field, _IDENTITY)]

    def generated_columns(self) -> list[str]:
        """Return the columns that Delta computes from others."""
        return [field["name"] for field in self.fields if _GENERATION in field["metadata"]]


def differences(written: TableLayout, now: TableLayout) -> list[str]:
    """Return why files written for one layout do not fit another; empty if they do."""
    found = _field_differences(written.fields, now.fields)
    if written.partition_columns != now.partition_columns:
        found.append(
            f"partition columns {list(written.partition_columns)} are now "
            f"{list(now.partition_columns)}"
        )
    for key in sorted({*written.properties, *now.properties}):
        before, after = written.properties.get(key), now.properties.get(key)
        if before != after:
            found.append(f"table property {key} was {before!r} and is {after!r}")
    gone = sorted({*written.features} - {*now.features})
    if gone and now.features:
        found.append(f"table features {gone} were dropped")
    return found


def _field_differences(written: Sequence[Field], now: Sequence[Field]) -> list[str]:
    found = []
    before = {field["name"]: field for field in written}
    after = {field["name"]: field for field in now}
    for name, field in before.items():
        if name not in after:
            found.append(f"column {name!r} was dropped or renamed")
        elif change := _change(field, after[name]):
            found.append(f"column {name!r} {change}")
    added = sorted(after.keys() - before.keys())
    found += [
        f"column {name!r} was added and may not be missing"
        for name in added
        if not _may_be_missing(after[name])
    ]
    return found


def _change(before: Field, after: Field) -> str:
    if not _holds(after["type"], before["type"]):
        return f"was {_type(before)} and is {_type(after)}"
    if before["nullable"] and not after["nullable"]:
        return "was nullable and is not"
    if _essential(before) != _essential(after):
        return "has other column metadata, such as a generation expression or a physical name"
    return ""


def _holds(now: Any, written: Any) -> bool:
    """Return whether values of a type are values of another one, with no field or with more."""
    if now == written:
        return True
    if isinstance(now, str) or isinstance(written, str) or now["type"] != written["type"]:
        return False
    if now["type"] == "struct":
        return not _field_differences(written["fields"], now["fields"])
    inside = ("keyType", "valueType", "elementType")
    return all(
        _holds(one, written[key]) if key in inside else one == written[key]
        for key, one in now.items()
    )


def _may_be_missing(field: Field) -> bool:
    metadata = field["metadata"]
    return bool(field["nullable"]) and not (
        _GENERATION in metadata or _INVARIANTS in metadata or _has(field, _IDENTITY)
    )


def _has(field: Field, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in field["metadata"])


def _essential(field: Field) -> dict[str, Any]:
    return {key: value for key, value in field["metadata"].items() if key not in _HARMLESS_METADATA}


def _type(field: Field) -> str:
    kind = field["type"]
    return kind if isinstance(kind, str) else json.dumps(kind)
