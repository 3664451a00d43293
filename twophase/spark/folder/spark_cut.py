"""The files of Spark's folder that belong to one cut: a savepoint copies, a restore writes them.

    offsets/<n-1>, offsets/<n>, commits/<n>      Spark continues with micro-batch n + 1
    sources/<position>/<entry>                   up to the entry that offsets/<n> names
    state/...                                    what version n + 1 of each store consists of

Spark writes each of them once, under its final name, and keeps those of the last 100 micro-batches
(`spark.sql.streaming.minBatchesToRetain`). So a cut can be copied while the job runs on. Checksums
(`.<name>.crc`) are left out: Spark does without. `metadata` is left out too: it holds the
lineage's id, and a restore begins another lineage.

State of `transformWithState` names its schema files by absolute paths. In a savepoint they are
relative to Spark's folder, behind `_HERE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twophase.errors import SavepointError
from twophase.spark.folder import state_stores
from twophase.state.files.listing import listed

COPY_BYTES = 4 * 1024 * 1024
_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_SCHEMAS = "stateSchemaFilePaths"
_HERE = "twophase-savepoint:"
_V2 = re.compile(r"state/\d+/_metadata/v2/(\d+)")


@dataclass(frozen=True)
class CutFile:
    """One file of a cut.

    Attributes:
        path: relative to Spark's folder.
        source: where it is.
        text: its content, if that in a savepoint differs from the one in Spark's folder.
    """

    path: str
    source: Path
    text: str | None = None

    def content(self) -> Iterator[bytes]:
        """Yield its content."""
        if self.text is not None:
            yield self.text.encode()
            return
        with self.source.open("rb") as file:
            while data := file.read(COPY_BYTES):
                yield data


def files_of_cut(folder: Path, batch: int, note: str | None) -> list[CutFile]:
    """Return the files that belong to the cut after a micro-batch.

    Args:
        folder: Spark's folder of the lineage.
        batch: n.
        note: what `commits/<n>` says, if Spark has not written it.

    Raises:
        SavepointError: Spark's folder does not have all of them.
        OSError: it cannot be read.
    """
    logs = [f"offsets/{batch}", *([f"offsets/{batch - 1}"] if batch else [])]
    found = [CutFile(path, folder / path) for path in logs]
    commit = f"commits/{batch}"
    found.append(CutFile(commit, folder / commit, note))
    if missing := [file.path for file in found if file.text is None and not file.source.is_file()]:
        raise SavepointError(
            f"Spark's folder {folder} lacks {missing[0]} of checkpoint {batch}. "
            "Nothing was written.",
            remedy="start the job: its error says what is wrong with the folder.",
        )
    found += _sources(folder, batch)
    state = (_movable(folder, path, batch) for path in state_stores.files_of(folder, batch + 1))
    return [*found, *(file for file in state if file is not None)]


def unmovable_text(path: str, data: bytes, folder: Path) -> bytes:
    """Return the content of a file of a savepoint as it is in Spark's folder.

    Args:
        path: relative to Spark's folder.
        data: the content in the savepoint.
        folder: Spark's folder, which the paths in it begin with.
    """
    if not _V2.fullmatch(path):
        return data
    here = f"file:{folder.absolute()}/"
    return _mapped(data.decode(), lambda one: one.replace(_HERE, here, 1)).encode()


def is_rewritten(path: str) -> bool:
    """Return whether the content of a file differs between a savepoint and Spark's folder."""
    return _V2.fullmatch(path) is not None


def _sources(folder: Path, batch: int) -> Iterator[CutFile]:
    """Yield the logs of the sources. The file source's grows with the offsets, others do not."""
    lines = (folder / "offsets" / str(batch)).read_text().split("\n")[2:]
    for position, line in enumerate(lines):
        last = _log_offset(line)
        root = folder / "sources" / str(position)
        for path in listed(root):
            number = _NUMBERED.fullmatch(path.name)
            if last is None or number is None or int(number[1]) <= last:
                yield CutFile(f"sources/{position}/{path.name}", path)


def _log_offset(line: str) -> int | None:
    try:
        return int(json.loads(line)["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None


def _movable(folder: Path, path: Path, batch: int) -> CutFile | None:
    relative = path.relative_to(folder).as_posix()
    described = _V2.fullmatch(relative)
    if described is None:
        return CutFile(relative, path)
    if int(described[1]) > batch:
        return None

    def without_root(name: str) -> str:
        _, found, rest = name.rpartition(f"/{folder.name}/state/")
        if not found:
            raise SavepointError(
                f"{path} names a schema file outside Spark's folder: {name}. Nothing was written.",
                remedy="report this message as a bug.",
            )
        return f"{_HERE}state/{rest}"

    return CutFile(relative, path, _mapped(path.read_text(), without_root))


def _mapped(text: str, change: Any) -> str:
    """Return the metadata of an operator with other paths of schema files; else as they are."""
    version, newline, described = text.partition("\n")
    fields = json.loads(described)
    for store in fields.get("stateStoreInfo", []):
        if isinstance(store.get(_SCHEMAS), list):
            store[_SCHEMAS] = [change(name) for name in store[_SCHEMAS]]
    return f"{version}{newline}{json.dumps(fields, separators=(',', ':'))}"
