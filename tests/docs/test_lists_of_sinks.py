"""Whoever adds a sink finds on one page where else it has to be entered by hand."""

from __future__ import annotations

import re
import subprocess

from harness.environments import ROOT
from harness.own_sinks import own_sinks

PAGE = "sinks/README.md"
OTHERS = {".md", ".json"}
"""Pages, which are about what they are about, and what is made by a command."""


def lists_of_sinks() -> set[str]:
    """The files that name all sinks, or all but one."""
    sinks = [re.compile(rf"(?i)(?<![a-z]){name}(?![a-z])") for name in own_sinks()]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    found = set()
    for path in map(ROOT.joinpath, listed):
        if path.suffix not in OTHERS and path.is_file():
            text = path.read_bytes().decode(errors="replace")
            if sum(sink.search(text) is not None for sink in sinks) >= len(sinks) - 1:
                found.add(str(path.relative_to(ROOT)))
    return found


def test_each_list_of_the_sinks_is_on_the_page() -> None:
    rows = (ROOT / PAGE).read_text().partition("| list | what it says of a sink |")[2]
    named = re.findall(r"`([^`]+)`", " ".join(line.split("|")[1] for line in rows.splitlines()[2:]))
    found = lists_of_sinks()
    assert {path for path in found if not path.startswith(tuple(named))} == set()
    assert [one for one in named if not any(path.startswith(one) for path in found)] == []
