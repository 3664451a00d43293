"""The file sink: appends files to a plain folder, exactly once, without a metastore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import PreflightError
from twophase.sinks.common.staging.column_check import check_columns
from twophase.sinks.common.staging.layout_check import check_layout
from twophase.sinks.common.staging.location import check_inside, local_path
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.common.staging.preflight import check_folder, open_staging_area
from twophase.sinks.common.staging.table import Table
from twophase.sinks.file.options import FileOptions


class FileSink(ArrowSink):
    """Appends to one folder. Options: `twophase.sinks.file.options.FileOptions`.

    Args:
        options: `path`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = FileOptions.parse(options, "FileSink")

    def __repr__(self) -> str:
        return f"FileSink({self._options.path!r})"

    def open(self, context: SinkContext) -> OpenStagedSink:
        """See `Sink.open`."""
        options, rows, owner = self._options, context.schema, Owner.of(context)
        path = self._path()
        if rows is not None:
            check_columns(rows, options.format, options.partition_by)
            _make(path)
        check_folder(path)
        if rows is not None:
            check_layout(path, rows, options.format, options.partition_by)
        area = open_staging_area(path, owner, writes=rows is not None)
        return OpenStagedSink(Table(area, options.format, options.partition_by, f"file:{path}"))

    def _path(self) -> Path:
        path = local_path(self._options.path, "path")
        if self._options.root is not None:
            check_inside(path, local_path(self._options.root, "root"))
        return path


def _make(path: Path) -> None:
    """Create only the last folder: one missing above it means that a disk is not mounted."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise PreflightError(
            f"Cannot create the folder {path}: {error}.",
            remedy="create the folder above it, or correct path.",
        ) from error
