"""Lets Spark refuse, before the job is taken over, what it would refuse when the query starts.

A query starts behind the fence: a mistake found there would leave its generation in the log and in
every target, and a job that never wrote a row could no longer begin in another folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException

from twophase.contract.source import UnknownSource
from twophase.contract.source_entry_points import source_of
from twophase.errors import ConfigError
from twophase.spark.plan import logical_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNSUPPORTED_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_MISTAKES = ("java.lang.IllegalArgumentException", "java.lang.NumberFormatException")
_SHOWN = 400


def check(job: str, frame: DataFrame, trigger: Mapping[str, Any]) -> None:
    """Let Spark check the trigger, the plan, and the options of its own sources.

    Args:
        job: the job's name, for the error.
        frame: the streaming DataFrame.
        trigger: as `DataStreamWriter.trigger` takes it; empty for none.

    Raises:
        ConfigError: Spark refuses one of them; nothing was written.
    """
    if trigger:
        _checked(job, "the trigger", partial(frame.writeStream.trigger, **trigger))
    _checked(job, "the plan", partial(_check_plan, frame))
    with tempfile.TemporaryDirectory(prefix="twophase-check-") as folder:
        for number, (leg, node) in enumerate(logical_plan.source_nodes(frame)):
            if _is_spark_s_own(leg.name):
                path = f"file://{folder}/{number}"
                _checked(job, f"source {leg.name}", partial(_open, node, path))


def _checked(job: str, what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (AnalysisException, IllegalArgumentException, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and error.java_exception.getClass().getName() not in (
            _MISTAKES
        ):
            raise
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ConfigError(
            f"Job {job!r}: Spark refuses {what}: {first[:_SHOWN].rstrip(';. ')}. "
            "Nothing was written.",
            remedy="correct it, and start again.",
        ) from error


def _check_plan(frame: DataFrame) -> None:
    spark = frame.sparkSession
    if spark.conf.get(_UNSUPPORTED_CHECK, "true") == "true":
        jvm: Any = spark._jvm
        append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        plan = logical_plan.analyzed(frame)
        analysis.UnsupportedOperationChecker.checkForStreaming(plan, append)


def _is_spark_s_own(name: str) -> bool:
    """Return whether a source is known, and Spark's JVM reads it: making one reads its options."""
    source = source_of(name)
    return not isinstance(source, UnknownSource) and source.data_source() is None


def _open(node: Any, path: str) -> None:
    """Make the source of a node as a query does, and close it again; it reads nothing.

    Args:
        node: of the logical plan.
        path: where the source may keep what it notes.
    """
    if node.nodeName() == "StreamingRelation":
        node.dataSource().createSource(path).stop()
    else:
        scan = node.table().newScanBuilder(node.extraOptions()).build()
        scan.toMicroBatchStream(path).stop()
