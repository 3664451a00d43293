"""File permissions in tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def secret_file(path: Path, text: str) -> Path:
    """Write a file that only its owner may read, before there is anything to read in it."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask of this process, and set it back."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def permissions_checked() -> Iterator[None]:
    """Make the kernel enforce file permissions for this thread, even if it is root's
    (capabilities(7)).
    """
    header, found = _Header(_VERSION, 0), (_Capabilities * 2)()
    _call(_libc.capget, header, found)
    before = found[0].effective
    found[0].effective = before & ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    _call(_libc.capset, header, found)
    try:
        yield
    finally:
        found[0].effective = before
        _call(_libc.capset, header, found)


def _call(function: Any, header: _Header, capabilities: Any) -> None:
    if function(ctypes.byref(header), capabilities):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
