"""The code on the pages: every Python block compiles, and every job file is accepted.
Nothing is started.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import click
import pytest
import yaml

from harness.paimon_environment import needs_paimon
from twophase.cli.jobfile.job_file import load_job_file
from twophase.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "sinks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
JOB_FILE = {"name", "source", "sinks"}
PUBLIC = re.compile(
    r"twophase(\.sinks\.\w+|\.testing(\.\w+)+|\.functions\.keyed_state)?|(?!twophase\b).*"
)
"""What a page may import from: of twophase, the packages for users and authors."""


def blocks(language: str) -> dict[str, str]:
    """Every block of a language, also those within lists, by its page and line."""
    found: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(
            r"^( *)```(\w*)\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL
        ):
            line = text.count("\n", 0, block.start()) + 2
            if block[2] == language:
                found[f"{page.relative_to(ROOT)}:{line}"] = textwrap.dedent(block[3])
    return found


def job_files() -> dict[str, str]:
    """Those YAML blocks that are whole job files."""
    parsed = {place: yaml.safe_load(text) for place, text in blocks("yaml").items()}
    return {place: blocks("yaml")[place] for place, value in parsed.items() if {*value} >= JOB_FILE}


@pytest.mark.parametrize("place", blocks("python"))
def test_every_python_block_compiles(place: str) -> None:
    compile(blocks("python")[place], place, "exec")


@pytest.mark.parametrize("place", blocks("python"))
def test_a_page_imports_from_public_packages_alone(place: str) -> None:
    nodes = [*ast.walk(ast.parse(blocks("python")[place]))]
    froms = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    plain = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    assert [name for name in (*froms, *plain) if not PUBLIC.fullmatch(name)] == []


def test_a_module_of_the_inside_is_no_public_one() -> None:
    inside = ("twophase.engine.engine", "twophase.options.parsing", "twophase.sinks.mysql.sink")
    outside = ("twophase", "twophase.sinks.mysql", "twophase.testing.contract", "twophase_sqlite")
    assert [name for name in (*inside, *outside) if PUBLIC.fullmatch(name)] == [*outside]


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[needs_paimon()] if "type: paimon" in text else [])
        for place, text in job_files().items()
    ],
)
def test_every_job_file_is_accepted(place: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(job_files()[place])
    assert load_job_file(path, {}).sinks


def test_every_block_is_closed_and_in_a_language_that_is_looked_at() -> None:
    fences = {
        page: re.findall(r"^ *```(.*)$", page.read_text(), flags=re.MULTILINE) for page in PAGES
    }
    assert not [page for page, found in fences.items() if len(found) % 2]
    assert {language for found in fences.values() for language in found} <= {
        "",
        "python",
        "yaml",
        "sql",
        "toml",
    }


def test_every_command_on_a_how_to_and_its_options_exist() -> None:
    """`integration/getting_started/test_howtos.py` runs some of them."""
    lines = "\n".join(text for place, text in blocks("").items() if "howto" in place)
    found = re.findall(r"\btwophase ([a-z]+ .*)$", lines, flags=re.MULTILINE)
    assert len(found) > 15
    for words in map(str.split, found):
        command = main.get_command(click.Context(main), words[0])
        if isinstance(command, click.Group):
            command = command.commands[words[1]]
        assert command is not None, words
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words
