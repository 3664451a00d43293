"""Files that a rewind has moved out of the table, by their pieces, until their proofs are gone.

Everything here happens by paths below the fence: if a newer driver has raised it, they lead
nowhere, and nothing more leaves the table.

    rewound/<piece>/places      where its files were (`Places`); there before the first one is moved
    rewound/<piece>/<number>    a file of a piece that is being rewound
    rewound/<piece>/done        the folder that was its proof

Any driver deletes a folder whose piece has no proof.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import decode, encode
from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.common.staging.disk import opened_folder, rename_new, sync, write_durably
from twophase.sinks.common.staging.manifest import FORMAT
from twophase.sinks.common.staging.names import PieceName, mark_name, parse_mark
from twophase.sinks.common.staging.staging_area import (
    DONE,
    MARKS,
    REWOUND,
    entries,
    highest_marks,
    pieces_in,
    remove,
)

UNFINISHED_REMEDY = (
    "repeat the restore (restore.path) that rewinds these checkpoints, or give it up: "
    "twophase repair abandon-rewind JOB.yaml"
)
"""What to do about a rewind that has not finished."""

PLACES = "places"

Files = Mapping[PieceName, Mapping[int, Path]]
"""The path of each file in the table, by its piece and number."""


@dataclass(frozen=True)
class Places:
    """Where the files of a piece were.

    Attributes:
        paths: relative to the table's folder, by the number of the file.
    """

    paths: Mapping[str, str]

    def encode(self) -> bytes:
        """Return it as durable bytes."""
        return encode(FORMAT, PLACES, self)

    @classmethod
    def read(cls, path: Path) -> Places:
        """Return what a file holds.

        Raises:
            FileNotFoundError: there is none.
            NewerFormatError, DamagedRecordError: as `decode`.
        """
        return decode(FORMAT, PLACES, path.read_bytes(), str(path), cls)


def moved_out(stage: Path) -> dict[PieceName, set[int]]:
    """Return the numbers of the moved files, of each piece that still has a proof."""
    return {
        piece: {int(name) for name in entries(folder) if name.isdecimal()}
        for piece in _pieces(stage)
        if _is_proven(stage, piece)
        for folder in [stage / REWOUND / str(piece)]
    }


def move_out(stage: Path, root: Path, files: Files) -> None:
    """Move files out of the table, durably.

    Args:
        stage: the folder of the fence.
        root: the table's folder.
        files: all of them that are in the table.
    """
    (stage / REWOUND).mkdir(mode=0o700, exist_ok=True)
    moved = 0
    for piece, paths in files.items():
        folder = stage / REWOUND / str(piece)
        folder.mkdir(mode=0o700, exist_ok=True)
        _note_places(folder, root, paths)
        for number, path in paths.items():
            if moved:
                failpoint("F07")
            rename_new(path, folder / str(number))
            moved += 1
    left = {path.parent for paths in files.values() for path in paths.values()}
    # also of the pieces whose files were moved by a driver that died before its sync
    folders = [stage / REWOUND / str(piece) for piece in _pieces(stage)]
    sync(stage, stage / REWOUND, *folders, *sorted(left))


def places_of(stage: Path, piece: PieceName) -> Places:
    """Return where the files of a piece were, of which one is moved.

    Raises:
        FileNotFoundError, NewerFormatError, DamagedRecordError: as `Places.read`.
    """
    return Places.read(stage / REWOUND / str(piece) / PLACES)


def move_back(
    stage: Path,
    root: Path,
    out: Mapping[PieceName, Set[int]],
    places: Mapping[PieceName, Places],
) -> None:
    """Move files back to where they were in the table, durably.

    Args:
        stage: the folder of the fence.
        root: the table's folder.
        out: what `moved_out` returned.
        places: of each of these pieces that has a moved file.
    """
    for piece, numbers in out.items():
        folder = stage / REWOUND / str(piece)
        for number in sorted(numbers):
            *folders, name = Path(places[piece].paths[str(number)]).parts
            with opened_folder(root, folders) as place:
                rename_new(folder / str(number), name, place)
                os.fsync(place)
            failpoint("F11")
        sync(folder)
        remove(folder)


def _note_places(folder: Path, root: Path, paths: Mapping[int, Path]) -> None:
    """Note where the files of a piece are, unless an earlier rewind has: all were there then."""
    if (folder / PLACES).exists():
        return
    (folder / f".{PLACES}").unlink(missing_ok=True)  # of a driver that died
    places = {str(number): os.path.relpath(path, root) for number, path in paths.items()}
    write_durably(folder / PLACES, [Places(places).encode()])


def drop_proofs(stage: Path, point: RewindPoint) -> None:
    """Remove the marks and proofs of all checkpoints that do not stay, durably."""
    marks = stage / MARKS
    for lineage in point.ahead(highest_marks(stage)):
        if (last := point.last_of(lineage)) >= 0:
            (marks / mark_name(lineage, last)).touch(mode=0o600)
    sync(marks)
    for name in entries(marks):
        mark = parse_mark(name)
        if mark is not None and not point.keeps(*mark):
            (marks / name).unlink(missing_ok=True)
    sync(marks)
    for piece in pieces_in(stage / DONE):
        if point.keeps(piece.lineage, piece.checkpoint):
            continue
        failpoint("F09")
        folder = stage / REWOUND / str(piece)
        folder.mkdir(mode=0o700, exist_ok=True)
        rename_new(stage / DONE / str(piece), folder / DONE)
    sync(stage / DONE)


def sweep(stage: Path) -> None:
    """Delete the files of pieces that have no proof any more."""
    for piece in _pieces(stage):
        if not _is_proven(stage, piece):
            remove(stage / REWOUND / str(piece))


def _pieces(stage: Path) -> list[PieceName]:
    return pieces_in(stage / REWOUND) if (stage / REWOUND).exists() else []


def _is_proven(stage: Path, piece: PieceName) -> bool:
    mark = highest_marks(stage).get(piece.lineage, -1)
    return mark >= piece.checkpoint or (stage / DONE / str(piece)).exists()
