"""Phase 1 on the executor: the data files of one task attempt, below the fence.

The steps are those of `twophase.sinks.common.staging.writer`. No reader sees the files: they lie in
a hidden folder, and no snapshot names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from twophase.internals.redaction import shown
from twophase.sinks.common.lake.rows import in_table_order
from twophase.sinks.common.partition_names import MAX_NAME_BYTES, RefusedValueError
from twophase.sinks.common.staging.names import file_name
from twophase.sinks.common.staging.writer import PieceWriter
from twophase.sinks.paimon.layout import fields_of
from twophase.sinks.paimon.private_api import Values
from twophase.sinks.paimon.records import MESSAGE_VERSION, Manifest, StagedFile
from twophase.sinks.paimon.table import WrittenTable

_SUFFIX = ".parquet"
_MAX_PATH_BYTES = 4095


class PaimonWriter(PieceWriter[WrittenTable, StagedFile]):
    """Writes data files, with the statistics that Paimon keeps of them."""

    def _divide(self, batch: pa.RecordBatch) -> Iterable[tuple[Values, pa.RecordBatch]]:
        table = self._table.table
        rows = in_table_order(batch, table.schema.file_columns, self._transaction, self._subtask)
        for values, part in table.divide(rows):
            if values not in self._rows:
                self._check_folder(values)
            yield values, part

    def _check_folder(self, values: Values) -> None:
        """Check that the folder of a partition can be made: phase 2 may not find out.

        Raises:
            RefusedValueError: it cannot.
        """
        table = self._table.table
        path = table.file_path(values, self._name_of(len(self._files)))
        names = path.relative_to(table.location).parts
        if max(len(name.encode()) for name in names) > MAX_NAME_BYTES or (
            len(str(path).encode()) > _MAX_PATH_BYTES
        ):
            keys = ", ".join(table.schema.partition_keys)
            raise RefusedValueError(
                f"{keys} = {shown(str(values), 40)} makes a name or path that is too long for a "
                f"folder; the limits are {MAX_NAME_BYTES} and {_MAX_PATH_BYTES} bytes"
            )

    def _name_of(self, number: int) -> str:
        return file_name(self._transaction, self._subtask, number, _SUFFIX)

    def _new_file(
        self, path: Path, number: int, values: Values, batches: list[pa.RecordBatch]
    ) -> StagedFile:
        rows = pa.Table.from_batches(batches)
        name = self._name_of(number)
        message, file = self._table.table.write_file(path, name, values, rows)
        return StagedFile(number, rows.num_rows, file.size, file.sha256, message)

    def _manifest(self) -> Manifest:
        return Manifest(
            self._transaction,
            self._subtask,
            tuple(self._files),
            self._table.base,
            MESSAGE_VERSION,
            fields_of(self._table.table.columns),
        )
