"""Refuses settings with which Spark writes its checkpoint folder in a format of its next versions.

`spark_folder.py` knows version 1 of the offset log and of the commit log. With one of these
settings Spark writes others from the first micro-batch on, and a start could not read its own
folder any more. All are off by default in Spark 4.2 and 4.3; 4.1 has none of them.
"""

from __future__ import annotations

from typing import Any, Final

from twophase.errors import PreflightError

OFFSET_LOG: Final = "spark.sql.streaming.offsetLog.formatVersion"
KNOWN: Final = {
    OFFSET_LOG: "1",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.queryEvolution.enableSinkEvolution": "false",
}
"""The values with which Spark writes formats that are known here: its defaults."""


def check(who: str, conf: Any) -> None:
    """Refuse to start a query whose folder could not be read again.

    Args:
        who: the job or the format, for the error.
        conf: `SparkSession.conf` of the session that starts the query, which Spark Connect has too.

    Raises:
        PreflightError: one of the settings is on.
    """
    for key, known in KNOWN.items():
        found = conf.get(key, None)
        if found is not None and found.strip().lower() != known:
            raise PreflightError(
                f"{who}: {key} is {found}, and Spark would write its checkpoint folder in a format "
                "that this version of twophase does not know. Nothing was written.",
                remedy=f"set `{key}={known}`, Spark's default, or leave it out.",
            )
