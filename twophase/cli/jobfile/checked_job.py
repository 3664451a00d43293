"""A job file that is checked whole, before Spark starts: its sources and sinks too."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from twophase.cli.jobfile.job_file import JobFile, SourceSection, read_job_file
from twophase.cli.jobfile.mistakes import Mistakes
from twophase.cli.jobfile.sink_types import make_sinks, spark_conf
from twophase.contract.sink import Sink
from twophase.contract.source import SourceLeg, UnknownSource
from twophase.contract.source_entry_points import installed_sources, source_of
from twophase.errors import ConfigError
from twophase.spark.folder.query_folder import check_root
from twophase.state.files.storage import local_path

_OURS = "twophase-"


def load_job(
    path: Path, overrides: Mapping[str, Any], *, available_now: bool = False
) -> tuple[JobFile, Mapping[str, Sink]]:
    """Read and check a job file; create its sinks, without opening any.

    Args:
        path: the file.
        overrides: options of the job that the command line sets; None for one that it does not.
        available_now: process the available records, then end, whatever the file's trigger.

    Raises:
        ConfigError: the file cannot be read, or something in it is invalid.
        ExceptionGroup: several things in it are.
    """
    mistakes = Mistakes(path.name)
    job = read_job_file(path, overrides, mistakes, available_now=available_now)
    for name, section in job.sources.items():
        mistakes.note(partial(_check_source, section), f"{path.name}: {name}")
    sinks = make_sinks(job, mistakes)
    mistakes.note(lambda: spark_conf(job, sinks))
    mistakes.note(lambda: _check_folder(job.options), f"{path.name}: options")
    mistakes.check()
    return job, sinks


def _check_source(section: SourceSection) -> None:
    """Check the options of a source as a start does, and whether its columns are known.

    Raises:
        ConfigError: one is wrong, or the schema is missing; or there is no source of a name that
            begins as our sources do.
    """
    source = source_of(section.format)
    if section.format.startswith(_OURS) and isinstance(source, UnknownSource):
        known = [name for name, _ in installed_sources()]
        near = difflib.get_close_matches(section.format, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known formats: {', '.join(known)}."
        raise ConfigError(f"there is no source {section.format!r}; {hint}")
    source.check_options(SourceLeg(section.format, section.options))
    if section.fields is None and source.needs_schema(section.options):
        raise ConfigError(
            f"the source {section.format!r} has no columns of its own with these options.",
            remedy='give them: `schema: "id long, amount double"`.',
        )


def _check_folder(options: Mapping[str, Any]) -> None:
    location = options.get("checkpointLocation")
    if isinstance(location, str):
        check_root(local_path(location))
