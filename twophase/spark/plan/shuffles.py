"""Checks that Spark detects a shuffle that gives other rows when it is recomputed.

An executor dies with rows that it had shuffled. Its map tasks run again, and if the partition of a
row is random (`repartition(8, rand())`, a random Python function), the partitions now hold other
rows. A task that has reported used the old ones, a task that has not reads the new ones: rows would
be lost and duplicated within one checkpoint. Materialising the rows would not help: its own tasks
read the same shuffle.

Spark's scheduler detects this by an order-independent checksum of each map task's rows, and fails
the job if any result is based on the old rows. So the attempt is declined, and nothing of it
becomes visible. All that remains to do here is to check that this is not switched off: a plan does
not tell whether a Python function is random.

Spark 4.1 has the same detection, switched off by default: queries then start with it on, as they do
in 4.2, unless the user has set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twophase.errors import PreflightError
from twophase.spark.plan import logical_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FULL_RETRY = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
PUSH = "spark.shuffle.push.enabled"


@dataclass(frozen=True)
class Fault:
    """A Spark setting that switches this detection off.

    Attributes:
        key: its name.
        right: the value it must have, which is Spark's default from 4.2 on, not in 4.1.
    """

    key: str
    right: str

    def refusal(self, job: str, shuffles: str) -> PreflightError:
        """Return the error for a job that shuffles.

        Args:
            job: the job's name.
            shuffles: what is known about its shuffles.
        """
        return PreflightError(
            f"Job {job!r}: {shuffles}, and {self.key} is not {self.right}: if an executor died, "
            "Spark could mix the rows of two computations, which would lose some rows and "
            "duplicate others. Nothing was written.",
            remedy=f"set `{self.key}={self.right}`.",
        )


def settings(spark: SparkSession) -> Mapping[str, str]:
    """Return what a query has to start with, so that Spark notices that a shuffle gave other rows.

    Empty if Spark does so by itself, or if the user has decided: then `find_fault` judges it.
    """
    if spark.conf.get(FULL_RETRY, None) is not None or spark.conf.get(FULL_RETRY) == "true":
        return {}
    return {FULL_RETRY: "true"}


def find_fault(spark: SparkSession) -> Fault | None:
    """Return the setting, if any, with which Spark would miss that a shuffle gave other rows, in a
    query that starts with `settings`.
    """
    of_application = spark.sparkContext.getConf().get(PUSH, "false")
    set_now = {FULL_RETRY: spark.conf.get(FULL_RETRY), PUSH: of_application}
    return find_fault_in({**set_now, **settings(spark)})


def find_fault_in(conf: Any) -> Fault | None:
    """Return the same for a query that starts with the settings as they are.

    Args:
        conf: `SparkSession.conf`, which Spark Connect has too, with those of the application in it.
    """
    if conf.get(FULL_RETRY) != "true":
        return Fault(FULL_RETRY, "true")
    # Spark ignores the checksums of shuffles that it merges (push-based shuffle).
    return Fault(PUSH, "false") if conf.get(PUSH, "false") == "true" else None


def check(job: str, spark: SparkSession, frames: Iterable[DataFrame]) -> None:
    """Refuse plans that may shuffle if Spark would miss that a shuffle gave other rows.

    Args:
        job: the job's name, for the error.
        spark: the session that the query is started in.
        frames: the rows of each of the job's sinks; inspected only if a setting is at fault.

    Raises:
        PreflightError: a plan shuffles, and a Spark setting switches the detection off.
    """
    fault = find_fault(spark)
    if fault is not None and any(logical_plan.may_shuffle(frame) for frame in frames):
        raise fault.refusal(job, "its plan shuffles rows, or might")
