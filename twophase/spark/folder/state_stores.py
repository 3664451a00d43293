"""The files of Spark's state stores, below `state/` of a query's folder.

    state/<operator>/_metadata/...                               stores and partitions; by the
                                                                 driver, before the first tasks
    state/<operator>/0/_metadata/schema                          keys and values of the default
                                                                 store; by the driver as well
    state/<operator>/<partition>/[<store>/]<version>.delta       what a micro-batch changed,
                                                                 in the default store
                                            <version>.snapshot   all of it, written later,
                                                                 from time to time
                                            <version>.changelog  the same two of RocksDB
                                            <version>.zip

The tasks of micro-batch n write version n + 1 in every partition, even in those without rows. Spark
4.2 finds a version by its number, or, with `spark.sql.streaming.stateStore.checkpointFormatVersion`
2, by an id that only its commit log has: `<version>_<id>.zip`. RocksDB keeps its tables and logs
beside these, in `SSTs/` and `logs/`; a zip file lists those that it needs.

The metadata give the number of shuffle partitions for each operator (seen with 4.2), although a
LIMIT and an aggregation without keys run in one. There is one file of them, `metadata`, or one for
each start of a query, `v2/<micro-batch>`.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from twophase.state.files.listing import files_below, listed

_MADE_BY_A_TASK = ("delta", "changelog", "zip")
_LIMIT = "globalLimit"
_DEFAULT_STORE = "default"
_SHARED = ("SSTs", "logs")
_VERSIONED = re.compile(r"(?P<version>\d+)(?P<id>_.+)?\.(?P<kind>delta|snapshot|changelog|zip)")
_NO_KEY = b'\0\2v2\0\0\0\1\0\x1d{"type":"struct","fields":[]}'


def have_version(state: Path, version: int) -> bool:
    """Return whether all partitions of all state stores have a version; False if in doubt.

    Args:
        state: the folder `state/`.
        version: as in the files' names.

    Raises:
        OSError: the folder cannot be searched.
    """
    operators = _operators(state)
    return bool(operators) and all(_has_version(operator, version) for operator in operators)


def files_of(folder: Path, version: int) -> list[Path]:
    """Return the files that a version of all stores consists of, with their descriptions.

    Of a store's files those from the newest snapshot on, up to the version. Where Spark finds
    versions by their ids, and where a zip file does not say what it needs: all up to the version.

    Args:
        folder: Spark's folder of the query.
        version: as in the files' names.

    Raises:
        OSError: the folder cannot be read.
    """
    state = folder / "state"
    stores: dict[Path, list[Path]] = {}
    others: list[Path] = []
    for path in sorted(files_below(state)):
        if path.parent.name in _SHARED:
            stores.setdefault(path.parent.parent, []).append(path)
        elif _VERSIONED.fullmatch(path.name):
            stores.setdefault(path.parent, []).append(path)
        else:
            others.append(path)
    return [*others, *(path for files in stores.values() for path in _needed(files, version))]


def single_partition(state: Path) -> str | None:
    """Return the name of an operator that keeps its state in one partition; None if there is none.

    Args:
        state: the folder `state/`.

    Raises:
        OSError, ValueError, KeyError: the metadata cannot be read.
    """
    for operator in _operators(state):
        described = _described(operator)
        if _is_single(operator, described):
            return str(described["operatorInfo"]["operatorName"])
    return None


def set_partitions(state: Path, partitions: int) -> None:
    """Make state that has been repartitioned consistent: Spark 4.2 leaves two things as they were.

    The metadata file `metadata` still gives the old number, and partitions that are gone still have
    their old files.

    Args:
        state: the folder `state/`.
        partitions: how many there are now.

    Raises:
        OSError: it could not be written.
    """
    for operator in _operators(state):
        file = operator / "_metadata" / "metadata"
        if file.exists():
            version, newline, described = file.read_text().partition("\n")
            fields = json.loads(described)
            for store in fields["stateStoreInfo"]:
                store["numPartitions"] = partitions
            file.write_text(f"{version}{newline}{json.dumps(fields, separators=(',', ':'))}")
            file.with_name(".metadata.crc").unlink(missing_ok=True)
        for path in operator.iterdir():
            if path.name.isdecimal() and int(path.name) >= partitions:
                shutil.rmtree(path)


def _operators(state: Path) -> list[Path]:
    return [path for path in state.iterdir() if path.name.isdecimal()]


def _needed(files: Iterable[Path], version: int) -> Iterator[Path]:
    """Yield those of a store's files that a version needs."""
    versions = {path: found for path in files if (found := _VERSIONED.fullmatch(path.name))}
    kept = {path: found for path, found in versions.items() if int(found["version"]) <= version}
    if not any(found["id"] for found in kept.values()):
        whole = [
            int(found["version"])
            for path, found in kept.items()
            if found["kind"] in ("snapshot", "zip") and path.stat().st_size
        ]
        base = max(whole, default=0)
        kept = {path: found for path, found in kept.items() if int(found["version"]) >= base}
    yield from kept
    shared = [_listed(path) for path, found in kept.items() if found["kind"] == "zip"]
    for path in files:
        if path not in versions and any(names is None or path.name in names for names in shared):
            yield path


def _listed(path: Path) -> frozenset[str] | None:
    """Return the names of the files beside a zip file that it needs; None if it does not say."""
    try:
        with zipfile.ZipFile(path) as archive:
            described = json.loads(archive.read("metadata").partition(b"\n")[2])
        found = [*described["sstFiles"], *described.get("logFiles", [])]
        return frozenset(name for file in found for key, name in file.items() if "dfs" in key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile):
        return None


def _has_version(operator: Path, version: int) -> bool:
    try:
        stores = list(_stores(operator))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False  # a format of another version
    return bool(stores) and all(
        any(_exists(store / f"{version}.{kind}") for kind in _MADE_BY_A_TASK) for store in stores
    )


def _stores(operator: Path) -> Iterator[Path]:
    """Yield the folders that an operator's stores must have; none if its metadata do not say."""
    described = _described(operator)
    partitions = 1 if _is_single(operator, described) else None
    for store in described["stateStoreInfo"]:
        name = "" if store["storeName"] == _DEFAULT_STORE else store["storeName"]
        for partition in range(partitions or store["numPartitions"]):
            yield operator / str(partition) / name


def _described(operator: Path) -> dict[str, Any]:
    """Return the newest metadata of an operator."""
    metadata = operator / "_metadata"
    versions = [path for path in listed(metadata / "v2") if path.name.isdecimal()]
    file = max(versions, key=lambda path: int(path.name), default=metadata / "metadata")
    found: dict[str, Any] = json.loads(file.read_text().partition("\n")[2])
    return found


def _is_single(operator: Path, described: dict[str, Any]) -> bool:
    return described["operatorInfo"]["operatorName"] == _LIMIT or _has_no_key(operator)


def _has_no_key(operator: Path) -> bool:
    try:
        return (operator / "0" / "_metadata" / "schema").read_bytes().startswith(_NO_KEY)
    except FileNotFoundError:
        return False


def _exists(file: Path) -> bool:
    """Return whether a file exists and is not empty: a power cut can empty the last one."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
