"""Finds the class of a sink by the `type` in a job file, and creates the sink.

A sink is found through the entry point group `twophase.sinks`, so that nothing here depends on a
particular sink, or as `module:Class` beside the job file. Naming a class runs its code: a job file
is as trusted as a program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from twophase.cli.jobfile.job_file import JobFile, SinkSection
from twophase.cli.jobfile.mistakes import Mistakes
from twophase.contract.sink import ArrowSink, Sink
from twophase.errors import ConfigError
from twophase.internals.sink_entry_points import load_sink, make_sink
from twophase.internals.user_code import RAISED, described, has_place

_AS_A_CLASS = "write it as module:Class; modules beside the job file and installed ones are found."


def make_sinks(job: JobFile, mistakes: Mistakes) -> Mapping[str, Sink]:
    """Create the sinks of a job, without opening any.

    A type that is unknown or cannot be loaded, and invalid options, are kept as mistakes.
    """
    if any(":" in section.type for section in job.sinks.values()):
        _allow_imports_from(job.path.absolute().parent)
    where = f"{job.path.name}: sinks"
    made = {
        name: mistakes.note(partial(_make, f"{where}.{name}", section))
        for name, section in job.sinks.items()
    }
    return {name: sink for name, sink in made.items() if sink is not None}


def spark_conf(job: JobFile, sinks: Mapping[str, Sink]) -> Mapping[str, str]:
    """Return the configuration that Spark starts with: that of the sinks, then the job file's.

    Raises:
        ConfigError: two sinks need different values, and the job file has none.
    """
    found: dict[str, str] = {}
    for name, sink in sinks.items():
        for key, value in sink.spark_conf().items():
            if found.setdefault(key, value) != value and key not in job.spark.conf:
                raise ConfigError(
                    f"{job.path.name}: sinks.{name} needs {key}={value}, "
                    f"another sink needs {found[key]}.",
                    remedy=f"set spark.conf.{key} to what serves both.",
                )
    return {**found, **job.spark.conf}


def modules_of_workers(job: JobFile, sinks: Mapping[str, Sink]) -> Sequence[str]:
    """Return the modules that Spark's workers import to write to these sinks.

    Not those of the user's own classes: importing them may do what a forking daemon must not do.
    """
    known = [sink for name, sink in sinks.items() if ":" not in job.sinks[name].type]
    return sorted({type(sink).__module__ for sink in known if isinstance(sink, ArrowSink)})


def _make(where: str, section: SinkSection) -> Sink:
    find = _find_class if ":" in section.type else load_sink
    kind = find(where, section.type)
    sink = make_sink(where, kind, section.options, _correct(where))
    if not isinstance(sink, Sink):
        raise ConfigError(
            f"{where}: {section.type} is not a sink.",
            remedy="name a subclass of twophase.ArrowSink.",
        )
    return sink


def _find_class(where: str, reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module), name)
    except RAISED as error:
        remedy = "correct it there." if has_place(error) else _AS_A_CLASS
        raise ConfigError(
            f"{where}: the sink type {reference!r} cannot be loaded: {described(error)}.",
            remedy=remedy,
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{where}: {reference} is not a class: its type is {type(found).__name__}.",
            remedy="name a subclass of twophase.ArrowSink.",
        )
    return found


def _allow_imports_from(folder: Path) -> None:
    """Extend the path of the driver and of Spark's workers, which unpickle the sink."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    inherited = os.environ.get("PYTHONPATH")
    folders = [str(folder), inherited] if inherited else [str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)


def _correct(where: str) -> str:
    return f"correct {where.partition(':')[0]}."
