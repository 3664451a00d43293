"""The manifest of a savepoint: what it holds, and where in its data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from twophase.errors import CorruptRecordError
from twophase.state.files import codec
from twophase.state.journal.entries import Rescale

COPY_AGAIN = "copy the savepoint again from where it was made, or restore from another one."
_PLAIN_PART = re.compile(r"[^/\0]+")


@dataclass(frozen=True)
class SavedFile:
    """One file of a savepoint.

    Attributes:
        path: relative, with '/' between parts.
        start: where its content begins, in bytes from the beginning of the data.
        length: in bytes.
        sha256: of its content, in hex.
    """

    path: str
    start: int
    length: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a savepoint holds.

    Attributes:
        job: the job's name.
        lineage: the lineage of its checkpoint.
        checkpoint: n, the newest checkpoint in it.
        body: the path of that checkpoint's body.
        pending: the paths of the bodies of all checkpoints up to n that were decided and not
            committed, oldest first. The last is then `body`.
        ancestors: the last checkpoint of each lineage that this one continues.
        created_ms: Unix time; for people, never for decisions.
        files: every file.
        part_bytes: the size of each part of the data but the last one.
        rescaled: how Spark's keyed state was repartitioned since that checkpoint, oldest first.
    """

    job: str
    lineage: str
    checkpoint: int
    body: str
    pending: tuple[str, ...]
    ancestors: Mapping[str, int]
    created_ms: int
    files: tuple[SavedFile, ...]
    part_bytes: int
    rescaled: tuple[Rescale, ...] = ()

    @property
    def last_batch(self) -> int:
        """The newest micro-batch in the copy of Spark's folder."""
        return self.rescaled[-1].batch if self.rescaled else self.checkpoint

    @property
    def size(self) -> int:
        """The length of all files together, in bytes."""
        return sum(file.length for file in self.files)

    def below(self, folder: str) -> list[SavedFile]:
        """Return the files in a folder, or deeper."""
        return [file for file in self.files if file.path.startswith(f"{folder}/")]


def decode_manifest(kind: str, data: bytes, where: str) -> Manifest:
    """Return what a manifest says.

    Args:
        kind: of its record.
        data: the whole file.
        where: its path, for errors.

    Raises:
        CorruptRecordError: it is damaged.
        NewerFormatError: a newer version of twophase has written it.
    """
    manifest = _decoded(kind, data, where)
    paths = [file.path for file in manifest.files]
    if not all(map(_is_plain, paths)) or not {manifest.body, *manifest.pending} <= {*paths}:
        raise CorruptRecordError(
            f"The savepoint's manifest {where} names files outside the savepoint. "
            "Nothing was started or written.",
            remedy=COPY_AGAIN,
        )
    return manifest


def _decoded(kind: str, data: bytes, where: str) -> Manifest:
    try:
        return codec.decode(kind, data, where, Manifest)
    except CorruptRecordError as error:
        what = error.what.partition(": ")[2].partition(". ")[0]
        raise CorruptRecordError(
            f"The savepoint's manifest {where} is damaged: {what}. Nothing was started or written.",
            remedy=COPY_AGAIN,
        ) from None


def _is_plain(path: str) -> bool:
    """Return whether a path leads to a file below the folder that it is copied to."""
    parts = path.split("/")
    return all(_PLAIN_PART.fullmatch(part) and part not in (".", "..") for part in parts)
