"""LOAD DATA LOCAL of files, side by side: the peer of `benchmarks.load_data_limit`."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pymysql

from benchmarks.orders import TABLE


def load_all(
    account: Mapping[str, Any], files: Sequence[Sequence[Sequence[str]]]
) -> list[dict[str, Any]]:
    """Load the files of each micro-batch, those of each task in a transaction of its own.

    Args:
        account: of the server, as `benchmarks.launch.account` returns it.
        files: of each micro-batch and task the paths.

    Returns:
        Of each micro-batch the fields of a `benchmarks.driver.Batch`.
    """
    batches = []
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(files[0]), mp_context=context) as sessions:
        for number, tasks in enumerate(files):
            began, began_s = datetime.now(UTC), time.monotonic()
            rows = sum(sessions.map(partial(_load, account), tasks))
            duration_s = time.monotonic() - began_s
            batches.append(
                {
                    "number": number,
                    "rows": rows,
                    "began": began.isoformat(),
                    "duration_s": duration_s,
                    "phases_ms": {},
                }
            )
    return batches


def _load(account: Mapping[str, Any], paths: Sequence[str]) -> int:
    where = {key: account[key] for key in ("host", "port", "user", "database")}
    password = os.environ[account["password_env"]]
    with (
        pymysql.connect(**where, password=password, local_infile=True) as connection,
        connection.cursor() as cursor,
    ):
        rows: int = sum(
            cursor.execute(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {TABLE}") for path in paths
        )
        connection.commit()
    return rows
