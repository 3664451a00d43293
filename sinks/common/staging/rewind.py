"""Rewinds a table: files of committed checkpoints leave it, then their proofs go (H28).

    1. search the table     for every file of the checkpoints, by the names of the files
    2. check                the files of each piece in `done` by its manifest. Where a mark has
                            replaced the manifest, the name of a file alone tells its checkpoint:
                            refused if a foreign file, which may hold rows of it, is there
    3. move out             rename each file to `rewound`, below the fence
    4. drop the proofs      lower the marks, then remove the pieces from `done`
    5. delete               what was moved out

After a crash it is repeated from 1: what was moved out is known by its proof until step 4 has
removed that, and after that by the lack of one. A reader sees the files go one by one. If it is
given up instead, the files move back; once none is left in the table, step 4 is finished.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import (
    FencedError,
    RestoreRefusedError,
    TargetChangedError,
    TargetUnreachableError,
)
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import folders
from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.common.staging import rewound
from twophase.sinks.common.staging.disk import digest
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.names import (
    FileName,
    PieceName,
    fence_name,
    file_name,
    parse_file,
)
from twophase.sinks.common.staging.staging_area import DONE, REWOUND, highest_marks, pieces_in
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.visible_files import is_hidden


@dataclass
class _Found:
    """What a search of the table has found.

    Attributes:
        files: the files of checkpoints that are rewound.
        foreign: a file that no sink of twophase has named; None if there is none.
    """

    files: dict[PieceName, dict[int, Path]] = field(default_factory=lambda: defaultdict(dict))
    foreign: Path | None = None


class Rewind:
    """Rewinds a table to what `keep` keeps.

    Args:
        table: the table.
        keep: see `CanRewind`.
    """

    def __init__(self, table: Table, keep: Mapping[str, int]) -> None:
        self._table = table
        self._area = table.area
        self._root = table.area.root
        self._point = RewindPoint(keep)

    def check(self) -> bool:
        """See `CanRewind.check_rewind`; return whether files will leave the table."""
        return bool(self._check(self._area.stage()))

    def carry_out(self, attempt: Attempt, unpublish: Callable[[Sequence[Path]], None]) -> None:
        """See `CanRewind.rewind`.

        Args:
            attempt: whose fence is up.
            unpublish: called with the folders before files leave them.
        """
        with self._fence(attempt) as stage:
            files = self._check(stage)
            if left := _folders(files):
                unpublish(left)
            rewound.move_out(stage, self._root, files)
            failpoint("F08")
            rewound.drop_proofs(stage, self._point)
            failpoint("F10")
            rewound.sweep(stage)

    def settle(self, attempt: Attempt) -> None:
        """See `RewindsInSteps.settle_rewind`: the files move back while one is in the table."""
        with self._fence(attempt) as stage:
            if out := rewound.moved_out(stage):
                found = self._search().files
                for piece, numbers in out.items():
                    self._check_once(found[piece], numbers)
                if any(found.values()):
                    places = {one: self._places(stage, one) for one, moved in out.items() if moved}
                    rewound.move_back(stage, self._root, out, places)
                else:
                    rewound.drop_proofs(stage, self._point)
            rewound.sweep(stage)

    @contextmanager
    def _fence(self, attempt: Attempt) -> Iterator[Path]:
        """Yield the folder of the fence.

        Raises:
            FencedError: a newer driver has raised it, perhaps since.
        """
        fence = self._area.fence()
        if attempt.is_closed_by(fence):
            raise self._fenced(fence, attempt)
        try:
            yield self._area.path / fence_name(fence)
        except (OSError, TargetUnreachableError) as error:
            if (now := self._area.fence()) != fence:
                raise self._fenced(now, attempt) from error
            raise

    def _check(self, stage: Path) -> rewound.Files:
        """Steps 1 and 2: return the files to take out."""
        point = self._point
        marks = point.ahead(highest_marks(stage))
        done = [piece for piece in pieces_in(stage / DONE) if not self._stays(piece)]
        if not marks and not done:
            return {}
        found, out = self._search(), rewound.moved_out(stage)
        for piece in sorted({*found.files, *done, *out}):
            self._check_piece(stage, piece, found.files[piece], out.get(piece, set()))
        if marks and found.foreign is not None and not out:
            raise self._unknown(found.foreign, marks)
        return {piece: files for piece, files in sorted(found.files.items()) if files}

    def _check_piece(
        self, stage: Path, piece: PieceName, files: Mapping[int, Path], out: Set[int]
    ) -> None:
        """Check that all files of a piece are in the table, or were moved out before."""
        if self._stays(piece):
            raise self._refused(
                f"an earlier rewind, to a checkpoint before {_named(piece)}, has not finished",
                rewound.UNFINISHED_REMEDY,
            )
        self._check_once(files, out)
        is_folded = highest_marks(stage).get(piece.lineage, -1) >= piece.checkpoint
        manifest = self._manifest(stage / DONE / str(piece), piece, is_folded=is_folded)
        if manifest is not None:
            self._check_listed(manifest, files, out)
        elif not is_folded:
            raise self._refused(f"there are files of {_named(piece)}, but no proof of its commit")
        elif {*files, *out} != {*range(len(files) + len(out))}:
            raise self._refused(f"files of {_named(piece)} are missing from the table")

    def _check_once(self, files: Mapping[int, Path], out: Set[int]) -> None:
        """Check that nobody has brought back a file of a piece that was moved out."""
        if both := out & {*files}:
            raise self._refused(f"{files[min(both)].name} is in the table twice")

    def _manifest(self, folder: Path, piece: PieceName, *, is_folded: bool) -> Manifest | None:
        """Return the manifest of a committed piece; None if a mark has replaced it.

        Raises:
            RestoreRefusedError: it is damaged or missing.
            NewerFormatError: a newer version of twophase has written it.
        """
        try:
            return Manifest.read(folder)
        except FileNotFoundError:
            if is_folded or not folder.exists():
                return None
            raise self._refused(f"the manifest of {_named(piece)} is missing") from None
        except DamagedRecordError as error:
            raise self._refused(f"the manifest of {_named(piece)} is damaged") from error

    def _places(self, stage: Path, piece: PieceName) -> rewound.Places:
        """Return where the files of a piece were that is rewound in part.

        Raises:
            RestoreRefusedError: the note is damaged.
            NewerFormatError: a newer version of twophase has written it.
        """
        try:
            return rewound.places_of(stage, piece)
        except DamagedRecordError as error:
            raise self._refused(
                f"the note of where the files of {_named(piece)} were is damaged: "
                f"{REWOUND}/{piece}/{rewound.PLACES}",
                remedy="restore that file from a backup. Or finish the rewind, which does not need "
                "it: start with the same restore.path and `restore.sink_ahead=rewind`.",
            ) from error

    def _check_listed(self, manifest: Manifest, files: Mapping[int, Path], out: Set[int]) -> None:
        """Compare the files of a piece with its manifest."""
        left = dict(files)
        for file in manifest.files:
            name = file_name(
                manifest.transaction, manifest.subtask, file.number, self._table.format.suffix
            )
            path = left.pop(file.number, None)
            if path is None and file.number not in out:
                raise self._refused(f"{name} is no longer in the table")
            if path is None:
                continue
            place = self._root.joinpath(*folders(self._table.partition_by, file.partition))
            if path.parent != place:
                raise self._refused(f"{name} is no longer in the folder of its partition")
            if path.stat().st_size != file.size or digest(path) != file.sha256:
                raise self._refused(f"{name} was changed")
        if left:
            raise self._refused(f"{min(left.values()).name} is not in the manifest of its piece")

    def _search(self) -> _Found:
        """Step 1. Links are not followed.

        Raises:
            RestoreRefusedError: a folder cannot be searched, or a file exists twice.
        """
        found = _Found()
        for path in self._visible():
            name = parse_file(path.name)
            if name is None:
                found.foreign = found.foreign or path
            elif self._is_rewound(name):
                files = found.files[name.piece]
                if name.number in files or path.is_symlink():
                    problem = "a link" if path.is_symlink() else "in the table twice"
                    raise self._refused(f"{path.name} is {problem}")
                files[name.number] = path
        return found

    def _visible(self) -> Iterator[Path]:
        """Yield the files that readers see."""
        for root, names, files in os.walk(self._root, onerror=self._unsearchable):
            names[:] = sorted(name for name in names if not is_hidden(name))
            for name in names:
                if Path(root, name).is_symlink():
                    raise self._refused(f"folder {self._shown(Path(root, name))} is a link")
            yield from (Path(root, name) for name in sorted(files) if not is_hidden(name))

    def _unsearchable(self, error: OSError) -> None:
        raise self._refused(
            f"{self._shown(Path(error.filename))} cannot be searched ({error.strerror})"
        ) from error

    def _is_rewound(self, name: FileName) -> bool:
        return name.prefix == self._area.owner.file_prefix(name.piece) and not self._stays(
            name.piece
        )

    def _stays(self, piece: PieceName) -> bool:
        return self._point.keeps(piece.lineage, piece.checkpoint)

    def _shown(self, path: Path) -> str:
        return shown(os.path.relpath(path, self._root))

    def _fenced(self, fence: Attempt, attempt: Attempt) -> FencedError | TargetChangedError:
        return driver_is_fenced(self._area.owner.job, self._area.owner.sink, fence, attempt)

    def _refused(self, why: str, remedy: str = "") -> RestoreRefusedError:
        owner = self._area.owner
        return RestoreRefusedError(
            f"Sink {owner.sink!r} of job {owner.job!r} cannot rewind {self._root}: "
            f"{why}. Nothing was removed.",
            remedy=remedy or "undo that, or restore a newer checkpoint.",
        )

    def _unknown(self, foreign: Path, marks: Mapping[str, int]) -> RestoreRefusedError:
        lineage, mark = next(iter(marks.items()))
        return self._refused(
            f"{self._shown(foreign)} was created by someone else, perhaps from files of this sink; "
            "that cannot be determined, because the manifests of lineage "
            f"{lineage} up to checkpoint {mark} are deleted"
        )


def _folders(files: rewound.Files) -> list[Path]:
    return sorted({path.parent for paths in files.values() for path in paths.values()})


def _named(piece: PieceName) -> str:
    return f"checkpoint {piece.checkpoint} of lineage {piece.lineage}"
