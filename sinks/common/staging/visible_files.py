"""Finds the files of a piece in the table, and moves those of a lost piece back to staging.

So no reader sees part of a lost piece, and its abort finds all of it.

A piece's manifest may be lost too, and with it the list of its files and partitions. The names of
its files contain the name of the piece, so the whole table is searched for them. They are renamed
to where they were staged, below the fence that was up when the commit began: if a newer driver has
raised it since, and may have committed the piece, that path leads nowhere and the files stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twophase.errors import StopJobError
from twophase.protocol.committable import Committable
from twophase.redaction import shown
from twophase.sinks.common.staging.disk import digest, rename_new, sync
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import file_name, file_prefix
from twophase.sinks.common.staging.table import Table


@dataclass(frozen=True)
class _Purpose:
    """The purpose of a search of the table, as its errors state it.

    Attributes:
        why: the reason, and what happens to the files found; a sentence without its full stop.
        until_now: the state so far; a sentence.
        again: the next step once the obstacle is removed.
    """

    why: str
    until_now: str
    again: str


_MOVE_BACK = _Purpose(
    why="A piece is lost, and its files are moved back to the staging area",
    until_now="None of them was moved.",
    again="start the job again: it reports what is lost",
)
_UNFINISHED = _Purpose(
    why="A piece has no manifest, and only a table without files of it proves that "
    "it was never pre-committed",
    until_now="Nothing was written.",
    again="run the command again",
)


def move_back(table: Table, piece: Committable, folder: Path, manifest: Manifest | None) -> None:
    """Move all files of a lost piece back to where they were staged, or none of them.

    Args:
        table: the table they are in.
        piece: the lost piece.
        folder: where it was staged.
        manifest: its manifest; None if that is lost too.

    Raises:
        StopJobError: a file bears the piece's name and cannot be moved safely.
        OSError: files could not be moved; a later call moves the rest. FileNotFoundError if
            the fence was raised.
    """
    found = find(table, piece)
    for number, path in found.items():
        if os.path.lexists(folder / str(number)):
            raise _stop(table, path, "exists twice: in the table and staged", _MOVE_BACK)
        if manifest is not None and not _is_listed(path, number, manifest):
            raise _stop(table, path, "is not the file that was pre-committed", _MOVE_BACK)
    if found and manifest is None:
        folder.mkdir(mode=0o700, exist_ok=True)
    for number, path in found.items():
        rename_new(path, folder / str(number))
    if folder.exists():  # also if the files were moved by a driver that died before its sync
        sync(folder, folder.parent, *{path.parent for path in found.values()})


def find(table: Table, piece: Committable) -> Mapping[int, Path]:
    """Return the files of a piece that are in the table, by their numbers.

    Raises:
        StopJobError: one is no plain file, exists twice, or only shares the prefix of the piece's
            names; or a link or a folder cannot be searched, which no retry mends.
    """
    with _searching(table, _MOVE_BACK):
        return _find(table, piece)


def has_files(table: Table, piece: Committable) -> bool:
    """Return whether a file in the table has a name of the piece, for a command only.

    Raises:
        StopJobError: none was found before a folder that is a link, which is not followed, or one
            that cannot be searched.
    """
    with _searching(table, _UNFINISHED):
        return any(_named(table, file_prefix(piece.transaction, piece.subtask), _UNFINISHED))


@contextmanager
def _searching(table: Table, purpose: _Purpose) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise StopJobError(
            f"{shown(os.path.relpath(error.filename, table.area.root))} in {table.area.root} "
            f"cannot be searched ({error.strerror}). "
            f"{purpose.why}; some may be in it. {purpose.until_now}",
            remedy="give the job's account the right to read it, or move it out of the table; "
            f"then {purpose.again}.",
        ) from error


def _find(table: Table, piece: Committable) -> Mapping[int, Path]:
    found: dict[int, Path] = {}
    for path in _named(table, file_prefix(piece.transaction, piece.subtask), _MOVE_BACK):
        if path.is_symlink() or not path.is_file():
            raise _stop(table, path, "is not a plain file", _MOVE_BACK)
        number = path.name.removesuffix(table.format.suffix).rpartition("-")[2]
        if not number.isdecimal() or path.name != file_name(
            piece.transaction, piece.subtask, int(number), table.format.suffix
        ):
            raise _stop(table, path, "does not have the name of one of our files", _MOVE_BACK)
        if int(number) in found:
            raise _stop(
                table,
                path,
                f"exists twice: also in {_folder(table, found[int(number)])}",
                _MOVE_BACK,
            )
        found[int(number)] = path
    return found


def _named(table: Table, prefix: str, purpose: _Purpose) -> Iterator[Path]:
    """Yield the visible paths whose names have this prefix, without following links."""
    for root, folders, files in os.walk(table.area.root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in (*folders, *files):
            path = Path(root, name)
            if name.startswith(prefix):
                yield path
            elif name in folders and path.is_symlink():
                raise _stop(table, path, "is a link, and links are not followed", purpose)


def is_hidden(folder: str) -> bool:
    """Return whether readers skip a folder of this name."""
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)


def _is_listed(path: Path, number: int, manifest: Manifest) -> bool:
    return any(
        (file.number, file.size) == (number, path.stat().st_size) and file.sha256 == digest(path)
        for file in manifest.files
    )


def _raise(error: OSError) -> None:
    raise error


def _folder(table: Table, path: Path) -> str:
    return shown(str(path.parent.relative_to(table.area.root)))


def _stop(table: Table, path: Path, problem: str, purpose: _Purpose) -> StopJobError:
    name = path.name if path.name.startswith("twophase-") else shown(path.name)
    return StopJobError(
        f"{name} in folder {_folder(table, path)} of {table.area.root} {problem}. "
        f"{purpose.why}; whether this is one of them cannot be determined. {purpose.until_now}",
        remedy=f"find out who created it; move it out of the table, then {purpose.again}.",
    )
