"""Opens the job of a job file for a repair: its folder and its sinks, without a query.

Spark is started only if a sink needs it, or if rows are to be written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pyarrow as pa

from twophase.cli.display.output import SparkOutput, log_lines
from twophase.cli.jobfile.connections import check_connections
from twophase.cli.jobfile.job_file import JobFile, load_job_file
from twophase.cli.jobfile.pipeline import describe
from twophase.cli.jobfile.sink_types import make_sinks, modules_of_workers, spark_conf
from twophase.cli.spark import Start, spark_session
from twophase.config import JobOptions
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.context import JobContext
from twophase.errors import ConfigError
from twophase.events import Observers
from twophase.protocol.sink import OpensForRepair, Sink, SinkContext
from twophase.runtime.job import Job
from twophase.runtime.logging_observer import log_event
from twophase.runtime.plugin.adopted_query import check_root
from twophase.runtime.rewrite import KafkaReread
from twophase.startup.quick_start import is_switched_off
from twophase.state.log import job_of
from twophase.state.storage import LocalStorage

_NO_COLUMNS = pa.schema([])


@contextmanager
def repair_context(
    path: Path, checkpoint_location: str | None, *, verbose: bool
) -> Iterator[tuple[JobFile, JobContext]]:
    """Open the job of a job file, starting Spark only if a sink needs it.

    Args:
        path: the job file.
        checkpoint_location: the job's folder, if not the one in the file.
        verbose: show log lines.

    Raises:
        TwoPhaseError: the file is invalid, or a sink cannot be opened.
    """
    with ExitStack() as stack:
        job, context = _context(stack, path, checkpoint_location, verbose=verbose)
        open_sinks(stack, job, context.sinks, verbose=verbose)
        yield job, context


@contextmanager
def rewrite_context(
    path: Path, checkpoint_location: str | None, *, verbose: bool
) -> Iterator[tuple[JobContext, KafkaReread]]:
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
        job, context = _context(stack, path, checkpoint_location, verbose=verbose)
        described = _open_in_spark(stack, job, context.sinks, verbose=verbose).description
        storage = LocalStorage(described.options.checkpoint_location)
        yield context, KafkaReread(job.name, described.frame, described.sinks, storage)


def _context(
    stack: ExitStack, path: Path, checkpoint_location: str | None, *, verbose: bool
) -> tuple[JobFile, JobContext]:
    overrides = {} if checkpoint_location is None else {"checkpointLocation": checkpoint_location}
    job = load_job_file(path, overrides)
    sinks = make_sinks(job)
    options = JobOptions.parse(job.options, f"{path.name}: options")
    storage = LocalStorage(options.checkpoint_location)
    check_root(storage.root)
    if (other := job_of(storage)) not in (None, job.name):
        raise ConfigError(
            f"{storage.root} is the folder of job {other!r}, not of {job.name!r}.",
            remedy=f"correct {path.name}.",
        )
    stack.enter_context(
        log_lines(lambda line: click.echo(line, err=True), verbose=verbose, events_are_shown=False)
    )
    check_connections(sinks)
    return job, JobContext(job.name, storage, sinks, options, Observers(log_event), SystemClock())


def open_sinks(stack: ExitStack, job: JobFile, sinks: Mapping[str, Sink], *, verbose: bool) -> None:
    """Open the sinks of a job for a command that writes no rows; starts Spark if one needs it."""
    able = {name: sink for name, sink in sinks.items() if isinstance(sink, OpensForRepair)}
    if len(able) == len(sinks):
        for name, able_sink in able.items():
            able_sink.open_for_repair(SinkContext(job.name, name, _NO_COLUMNS, parallelism=0))
            stack.callback(able_sink.close)
        return
    _open_in_spark(stack, job, sinks, verbose=verbose)


def _open_in_spark(
    stack: ExitStack, job: JobFile, sinks: Mapping[str, Sink], *, verbose: bool
) -> Job:
    conf = spark_conf(job, sinks)
    quick = job.spark.quick_start and not is_switched_off()
    start = Start(job.name, job.spark.master, conf, quick, modules_of_workers(job, sinks), verbose)
    output = SparkOutput(lambda line: click.echo(line, err=True))
    spark = stack.enter_context(spark_session(start, output)).session
    described = describe(spark, job, sinks).build()
    described.open_sinks()
    for sink in sinks.values():
        stack.callback(sink.close)
    return described
