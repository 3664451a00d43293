"""Rows that are shuffled by chance, and who notices when some of them are computed again.

An executor dies with rows that it had shuffled. Its map tasks run again, and if chance has a part in where a row goes
(`repartition(8, rand())`, a Python function that draws), other rows lie in the partitions now. A task that has reported
rests on the former ones, a task that has not reads the latter: rows would be lost and doubled within one checkpoint.
Materialising the rows would not help: its own tasks read the same shuffle.

Spark's scheduler notices, by a checksum of each map task's rows that does not depend on their order, and fails the job
if any result rests on the former rows. So the attempt is declined, and nothing of it becomes visible. What is left to
do here is to see that nobody has switched that off: no plan tells whether a Python function draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twophase.errors import PreflightError
from twophase.runtime import plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FULL_RETRY = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
PUSH = "spark.shuffle.push.enabled"


@dataclass(frozen=True)
class Fault:
    """A setting of Spark that takes its notice away.

    Attributes:
        key: its name.
        right: the value it should have, which is Spark's default.
    """

    key: str
    right: str

    def refusal(self, job: str, shuffles: str) -> PreflightError:
        """The error for a job that shuffles.

        Args:
            job: the job's name.
            shuffles: what is known about its shuffles.
        """
        return PreflightError(
            f"Job {job!r}: {shuffles}, and {self.key} is not {self.right}: when an executor dies, Spark could mix rows of two "
            "computations, which loses some and doubles others. Nothing was written.",
            remedy=f"set {self.key} to {self.right}, which is Spark's default.",
        )


def find_fault(spark: SparkSession) -> Fault | None:
    """The setting of a session, if any, with which Spark would not notice that a shuffle has given other rows."""
    if spark.conf.get(FULL_RETRY) != "true":
        return Fault(FULL_RETRY, "true")
    # Spark does not act on the checksums of shuffles that it merges on the way.
    if spark.sparkContext.getConf().get(PUSH, "false") == "true":
        return Fault(PUSH, "false")
    return None


def check(job: str, spark: SparkSession, frames: Iterable[DataFrame]) -> None:
    """Refuse plans that shuffle, or may, while Spark would not notice that a shuffle has given other rows.

    Args:
        job: the job's name, for the error.
        spark: the session that the query is started in.
        frames: what each of the job's sinks sees; looked at only if a setting is at fault.

    Raises:
        PreflightError: a plan shuffles, and a setting of Spark takes the notice away.
    """
    fault = find_fault(spark)
    if fault is not None and any(plan.may_shuffle(frame) for frame in frames):
        raise fault.refusal(job, "its plan shuffles rows, or may")
