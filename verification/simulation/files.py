"""The file system calls that `twophase.state.files.storage`, the restore and the savepoints of
`twophase.spark` make, on a simulated disk.

`Files` stands for the module `os` there, `paths.SimulatedPath` for `pathlib.Path`. Each call that
touches the disk is a step: the task may lose its turn or die before it, and it may fail. What is
not here is not known: an `AttributeError` says so.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verification.simulation.disk import Disk, File, Folder, Node

_LATENCY_S = {"sync": 0.001, "read": 0.000_05, "change": 0.000_1}


@dataclass(frozen=True)
class DiskFault:
    """A call that fails.

    Attributes:
        code: the error number.
        done: whether it does its work all the same.
    """

    code: int
    done: bool = False

    def error(self, path: str) -> OSError:
        return OSError(self.code, os.strerror(self.code), path)


@dataclass(frozen=True)
class Status:
    """The part of a file's status that is looked at."""

    st_mode: int
    st_size: int = 0
    st_uid: int = 0


@dataclass
class _Descriptor:
    node: Node
    path: str
    position: int = 0


class Files:
    """The calls.

    Args:
        disk: the disk.
        step: called before each call, with what it is and how long it takes.
        fault: decides whether a call fails.

    Attributes:
        on_link: hears of every file that gets its final name.
        on_sync: hears of every folder that was synced.
    """

    O_RDONLY, O_WRONLY, O_CREAT, O_EXCL = os.O_RDONLY, os.O_WRONLY, os.O_CREAT, os.O_EXCL
    O_NOFOLLOW, O_NONBLOCK = os.O_NOFOLLOW, os.O_NONBLOCK

    def __init__(
        self,
        disk: Disk,
        step: Callable[[str, float], None],
        fault: Callable[[str], DiskFault | None],
    ) -> None:
        self.disk = disk
        self._step = step
        self._fault = fault
        self._open: dict[int, _Descriptor] = {}
        self._next = 3
        self.on_link: Callable[[str, bytes], None] = lambda path, data: None
        self.on_sync: Callable[[str], None] = lambda path: None

    # -- os ----------------------------------------------------------------------------------------

    def open(self, path: object, flags: int, mode: int = 0o777) -> int:
        name = str(path)
        if flags & os.O_CREAT:
            self._change("create", name)
            folder, last = self.disk.folder_of(name)
            if last in folder.entries:
                raise FileExistsError(errno.EEXIST, "File exists", name)
            folder.put(last, File())
        else:
            self._read("open", name)
        self._next += 1
        self._open[self._next] = _Descriptor(self.disk.find(name), name)
        return self._next

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def fdopen(
        self, descriptor: int, mode: str, buffering: int = -1, closefd: bool = True
    ) -> OpenFile:
        return OpenFile(self, descriptor, closefd)

    def fchmod(self, descriptor: int, mode: int) -> None:
        assert descriptor in self._open

    def write(self, descriptor: int, data: Any) -> int:
        opened = self._open[descriptor]
        self._step("disk write", _LATENCY_S["change"])
        fault = self._fault("write")
        count = len(data) if fault is None else len(data) // 2
        assert isinstance(opened.node, File)
        opened.node.data += bytes(data[:count])
        if fault is not None and (fault.code or not count):
            raise DiskFault(fault.code or errno.EIO).error(opened.path)
        return count

    def fsync(self, descriptor: int) -> None:
        opened = self._open[descriptor]
        self._step("disk sync", _LATENCY_S["sync"])
        fault = self._fault("sync")
        if fault is None or fault.done:
            self.disk.sync(opened.node)
            if isinstance(opened.node, Folder):
                self.on_sync(opened.path)
        elif isinstance(opened.node, File) and not opened.node.is_durable:
            opened.node.lost = True
        if fault is not None:
            raise fault.error(opened.path)

    def link(self, source: object, target: object, *, follow_symlinks: bool = True) -> None:
        assert not follow_symlinks
        name = str(target)
        self._step(f"disk link {name[-10:]}", _LATENCY_S["change"])
        fault = self._fault("link")
        if fault is None or fault.done:
            file = self.disk.find(str(source))
            folder, last = self.disk.folder_of(name)
            if last in folder.entries:
                raise FileExistsError(errno.EEXIST, "File exists", name)
            assert isinstance(file, File)
            folder.put(last, file)
            self.on_link(name, bytes(file.data))
        if fault is not None:
            raise fault.error(name)

    def listdir(self, path: object) -> list[str]:
        self._read("list", str(path))
        node = self.disk.find(str(path))
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
        return list(node.entries)

    def fstat(self, descriptor: int) -> Status:
        return status_of(self._open[descriptor].node)

    # -- for paths ---------------------------------------------------------------------------------

    def remove(self, path: str) -> None:
        self._change("unlink", path)
        folder, name = self.disk.folder_of(path)
        if name not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        assert isinstance(folder.entries[name], File)
        folder.put(name, None)

    def remove_folder(self, path: str) -> None:
        self._change("rmdir", path)
        folder, name = self.disk.folder_of(path)
        node = self.disk.find(path)
        assert isinstance(node, Folder)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        folder.put(name, None)

    def make_folder(self, path: str) -> None:
        self._change("mkdir", path)
        folder, name = self.disk.folder_of(path)
        if name in folder.entries:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        folder.put(name, Folder())

    def read(self, descriptor: int, length: int | None) -> bytes:
        opened = self._open[descriptor]
        assert isinstance(opened.node, File)
        data = bytes(opened.node.data)[opened.position :][:length]
        opened.position += len(data)
        return data

    def remove_tree(self, path: object, *, ignore_errors: bool = False) -> None:
        """Stands for `shutil.rmtree`."""
        try:
            for name in self.listdir(path):
                child = f"{path}/{name}"
                if isinstance(self.disk.find(child), Folder):
                    self.remove_tree(child)
                else:
                    self.remove(child)
            self.remove_folder(str(path))
        except OSError:
            if not ignore_errors:
                raise

    def sync_all(self, path: object) -> None:
        """Stands for `syncfs`."""
        self._step("disk sync", _LATENCY_S["sync"])
        self._fail("sync", str(path))
        self.disk.sync_all()

    def _change(self, what: str, path: str) -> None:
        self._step(f"disk {what} {path[-10:]}", _LATENCY_S["change"])
        self._fail("space", path)

    def _read(self, what: str, path: str) -> None:
        self._step(f"disk {what} {path[-10:]}", _LATENCY_S["read"])
        self._fail("read", path)

    def _fail(self, kind: str, path: str) -> None:
        fault = self._fault(kind)
        if fault is not None:
            raise fault.error(path)


class OpenFile:
    """What `open` returns."""

    def __init__(self, files: Files, descriptor: int, closes: bool) -> None:
        self._files = files
        self._descriptor = descriptor
        self._closes = closes

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._closes:
            self._files.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def read(self, length: int | None = None) -> bytes:
        return self._files.read(self._descriptor, length)

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._files.write(self._descriptor, left) :]


def status_of(node: Node) -> Status:
    """Our folders are 0700, a file 0600."""
    if isinstance(node, Folder):
        return Status(stat.S_IFDIR | 0o700)
    return Status(stat.S_IFREG | 0o600, len(node.data))
