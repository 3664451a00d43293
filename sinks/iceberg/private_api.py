"""The only use of pyiceberg's private names.

`Transaction.commit_transaction` retries: it makes a new snapshot and appends again, also if the
reply of the first commit was lost (apache/iceberg-python #3320). So the parts of a commit are made
here, and `Catalog.commit_table` is called by the sink, which looks for its proof before each try.
Private are `_SnapshotProducer` with `_commit`, which makes the parts of a snapshot, and
`_clean_all_uncommitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.utils.properties import property_as_bool


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot, its manifests written and no catalog told.

    Attributes:
        snapshot: its id.
        sequence: its sequence number.
        updates: make it the newest of branch main.
        requirements: main is what it was.
        discard: deletes what was written for it.
    """

    snapshot: int
    sequence: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    discard: Callable[[], None]


def append(
    table: Table, files: Sequence[DataFile], spec: int, summary: Mapping[str, str]
) -> NewSnapshot:
    """Write the manifests of a snapshot that appends files.

    Args:
        table: as it was loaded.
        files: the data files.
        spec: the id of their partition spec, which need not be the table's default any more.
        summary: entries of the snapshot's summary.
    """
    before, table.metadata = (
        table.metadata,
        table.metadata.model_copy(update={"default_spec_id": spec}),
    )
    try:
        snapshot = table.transaction().update_snapshot(snapshot_properties=dict(summary))
        merges = property_as_bool(
            table.metadata.properties,
            TableProperties.MANIFEST_MERGE_ENABLED,
            TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
        )
        producer = snapshot.merge_append() if merges else snapshot.fast_append()
        for file in files:
            producer.append_data_file(file)
        return _written(table, producer)
    finally:
        table.metadata = before


def remove(table: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> NewSnapshot:
    """Write the manifests of a snapshot without some of the files.

    Args:
        table: as it was loaded.
        files: data files of its newest snapshot, as the manifests have them.
        summary: entries of the snapshot's summary.
    """
    snapshot = table.transaction().update_snapshot(snapshot_properties=dict(summary))
    producer = snapshot.overwrite()
    producer.delete_by_predicate(AlwaysTrue())  # it looks into all manifests, and trusts no bounds
    for file in files:
        producer.delete_data_file(file)
    return _written(table, producer)


def _written(table: Table, producer: _SnapshotProducer[Any]) -> NewSnapshot:
    sequence = table.metadata.next_sequence_number()
    try:
        updates, requirements = producer._commit()
    except BaseException:
        producer._clean_all_uncommitted()
        raise
    return NewSnapshot(
        producer.snapshot_id, sequence, updates, requirements, producer._clean_all_uncommitted
    )
