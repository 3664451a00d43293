"""Stands for `pathlib.Path` where the product uses it."""

from __future__ import annotations

from collections.abc import Iterator

from verification.simulation.disk import Folder, Node
from verification.simulation.files import Files, Status, status_of


class SimulatedPath:
    """The part of `pathlib.Path` that is used. Looking at what a name is costs no step:
    it changes nothing.
    """

    __slots__ = ("_files", "_text")

    def __init__(self, files: Files, text: str) -> None:
        self._files = files
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedPath) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __truediv__(self, name: object) -> SimulatedPath:
        return SimulatedPath(self._files, f"{self._text.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self._text.rpartition("/")[2]

    @property
    def parent(self) -> SimulatedPath:
        return SimulatedPath(self._files, self._text.rpartition("/")[0] or "/")

    @property
    def parents(self) -> tuple[SimulatedPath, ...]:
        return () if self._text == "/" else (self.parent, *self.parent.parents)

    def absolute(self) -> SimulatedPath:
        return self

    def is_symlink(self) -> bool:
        return False

    def is_dir(self) -> bool:
        return isinstance(self._find(), Folder)

    def exists(self) -> bool:
        return self._find() is not None

    def stat(self) -> Status:
        return status_of(self._files.disk.find(self._text))

    lstat = stat

    def chmod(self, mode: int) -> None:
        self._files.disk.find(self._text)

    def mkdir(self, mode: int) -> None:
        self._files.make_folder(self._text)

    def rmdir(self) -> None:
        self._files.remove_folder(self._text)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._files.remove(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def glob(self, pattern: str) -> Iterator[SimulatedPath]:
        assert pattern.endswith("*")
        folder = self._find()
        names = list(folder.entries) if isinstance(folder, Folder) else []
        return (self / name for name in names if name.startswith(pattern[:-1]))

    def _find(self) -> Node | None:
        try:
            return self._files.disk.find(self._text)
        except (FileNotFoundError, NotADirectoryError):
            return None
