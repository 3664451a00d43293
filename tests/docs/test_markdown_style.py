"""mdformat, with the settings of the repository, wraps Markdown and keeps what the site needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import mdformat
import pytest

ROOT = Path(__file__).parents[2]
# Folders of tools, and what they make.
NOT_OURS = {".venv", ".venv-paimon", ".versions", ".pytest_cache", "build", "site"}

KEPT = {
    "an admonition": '!!! note "Title"\n\n    Text of the note.\n',
    "tabs": '=== "Python"\n\n    ```python\n    a = 1\n    ```\n\n=== "SQL"\n\n    Text.\n',
    # python-markdown takes only four spaces for a level
    "a list in a list": "1. One:\n    - a word\n    - another\n2. Two.\n",
    "code in a list": "1. One:\n\n    ```\n    make test\n    ```\n",
    "a wide table": f"| a | b |\n| -- | -- |\n| {'long ' * 40}| `x\\|y` |\n",
    "a wide link": f"[{'long ' * 10}text](https://example.com/{'a' * 100})\n",
    "a marker": "<!-- options: twophase.options.job_options.JobOptions -->\n\n<!-- end -->\n",
}


def formatted(text: str) -> str:
    style = tomllib.loads((ROOT / ".mdformat.toml").read_text())
    return mdformat.text(text, options=style, extensions=style["extensions"])


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_the_site_understands_is_kept(text: str) -> None:
    assert formatted(text) == text


def test_text_is_wrapped_at_100_columns() -> None:
    assert 95 < max(map(len, formatted("word " * 100).splitlines())) <= 100


def test_every_markdown_file_is_among_those_that_make_formats() -> None:
    [patterns] = re.findall(r"^MARKDOWN := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    taken = {
        page
        for pattern in patterns.split()
        for found in ROOT.glob(pattern)
        for page in ([found] if found.is_file() else found.rglob("*.md"))
    }
    pages = {*ROOT.rglob("*.md")}
    assert {page for page in pages if not NOT_OURS & {*page.relative_to(ROOT).parts}} == taken
