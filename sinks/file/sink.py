"""The file sink: appends files to a plain folder, exactly once, without a metastore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twophase.errors import PreflightError
from twophase.protocol.sink import SinkContext
from twophase.sinks.common.staging.column_check import check_columns
from twophase.sinks.common.staging.layout_check import check_existing
from twophase.sinks.common.staging.location import check_inside, local_path
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.preflight import check_folder, make_staging_area
from twophase.sinks.common.staging.sink import StagedSink
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.sinks.common.staging.table import Table
from twophase.sinks.file.options import FileOptions


class FileSink(StagedSink):
    """Appends to one folder. Options: `twophase.sinks.file.options.FileOptions`.

    Args:
        options: `path`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = FileOptions.parse(options, "FileSink")

    def __repr__(self) -> str:
        return f"FileSink({self._options.path!r})"

    def open_for_repair(self, context: SinkContext) -> None:
        """See `twophase.protocol.sink.OpensForRepair`."""
        path = self._path()
        check_folder(path)
        self._table = self._bound(path, context)

    def bind(self, context: SinkContext) -> Table:
        """See `StagedSink.bind`."""
        options = self._options
        path = self._path()
        check_columns(context.schema, options.format, options.partition_by)
        _make(path)
        check_folder(path)
        check_existing(path, context.schema, options.format, options.partition_by)
        return self._bound(path, context)

    def _path(self) -> Path:
        path = local_path(self._options.path, "path")
        if self._options.root is not None:
            check_inside(path, local_path(self._options.root, "root"))
        return path

    def _bound(self, path: Path, context: SinkContext) -> Table:
        options = self._options
        area = StagingArea(path, Owner(context.job, context.sink))
        make_staging_area(area)
        return Table(area, options.format, options.partition_by, f"file:{path}")


def _make(path: Path) -> None:
    """Create only the last folder: one missing above it means that a disk is not mounted."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise PreflightError(
            f"The folder {path} cannot be made: {error}.",
            remedy="make the folder above it, or correct path.",
        ) from error
