"""Opens the job of a job file for a repair: its folder and its sinks, without a query.

Spark is started only if a sink needs it, or if rows are to be written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twophase.cli.display.output import SparkOutput, log_to_stderr, print_to_stderr
from twophase.cli.jobfile.connections import check_connections
from twophase.cli.jobfile.job_file import JobFile, read_job_file
from twophase.cli.jobfile.mistakes import Mistakes
from twophase.cli.jobfile.pipeline import describe
from twophase.cli.jobfile.sink_types import make_sinks
from twophase.cli.spark import spark_session, start_of
from twophase.contract.sink import OpenSink, Sink, SinkContext
from twophase.contract.source_entry_points import skips_existing
from twophase.coordinator.commit.commit_queue import Spawn, plain_thread
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.fan_out import SideBySide
from twophase.engine.engine import open_side_by_side
from twophase.errors import ConfigError
from twophase.events import Observers
from twophase.internals.clock import SystemClock
from twophase.internals.logging_observer import log_event
from twophase.options.job_options import JobOptions
from twophase.spark.batch.reread import PlanReread
from twophase.spark.batch.spark_jobs import thread_like_this
from twophase.spark.folder.query_folder import check_root
from twophase.spark.plugin.adopted_query import query_folder
from twophase.state.files.folder_rights import check_owner
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import job_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def repair_context(
    path: Path,
    checkpoint_location: str | None,
    overrides: Mapping[str, str | None] | None = None,
    *,
    verbose: bool,
) -> Iterator[tuple[JobFile, JobContext]]:
    """Open the job of a job file, starting Spark only if a sink needs it.

    Args:
        path: the job file.
        checkpoint_location: the job's folder, if not the one in the file.
        overrides: other options, in place of those in the file.
        verbose: show log lines.

    Raises:
        TwoPhaseError: the file is invalid, or a sink cannot be opened.
    """
    with ExitStack() as stack:
        given = {"checkpointLocation": checkpoint_location, **(overrides or {})}
        job, options, declared = _load(stack, path, given, verbose=verbose)
        sinks = open_sinks(stack, job, declared, verbose=verbose)
        yield job, _context(job, options, sinks)


@contextmanager
def rewrite_context(
    path: Path, checkpoint_location: str | None, *, verbose: bool
) -> Iterator[tuple[JobContext, PlanReread]]:
    """Open the job of a job file with its plan, to write rows again.

    Args:
        path: the job file.
        checkpoint_location: the job's folder, if not the one in the file.
        verbose: show log lines.

    Raises:
        TwoPhaseError: the file is invalid, a sink cannot be opened, or rows of this plan
            cannot be written again.
    """
    with ExitStack() as stack:
        given = {"checkpointLocation": checkpoint_location}
        job, options, declared = _load(stack, path, given, verbose=verbose)
        spark = _start_spark(stack, job, declared, verbose=verbose)
        described = describe(spark, job, declared).build()
        sinks = described.open_sinks()
        for sink in sinks.values():
            stack.callback(sink.close)
        context, parts = _context(job, options, sinks), described.description
        storage = LocalStorage(options.checkpoint_location)
        yield context, PlanReread(job.name, parts.frame, parts.sinks, sinks, storage)


def _load(
    stack: ExitStack, path: Path, overrides: Mapping[str, str | None], *, verbose: bool
) -> tuple[JobFile, JobOptions, Mapping[str, Sink]]:
    mistakes = Mistakes(path.name)
    job = read_job_file(path, overrides, mistakes)
    sinks = make_sinks(job, mistakes)
    mistakes.check()
    options = JobOptions.parse(job.options, f"{path.name}: options")
    storage = LocalStorage(options.checkpoint_location)
    check_root(storage.root, repairs=True)
    check_owner(storage.root)
    if (other := job_of(storage)) not in (None, job.name):
        raise ConfigError(
            f"{storage.root} is the folder of job {other!r}, not of {job.name!r}.",
            remedy=f"correct {path.name}.",
        )
    stack.enter_context(log_to_stderr(verbose=verbose))
    check_connections(sinks)
    return job, options, sinks


def _context(job: JobFile, options: JobOptions, sinks: Mapping[str, OpenSink]) -> JobContext:
    storage = LocalStorage(options.checkpoint_location)
    context = JobContext(job.name, storage, sinks, options, Observers(log_event), SystemClock())
    is_query = query_folder(storage.root) is not None  # its host does not know its sources
    context.skips_existing = is_query or skips_existing(job.legs)
    return context


def open_sinks(
    stack: ExitStack, job: JobFile, declared: Mapping[str, Sink], *, verbose: bool
) -> dict[str, OpenSink]:
    """Open the sinks of a job for a command that writes no rows; starts Spark if one needs it.

    Raises:
        TwoPhaseError: as `open_side_by_side`.
    """
    spawn: Spawn = plain_thread
    if any(sink.needs_spark for sink in declared.values()):
        spark = _start_spark(stack, job, declared, verbose=verbose)
        spawn = partial(thread_like_this, spark, f"twophase-{job.name}")

    def without_rows(sink: str) -> SinkContext:
        return SinkContext(job.name, sink, None, parallelism=0)

    sinks = open_side_by_side(job.name, declared, without_rows, SideBySide(spawn), Observers())
    for sink in sinks.values():
        stack.callback(sink.close)
    return sinks


def _start_spark(
    stack: ExitStack, job: JobFile, declared: Mapping[str, Sink], *, verbose: bool
) -> SparkSession:
    start = start_of(job, declared, verbose=verbose)
    return stack.enter_context(spark_session(start, SparkOutput(print_to_stderr))).session
