"""A job file that is checked whole, before Spark starts: its sources and sinks too."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
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
from twophase.state.files.folder_rights import check_rights
from twophase.state.files.storage import local_path

_LOCATION = "checkpointLocation"
_OURS = "twophase-"
_OUR_SINKS = "twophase.sinks."
_OTHER_STORAGE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:")
_VARIABLE = re.compile(r"\$(\w|\{)")


def load_job(
    path: Path,
    overrides: Mapping[str, Any],
    *,
    available_now: bool = False,
    on_driver: bool = True,
) -> tuple[JobFile, Mapping[str, Sink]]:
    """Read and check a job file; create its sinks, without opening any.

    Args:
        path: the file.
        overrides: options of the job that the command line sets; None for one that it does not.
        available_now: process the available records, then end, whatever the file's trigger.
        on_driver: whether the job runs here: if not, nothing is said of who may write to a folder.

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
    folders = _folders(job, sinks, mistakes, on_driver=on_driver)
    for one, other in combinations(folders, 2):
        mistakes.note(partial(_check_apart, one, other), path.name)
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


@dataclass(frozen=True)
class _Folder:
    """A folder that a job writes to.

    Attributes:
        key: what names it in the job file.
        path: absolute, with links resolved.
    """

    key: str
    path: Path


def _folders(
    job: JobFile, sinks: Mapping[str, Sink], mistakes: Mistakes, *, on_driver: bool
) -> list[_Folder]:
    """Return the folders that the job file names and that are sound, of the job and of sinks."""
    found = []
    location = job.options.get(_LOCATION)
    if isinstance(location, str) and location:
        find = partial(_job_folder, location, on_driver=on_driver)
        path = mistakes.note(find, f"{job.path.name}: options")
        found += [_Folder(f"options.{_LOCATION}", path)] if path else []
    for name, sink in sinks.items():
        section = job.sinks[name]
        given = section.options.get("path")
        if not type(sink).__module__.startswith(_OUR_SINKS) or not isinstance(given, str):
            continue  # a sink of somebody else's may mean a file by it
        where = f"{job.path.name}: sinks.{name}"
        path = mistakes.note(partial(_sink_folder, given, on_driver=on_driver), where)
        found += [_Folder(f"sinks.{name}.options.path", path)] if path else []
    return found


def _job_folder(text: str, *, on_driver: bool) -> Path:
    _refuse_variables(_LOCATION, text)
    path = local_path(text)
    _check_place(_LOCATION, path, links=False)
    if on_driver:
        _check_writable(_LOCATION, path)
        check_rights(path, _LOCATION)
    check_root(path)
    return path.resolve()


def _sink_folder(text: str, *, on_driver: bool) -> Path | None:
    """Return the folder of a sink; None for one that is on another storage."""
    _refuse_variables("path", text)
    if _OTHER_STORAGE.match(text):
        return None
    if not text.startswith(("/", "file:/")):
        raise ConfigError(
            f"path {text!r} is not absolute: the driver's working folder is not a place for a "
            "table.",
            remedy=f"write the whole path: {Path(text).absolute()}",
        )
    path = local_path(text, "path")
    _check_place("path", path, links=True)
    if on_driver:
        _check_writable("path", path)
    return path.resolve()


def _refuse_variables(option: str, text: str) -> None:
    if text.startswith("~") or _VARIABLE.search(text):
        raise ConfigError(
            f"{option} {text!r}: nothing is expanded in a job file.", remedy="write the whole path."
        )


def _check_place(option: str, path: Path, *, links: bool) -> None:
    """Check that a path is a folder, or can become one."""
    if (os.path.lexists(path) and not path.is_dir()) or (path.is_symlink() and not links):
        what = "a link" if path.is_symlink() else "a file"
        raise ConfigError(
            f"{option} {str(path)!r} is {what}, not a folder.", remedy="name a folder."
        )
    above = _nearest(path)
    if not above.is_dir():
        raise ConfigError(
            f"{option} {str(path)!r}: {above} is not a folder.", remedy="name another folder."
        )


def _check_writable(option: str, path: Path) -> None:
    above = _nearest(path)
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {str(path)!r}: {above} cannot be written.",
            remedy=f"give the account of the job the right to write in {above}.",
        )


def _nearest(path: Path) -> Path:
    """Return the path if it exists, or else the nearest of its parents that does."""
    return next(one for one in (path, *path.parents) if os.path.lexists(one))


def _check_apart(one: _Folder, other: _Folder) -> None:
    """Check that neither of two folders is in the other."""
    for outer, inner in ((one, other), (other, one)):
        if inner.path.is_relative_to(outer.path):
            how = "the same folder as" if inner.path == outer.path else "inside"
            raise ConfigError(
                f"{inner.key} {str(inner.path)!r} is {how} {outer.key} {str(outer.path)!r}: each "
                "would take the other's files for its own.",
                remedy="give each a folder of its own, beside the other.",
            )
