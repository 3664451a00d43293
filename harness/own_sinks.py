"""The sinks of this repository, as `setup.cfg` offers them, for what is said of every one."""

from __future__ import annotations

from configparser import ConfigParser
from importlib import import_module

from harness.environments import ROOT
from twophase.internals.sink_entry_points import GROUP
from twophase.options.parsing import Options


def own_sinks() -> dict[str, str]:
    """Return the `module:Class` of each sink, by its type, in alphabetical order."""
    found = ConfigParser()
    found.read(ROOT / "setup.cfg")
    lines = found["options.entry_points"][GROUP].strip().splitlines()
    entries = (line.split("=") for line in lines)
    return {name.strip(): place.strip() for name, place in sorted(entries)}


def sink_options() -> dict[str, type[Options]]:
    """Return the options of each sink, by its type."""
    found = {}
    for name, place in own_sinks().items():
        module = import_module(f"{place.partition(':')[0]}.options")
        [found[name]] = [
            one
            for one in vars(module).values()
            if isinstance(one, type)
            and issubclass(one, Options)
            and one.__module__ == module.__name__
        ]
    return found
