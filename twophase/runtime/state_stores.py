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
2, by an id that only its commit log has: `<version>_<id>.zip`.

The metadata give the number of shuffle partitions for each operator (seen with 4.2), although a
LIMIT and an aggregation without keys run in one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

_MADE_BY_A_TASK = ("delta", "changelog", "zip")
_LIMIT = "globalLimit"
_DEFAULT_STORE = "default"
_NO_KEY = b'\0\2v2\0\0\0\1\0\x1d{"type":"struct","fields":[]}'


def have_version(state: Path, version: int) -> bool:
    """Return whether all partitions of all state stores have a version; False if in doubt.

    Args:
        state: the folder `state/`.
        version: as in the files' names.

    Raises:
        OSError: the folder cannot be searched.
    """
    operators = [path for path in state.iterdir() if path.name.isdecimal()]
    return bool(operators) and all(_has_version(operator, version) for operator in operators)


def _has_version(operator: Path, version: int) -> bool:
    try:
        stores = list(_stores(operator))
    except (ValueError, KeyError, TypeError):  # a format that this version does not know
        return False
    return bool(stores) and all(
        any(_exists(store / f"{version}.{kind}") for kind in _MADE_BY_A_TASK) for store in stores
    )


def _stores(operator: Path) -> Iterator[Path]:
    """Yield the folders that an operator's stores must have; none if its metadata do not say."""
    for file in (operator / "_metadata").rglob("[!.]*"):  # metadata, or v2/<micro-batch>
        if file.is_dir():
            continue
        described = json.loads(file.read_text().partition("\n")[2])
        is_single = described["operatorInfo"]["operatorName"] == _LIMIT or _has_no_key(operator)
        for store in described["stateStoreInfo"]:
            name = "" if store["storeName"] == _DEFAULT_STORE else store["storeName"]
            for partition in range(1 if is_single else store["numPartitions"]):
                yield operator / str(partition) / name


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
