"""`twophase run`: runs a job from a file, and records the class archive in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twophase.cli.display.console import JobConsole
from twophase.cli.display.json_view import JsonView
from twophase.cli.display.output import SparkOutput, log_lines
from twophase.cli.display.views import ProgressMode, SilentView, View, make_view
from twophase.cli.jobfile.checked_job import load_job
from twophase.cli.jobfile.connections import check_connections
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.options import (
    checkpoint_location_option,
    is_verbose,
    job_file_argument,
    log_format_option,
    sink_ahead_option,
    verbose_option,
)
from twophase.cli.signals import StopSignals
from twophase.cli.spark import Start, spark_session, start_of
from twophase.contract.sink import Sink
from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import source_of
from twophase.engine.progress import STOPPING
from twophase.events import CheckpointCommitted, Event
from twophase.spark.startup.class_archive import ClassArchive, record_in_background
from twophase.spark.startup.first_processes import start_workers
from twophase.spark.startup.packages import JARS, PACKAGES

if TYPE_CHECKING:
    from twophase.spark.job.job import Job

_log = logging.getLogger("twophase.spark.startup")


@click.command()
@job_file_argument
@click.option(
    "--available-now",
    is_flag=True,
    help="Process the available records, then end, whatever the file's trigger.",
)
@click.option(
    "--restore",
    metavar="PATH",
    help="Start a new lineage from a checkpoint or savepoint; sets restore.path.",
)
@sink_ahead_option
@checkpoint_location_option
@click.option(
    "--progress",
    type=click.Choice([mode.value for mode in ProgressMode]),
    default=ProgressMode.AUTO.value,
    show_default=True,
    help="How to show progress; auto: live on a terminal, plain elsewhere.",
)
@log_format_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what the start would do, with or without --restore, and write nothing.",
)
@verbose_option
@click.pass_obj
def run(
    signals: StopSignals,
    job_file: Path,
    available_now: bool,
    restore: str | None,
    sink_ahead: str | None,
    checkpoint_location: str | None,
    progress: str,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Run the job that JOB.yaml describes until it is stopped.

    Ctrl-C or SIGTERM stops the job cleanly, while it starts too; a second one ends the process at
    once, and so does a stop that takes longer than a minute. Neither loses data.

    \b
    Examples:
      twophase run orders.yaml
      twophase run orders.yaml --available-now --progress plain
      twophase run orders.yaml --dry-run
      twophase run orders.yaml --restore /savepoints/orders-1 --dry-run
      twophase run orders.yaml --restore /savepoints/orders-1
      twophase run orders.yaml --restore /savepoints/orders-1 --sink-ahead rewind

    \b
    A job file:
      name: orders
      source:
        format: twophase-kafka
        schema: id long, amount double
        options: {kafka.bootstrap.servers: "broker:9092", subscribe: orders,
                  group.id: orders-etl, value.format: json}
      sql: select * from source where amount > 10
      sinks:
        facts:
          type: mysql
          options: {url: mysql://app@db/shop, table: orders,
                    password_env: SHOP_PASSWORD}
      options: {checkpointLocation: /chk/orders}
      trigger: {processingTime: 10 s}
    """
    overrides = {
        "restore.path": restore,
        "restore.sink_ahead": sink_ahead,
        "checkpointLocation": checkpoint_location,
    }
    job, sinks = load_job(job_file, overrides, available_now=available_now)
    if dry_run:
        # Imported here: a run does not need it, and starts sooner.
        from twophase.cli.dry_run import show_start

        show_start(job, sinks, verbose=is_verbose())
        return
    for section in job.sources.values():
        source_of(section.format).check_secrets(SourceLeg(section.format, section.options))
    console = JobConsole()
    view = (
        JsonView(job.name, console)
        if as_json
        else make_view(ProgressMode(progress), job.name, console)
    )
    _run_job(job, sinks, view, signals, verbose=is_verbose())


def _run_job(
    job: JobFile,
    sinks: Mapping[str, Sink],
    view: View,
    signals: StopSignals,
    *,
    verbose: bool,
) -> None:
    output = SparkOutput(view.print_line)
    start = start_of(job, sinks, verbose=verbose)

    def stopping() -> None:
        view.tracker.set_state(STOPPING)
        output.muted = not verbose

    signals.first, signals.hangs = stopping, view.print_line
    log = log_lines(
        view.print_log,
        verbose=verbose,
        events_are_shown=type(view) is not SilentView,
        formatter=view.log_formatter,
    )
    with view, log, signals.telling():
        _run_on_spark(job, sinks, start, view, output, signals)


def _run_on_spark(
    job: JobFile,
    sinks: Mapping[str, Sink],
    start: Start,
    view: View,
    output: SparkOutput,
    signals: StopSignals,
) -> None:
    meanwhile = partial(_while_the_jvm_starts, sinks)
    with (
        spark_session(start, output, meanwhile) as spark,
        recording(spark.archive, start.conf, sinks) as recorder,
    ):
        from twophase.cli.jobfile.pipeline import describe

        view.tracker.set_state("starting")
        described = describe(spark.session, job, sinks).observer(view).observer(recorder)
        if start.quick:
            start_workers(spark.session)
        muted = None if start.verbose else output
        _run_to_its_end(described.build(), signals, muted)


def _while_the_jvm_starts(sinks: Mapping[str, Sink]) -> None:
    """Do what needs no Spark: check the connections, and import what comes next."""
    check_connections(sinks)
    import_module("twophase.cli.jobfile.pipeline")


def _run_to_its_end(job: Job, signals: StopSignals, output: SparkOutput | None) -> None:
    signals.stop_with(job.stop)
    job.start()
    job.await_termination()
    if output is not None:
        output.muted = True  # Spark may still start workers that a short job no longer needs


class Recorder:
    """An observer of events that starts the recording when the first rows are committed.

    Args:
        archive: the archive to record; None records nothing.
        conf: Spark's configuration during the recording.
    """

    def __init__(self, archive: ClassArchive | None, conf: Mapping[str, str]) -> None:
        self._archive = archive
        self._conf = conf
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """See `twophase.events.Observer`."""
        if isinstance(event, CheckpointCommitted) and event.rows:
            self.begin()

    def begin(self) -> None:
        """Start the recording if it is due and was not started before."""
        with self._lock:
            archive, self._archive = self._archive, None
        try:
            if archive is not None and archive.is_due():
                record_in_background(archive, self._conf)
        except OSError as error:
            _log.debug("no class archive: %s", error)


@contextmanager
def recording(
    archive: ClassArchive | None, conf: Mapping[str, str], sinks: Mapping[str, Sink]
) -> Iterator[Recorder]:
    """Yield the recorder of a run; after a run without rows it records at the end, on success.

    Args:
        archive: the archive for the run's Spark; None if there can be none.
        conf: the configuration that this Spark was started with.
        sinks: the job's sinks; only the settings in `conf` that they need are used.
    """
    asked = {key for sink in sinks.values() for key in sink.spark_conf()}
    settings = {key: conf[key] for key in asked if key in conf}
    if archive is not None and archive.jars:
        settings |= {PACKAGES: "", JARS: ",".join(map(str, archive.jars))}
    recorder = Recorder(archive, settings)
    yield recorder
    recorder.begin()
