"""A disk that promises no more than POSIX does: what is not synced may be gone, or torn,
after a power cut.

- The bytes of a file are durable when the file is synced, its name when the folder that
  holds it is synced.
- A power cut keeps of the names that were not synced none, some, those up to some moment, or all;
  of bytes that were not synced the old ones, the new ones or something in between.
- A sync that fails throws the dirty bytes away: the next one says that all is well (as on Linux).
- A killed process loses nothing that it has handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random


class File:
    """The bytes behind one or more names.

    Attributes:
        data: as everybody reads them.
        synced: as they are after a power cut at the earliest.
        lost: whether a failed sync has thrown bytes away: the next one will not write them.
    """

    __slots__ = ("data", "lost", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced: bytes = b""
        self.lost = False

    @property
    def is_durable(self) -> bool:
        return self.synced == self.data


class Folder:
    """Names.

    Attributes:
        entries: as everybody sees them.
        synced: as they are after a power cut at the earliest.
        pending: what was done to them since, in order: a name and what it stood for afterwards,
            None if it was removed.
    """

    __slots__ = ("entries", "pending", "synced")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        self.pending: list[tuple[str, Node | None]] = []

    def put(self, name: str, node: Node | None) -> None:
        """Let `name` stand for `node`, or for nothing."""
        self.pending.append((name, node))
        _apply(self.entries, name, node)


Node = File | Folder


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


class Disk:
    """A tree of folders and files, and what a power cut leaves of it. Single operations;
    nothing fails here.

    Args:
        random: decides what a power cut leaves.
    """

    def __init__(self, random: Random) -> None:
        self.root = Folder()
        self._random = random

    def find(self, path: str) -> Node:
        """What a path stands for.

        Raises:
            FileNotFoundError, NotADirectoryError: nothing.
        """
        node: Node = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                raise NotADirectoryError(20, "Not a directory", path)
            found = node.entries.get(part)
            if found is None:
                raise FileNotFoundError(2, "No such file or directory", path)
            node = found
        return node

    def folder_of(self, path: str) -> tuple[Folder, str]:
        """The folder that holds a path, and the name in it."""
        parent, _, name = path.rpartition("/")
        folder = self.find(parent)
        if not isinstance(folder, Folder):
            raise NotADirectoryError(20, "Not a directory", path)
        return folder, name

    def sync(self, node: Node) -> None:
        """Make bytes or names durable."""
        if isinstance(node, Folder):
            node.synced = dict(node.entries)
            node.pending.clear()
        elif not node.lost:
            node.synced = bytes(node.data)

    def sync_all(self) -> None:
        """Make everything durable."""
        self._sync_below(self.root)

    def _sync_below(self, node: Node) -> None:
        self.sync(node)
        if isinstance(node, Folder):
            for child in node.entries.values():
                self._sync_below(child)

    def is_durable(self, path: str) -> bool:
        """Whether a file would survive a power cut under this path, with its bytes."""
        node: Node = self.root
        for part in path.split("/"):
            if part:
                if not isinstance(node, Folder) or part not in node.synced:
                    return False
                node = node.synced[part]
        return isinstance(node, File) and node.is_durable

    def copy(self, source: str, target: str) -> None:
        """Copy a folder at one moment, durably."""
        folder, name = self.folder_of(target)
        folder.put(name, _copied(self.find(source)))
        self.sync(folder)

    def cut_power(self) -> None:
        """Lose what may be lost."""
        keep = self._random.choice((_nothing, _everything, self._some, self._first))
        self._lose(self.root, keep)

    def _lose(self, node: Node, keep: Callable[[list[int]], list[int]]) -> None:
        if isinstance(node, File):
            if not node.is_durable:
                node.data = bytearray(self._torn(node))
            node.synced, node.lost = bytes(node.data), False
            return
        entries = dict(node.synced)
        for index in keep(list(range(len(node.pending)))):
            _apply(entries, *node.pending[index])
        node.entries, node.synced = dict(entries), entries
        node.pending.clear()
        for child in entries.values():
            self._lose(child, keep)

    def _torn(self, file: File) -> bytes:
        written = self._random.randrange(len(file.data) + 1)
        return self._random.choice(
            (
                file.synced,
                bytes(file.data),
                bytes(file.data[:written]),
                bytes(file.data[:written]) + bytes(len(file.data) - written),
            )
        )

    def _some(self, indexes: list[int]) -> list[int]:
        return [index for index in indexes if self._random.random() < 0.5]

    def _first(self, indexes: list[int]) -> list[int]:
        return indexes[: self._random.randrange(len(indexes) + 1)]


def _apply(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _copied(node: Node) -> Node:
    if isinstance(node, File):
        file = File()
        file.data, file.synced = bytearray(node.data), bytes(node.data)
        return file
    folder = Folder()
    folder.entries = {name: _copied(child) for name, child in node.entries.items()}
    folder.synced = dict(folder.entries)
    return folder


def _nothing(indexes: list[int]) -> list[int]:
    return indexes[:0]


def _everything(indexes: list[int]) -> list[int]:
    return indexes
