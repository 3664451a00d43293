"""Delete files, by which other engines delete rows without writing data files again, and the data
files that they may delete rows of (Iceberg's specification, "Scan planning").

    positional   of files as old as it or older, in its partition; it may name its only file, or
                 tell by its bounds which paths are in it
    equality     of files that are older, in its partition; in all of them without partition fields
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

_PATH = 2147483546
"""The id of the column of paths in a file of positional deletes."""


@dataclass(frozen=True)
class DeleteFile:
    """A file of deletes.

    Attributes:
        entry: as its manifest has it.
        only: the path of the only data file that it deletes rows of; None if it names none.
    """

    entry: ManifestEntry
    only: str | None

    def may_touch(self, data: ManifestEntry, specs: Mapping[int, PartitionSpec]) -> bool:
        """Return whether it may have deleted rows of a data file.

        Args:
            data: the data file, with the sequence number of its data.
            specs: the table's partition specs, by their ids.
        """
        file = self.entry.data_file
        deleted, written = self.entry.sequence_number or 0, data.sequence_number or 0
        is_near = _partition(file) == _partition(data.data_file)
        if file.content == DataFileContent.EQUALITY_DELETES:
            return written < deleted and (is_near or _is_global(specs[file.spec_id]))
        return written <= deleted and is_near and self._may_name(data.data_file.file_path)

    def _may_name(self, path: str) -> bool:
        if self.only is not None:
            return self.only == path
        file, text = self.entry.data_file, path.encode()
        lower = (file.lower_bounds or {}).get(_PATH)
        upper = (file.upper_bounds or {}).get(_PATH)
        return (lower is None or lower <= text) and (upper is None or text <= upper)


def _partition(file: DataFile) -> tuple[object, ...]:
    return file.spec_id, file.partition


def _is_global(spec: PartitionSpec) -> bool:
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)
