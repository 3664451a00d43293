"""The job of a run: its name, its options, its sinks, and how it opens them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twophase.contract.sink import SinkContext
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from verification.simulation.spark import SCHEMA
from verification.simulation.watched_sink import WatchedSink

if TYPE_CHECKING:
    from verification.simulation.world import World

JOB = "orders"


def job_options(
    world: World,
    folder: str,
    restore_path: str | None = None,
    sink_ahead: str = "",
    mode: str = "at_least_once",
) -> JobOptions:
    """The options of the job. Its mode changes nothing if it has never had a sink ahead."""
    restore = {
        "restore.path": restore_path,
        "restore.sink_ahead": sink_ahead or world.sink_ahead,
        "restore.id": world.restore_id,
    }
    given = {
        "checkpointLocation": folder,
        "checkpoint.tolerable_failures": world.options.tolerable_failures,
        "checkpoint.num_retained": world.options.num_retained,
        "checkpoint.max_concurrent": world.options.max_concurrent,
        "checkpoint.mode": mode if world.options.ahead else "exactly_once",
        # neither a checkpoint nor an adopted log has the watermark
        "restore.allow_non_restored_state": world.options.watermark,
    }
    return JobOptions.parse(given | (restore if restore_path else {}), "job")


def job_in(world: World, folder: str) -> str:
    """The name of the job in a folder: each fork has one of its own."""
    return f"{JOB}-{folder.rpartition('/')[2]}" if folder in world.oracle.saved.forks else JOB


def watched_sinks(world: World) -> dict[str, WatchedSink]:
    """The sinks of the job, not open."""
    options = {"load_rows": world.options.load_rows, "fence_timeout": 20}
    return {
        name: WatchedSink(world, url=f"mysql://app@{host}/shop", table=name, **options)
        for name, host in world.targets.items()
    }


def sink_context(world: World, sink: str, job: str = JOB) -> SinkContext:
    """The context in which a sink is opened for rows to come."""
    options = world.options
    return SinkContext(job, sink, SCHEMA, options.writers, max_concurrent=options.max_concurrent)


class SourceStates(OperatorStates):
    """Stands for the operator states of the job's sources.

    Args:
        same: whether the plan reads the sources of a savepoint, in their order.
    """

    def __init__(self, *, same: bool) -> None:
        super().__init__([], {})
        self._same = same

    def reads_same_sources(self, checkpoint: CompletedCheckpoint) -> bool:
        return self._same

    def start_offsets(
        self, checkpoint: CompletedCheckpoint, options: JobOptions
    ) -> tuple[str | None, ...]:
        return checkpoint.offsets.end

    def unproven(self, lines: Sequence[str | None], spark: Path | None) -> list[str]:
        """The source can read everything again."""
        return []
