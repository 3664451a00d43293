"""Stands for `pathlib.Path` where the product uses it."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from verification.simulation.disk import File, Folder, Node
from verification.simulation.files import Files, OpenFile, Status, status_of


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

    def __lt__(self, other: SimulatedPath) -> bool:
        return self._text < other._text

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
        text, found = self._text, list[SimulatedPath]()
        while text != "/":
            text = text.rpartition("/")[0] or "/"
            found.append(SimulatedPath(self._files, text))
        return tuple(found)

    def absolute(self) -> SimulatedPath:
        return self

    resolve = absolute

    def relative_to(self, other: SimulatedPath) -> PurePosixPath:
        return PurePosixPath(self._text).relative_to(other._text)

    def is_relative_to(self, other: SimulatedPath) -> bool:
        return PurePosixPath(self._text).is_relative_to(other._text)

    def with_name(self, name: str) -> SimulatedPath:
        return self.parent / name

    def is_symlink(self) -> bool:
        return False

    def is_dir(self) -> bool:
        return isinstance(self._find(), Folder)

    def is_file(self) -> bool:
        return isinstance(self._find(), File)

    def exists(self) -> bool:
        return self._find() is not None

    def stat(self) -> Status:
        return status_of(self._files.disk.find(self._text))

    lstat = stat

    def chmod(self, mode: int) -> None:
        self._files.disk.find(self._text)

    def mkdir(self, mode: int, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and not self.parent.exists():
            self.parent.mkdir(mode, parents, exist_ok=True)
        if not (exist_ok and self.is_dir()):
            self._files.make_folder(self._text)

    def open(self, mode: str) -> OpenFile:
        assert mode == "rb"
        return self._files.fdopen(self._files.open(self._text, self._files.O_RDONLY), mode)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return file.read()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_text(self, text: str) -> None:
        flags = self._files.O_WRONLY | self._files.O_CREAT
        with self._files.fdopen(self._files.open(self._text, flags), "wb") as file:
            file.write(text.encode())

    def rmdir(self) -> None:
        self._files.remove_folder(self._text)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._files.remove(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def glob(self, pattern: str) -> Iterator[SimulatedPath]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[SimulatedPath]:
        for path in self.iterdir():
            if fnmatchcase(path.name, pattern):
                yield path
            yield from path.rglob(pattern)

    def iterdir(self) -> Iterator[SimulatedPath]:
        folder = self._find()
        names = list(folder.entries) if isinstance(folder, Folder) else []
        return (self / name for name in names)

    def _find(self) -> Node | None:
        try:
            return self._files.disk.find(self._text)
        except (FileNotFoundError, NotADirectoryError):
            return None
