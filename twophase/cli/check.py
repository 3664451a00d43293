"""`twophase check`: what is wrong with a job file, without Spark and without the targets."""

from __future__ import annotations

from pathlib import Path

import click

from twophase.cli.jobfile.checked_job import load_job
from twophase.cli.options import checkpoint_location_option, job_file_argument, verbose_option


@click.command()
@job_file_argument
@checkpoint_location_option
@verbose_option
def check(job_file: Path, checkpoint_location: str | None) -> None:
    """Check JOB.yaml as `twophase run` does before it starts Spark; report every mistake.

    Connects to nothing and writes nothing.

    \b
    Example:
      twophase check orders.yaml
    """
    overrides = {"checkpointLocation": checkpoint_location}
    job, sinks = load_job(job_file, overrides, on_driver=False)
    click.echo(
        f"{job_file.name}: job {job.name}, {', '.join(job.sources)} to {', '.join(sinks)}: "
        "no mistake found. Spark checks schema and sql when the job starts, and the sinks their "
        "targets."
    )
