"""What to do next, in the words of whoever reads it, so that it can be pasted whole.

A remedy names a setting as `key=value` in backticks, and a job file as JOB.yaml:

    `restore.sink_ahead=rewind`     a program: .option("restore.sink_ahead", "rewind")
                                    the command line: --sink-ahead rewind
    `state.allow_changed_plan=true` .option("state.allow_changed_plan", True)
                                    state.allow_changed_plan: true
    `create=true`, of a sink        create=True
                                    create: true
    `spark.task.maxFailures=4`      spark.conf.set("spark.task.maxFailures", 4)
                                    spark: {conf: {spark.task.maxFailures: 4}}
    twophase check JOB.yaml         as it is
                                    twophase check orders.yaml
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SETTING = re.compile(r"`([A-Za-z][\w.]*)=([^`]*)`")
_LOCATION = "--checkpoint-location"
_JOB_FILE = re.compile(rf"(\bJOB\.yaml\b)( {_LOCATION})?")
_PLAIN = re.compile(r"[\w./-]+")
_FLAGS = {"restore.path": "--restore", "restore.sink_ahead": "--sink-ahead"}


@dataclass
class CommandWords:
    """What the running command was given.

    Attributes:
        job_file: the path of the job file; empty if it has none.
        checkpoint_location: of the option; empty without.
    """

    job_file: str = ""
    checkpoint_location: str = ""

    def job(self, remedy: re.Match[str]) -> str:
        """Return what the next command is given for the job, in place of JOB.yaml."""
        file = shlex.quote(self.job_file) if self.job_file else remedy[1]
        if remedy[2]:
            return file + remedy[2]
        location = shlex.quote(self.checkpoint_location)
        return f"{file} {_LOCATION} {location}" if self.checkpoint_location else file


_running: list[CommandWords] = []


@contextmanager
def of_command() -> Iterator[CommandWords]:
    """Word remedies for the command line inside the context."""
    words = CommandWords()
    _running.append(words)
    try:
        yield words
    finally:
        _running.pop()


def worded(remedy: str) -> str:
    """Return a remedy in the words of whoever runs this process."""
    if not _running:
        return _SETTING.sub(lambda found: _in_python(*found.groups()), remedy)
    words = _SETTING.sub(lambda found: _in_yaml(*found.groups()), remedy)
    return _JOB_FILE.sub(_running[-1].job, words)


def _in_python(key: str, value: str) -> str:
    quoted = repr(value) if '"' in value else f'"{value}"'
    literal = {"true": "True", "false": "False"}.get(value, value if value.isdecimal() else quoted)
    if key.startswith("spark."):
        return f'spark.conf.set("{key}", {literal})'
    is_of_sink = "." not in key and key.islower()
    return f"{key}={literal}" if is_of_sink else f'.option("{key}", {literal})'


def _in_yaml(key: str, value: str) -> str:
    if key in _FLAGS:
        return f"`{_FLAGS[key]} {shlex.quote(value)}`"
    written = value if _PLAIN.fullmatch(value) else f"'{value.replace(chr(39), 2 * chr(39))}'"
    setting = f"{key}: {written}"
    return f"`spark: {{conf: {{{setting}}}}}`" if key.startswith("spark.") else f"`{setting}`"
