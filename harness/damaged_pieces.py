"""What somebody may do to a piece of a lake that waits in its folder, and what its loss says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from twophase.sinks.common.staging.manifest import FILE


def cut(folder: Path) -> None:
    """Cut a data file."""
    os.truncate(folder / "0", 10)


def drop_file(folder: Path) -> None:
    """Delete a data file."""
    (folder / "0").unlink()


def drop_manifest(folder: Path) -> None:
    """Delete the manifest."""
    (folder / FILE).unlink()


def change_manifest(folder: Path) -> None:
    """Change a byte of the manifest."""
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (cut, "has 10 bytes, not the"),
    (drop_file, "is gone, and twophase-"),
    (drop_manifest, "is neither staged nor named by the table's proofs"),
    (change_manifest, "is not the manifest of the checkpoint: its SHA-256 differs"),
]
