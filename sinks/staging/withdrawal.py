"""Takes the files of a lost piece out of the table: no reader sees a part of it, and its abort finds all that is left.

A piece's manifest may be lost too, and with it the list of its files and partitions. Its files are known by their names,
which hold the piece's, so the whole table is searched for them. They are renamed to where they were staged, below the fence
that was up when the commit began: if a newer driver has raised it since, and may have committed the piece, that path leads
nowhere and the files stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sinks.staging.disk import digest, rename_new, sync
from sinks.staging.manifest import Manifest
from sinks.staging.names import file_name, file_prefix
from sinks.staging.table import Table
from twophase.errors import StopJobError
from twophase.protocol.committable import Committable
from twophase.redaction import shown


def withdraw(table: Table, piece: Committable, folder: Path, manifest: Manifest | None) -> None:
    """Move the files of a lost piece back to where they were staged. Nothing is moved unless all of them can be.

    Args:
        table: where they are.
        piece: whose they are.
        folder: where it was staged.
        manifest: what was in it; None if that is lost too.

    Raises:
        StopJobError: a file bears the piece's name and cannot be moved safely.
        OSError: files could not be moved; a later call moves the rest. FileNotFoundError if the fence was raised.
    """
    found = find(table, piece)
    for number, path in found.items():
        if os.path.lexists(folder / str(number)):
            raise _stop(table, path, "is there twice: in the table and staged")
        if manifest is not None and not _is_listed(path, number, manifest):
            raise _stop(table, path, "is not the file that was pre-committed")
    if found and manifest is None:
        folder.mkdir(mode=0o700, exist_ok=True)
    for number, path in found.items():
        rename_new(path, folder / str(number))
    if folder.exists():  # also if the files were moved by a driver that died before its sync
        sync(folder, folder.parent, *{path.parent for path in found.values()})


def find(table: Table, piece: Committable) -> Mapping[int, Path]:
    """The files of a piece that are in the table, by their numbers.

    Raises:
        StopJobError: one is no plain file, is there twice, or has a name that only begins like the piece's; or a folder cannot
            be searched, which no retry mends.
    """
    with _searching(table):
        return _find(table, piece)


def has_files(table: Table, piece: Committable) -> bool:
    """Whether anything in the table has a name that begins like the piece's.

    Raises:
        StopJobError: a folder cannot be searched.
    """
    with _searching(table):
        return any(_named(table, file_prefix(piece.transaction, piece.subtask)))


@contextmanager
def _searching(table: Table) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise StopJobError(
            f"{shown(os.path.relpath(error.filename, table.home.root))} in {table.home.root} cannot be searched ({error.strerror}): a "
            "piece is lost, and files of it may be there. None of them was moved.",
            remedy="give the job's account the right to read it, or move it out of the table; then start the job again: it says "
            "what is lost.",
        ) from error


def _find(table: Table, piece: Committable) -> Mapping[int, Path]:
    found: dict[int, Path] = {}
    for path in _named(table, file_prefix(piece.transaction, piece.subtask)):
        if path.is_symlink() or not path.is_file():
            raise _stop(table, path, "is no plain file")
        number = path.name.removesuffix(table.format.suffix).rpartition("-")[2]
        if not number.isdecimal() or path.name != file_name(
            piece.transaction, piece.subtask, int(number), table.format.suffix
        ):
            raise _stop(table, path, "is not the name of a file of ours")
        if int(number) in found:
            raise _stop(table, path, f"is there twice: also in {_folder(table, found[int(number)])}")
        found[int(number)] = path
    return found


def _named(table: Table, prefix: str) -> Iterator[Path]:
    """What readers see whose name begins so. Links are not followed: they may lead out of the table."""
    for root, folders, files in os.walk(table.home.root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in (*folders, *files):
            path = Path(root, name)
            if name.startswith(prefix):
                yield path
            elif name in folders and path.is_symlink():
                raise _stop(table, path, "is a link, and what it leads to is not searched")


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)


def _is_listed(path: Path, number: int, manifest: Manifest) -> bool:
    return any(
        (file.number, file.size) == (number, path.stat().st_size) and file.sha256 == digest(path)
        for file in manifest.files
    )


def _raise(error: OSError) -> None:
    raise error


def _folder(table: Table, path: Path) -> str:
    return shown(str(path.parent.relative_to(table.home.root)))


def _stop(table: Table, path: Path, problem: str) -> StopJobError:
    name = path.name if path.name.startswith("twophase-") else shown(path.name)
    return StopJobError(
        f"{name} in folder {_folder(table, path)} of {table.home.root} {problem}. A piece is lost, and its files are taken out "
        "of the table; whether this is one of them cannot be told. None of them was moved.",
        remedy="find out who made it; move it out of the table, then start the job again: it says what is lost.",
    )
