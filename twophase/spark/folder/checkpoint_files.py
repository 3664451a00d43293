"""How Spark writes the files of its checkpoint folder, where a plan keeps no state.

Spark plans and notes each micro-batch in small files that it renames. It does so by Hadoop's
`FileContext`, which starts the program `readlink` to find out whether a local path is a link, some
eight times a micro-batch, if Hadoop has no native library, as in PySpark's package. By Hadoop's
`FileSystem` it does not, which saves 70 ms a micro-batch (0089).

A file of a state store is different: it is written again, maybe with another content, when its
micro-batch runs again. `FileSystem` keeps the first file then, and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def settings(spark: SparkSession, *, stateful: bool) -> Mapping[str, str]:
    """Return what the query of a job starts with, whose folder is local.

    Empty if its plan keeps state, or the user has decided.
    """
    return {} if stateful or spark.conf.get(MANAGER, None) else {MANAGER: BY_FILE_SYSTEM}
