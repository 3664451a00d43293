"""`python docs/generate.py`: the pages that are made from other files.

docs/errors.md         the errors, from twophase/errors.py and the tables of docs/operations.md
docs/quickstart.md     two sections of README.md, with links that lead from docs/
docs/sinks/index.md    sinks/README.md, likewise
docs/job.schema.json   the JSON Schema of a job file (docs/job_schema.py)
tables of options,     between `<!-- options: ... -->`, or `columns` or `types`, and `<!-- end -->`
types of columns       on any page (docs/option_tables.py, docs/type_tables.py)
figures of benchmarks  between `<!-- figures: ... -->` and `<!-- end -->`, and their drawings in
                       docs/figures, from the records there (docs/figures.py)

A page that is made as a whole, or has figures, is formatted as `make format` would. `--check`
writes nothing, and exits 1 if a page differs from what it would write.
"""

from __future__ import annotations

import posixpath
import re
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import figures
import mdformat
from job_schema import schema
from option_tables import filled

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Files outside docs/, and the pages to which links to them lead.
COPIES = {"README.md": "index.md", "sinks/README.md": "sinks/index.md"}


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; return the exit code."""
    made = pages()
    differ = [name for name, text in made.items() if _read(DOCS / name) != text]
    if "--check" in arguments:
        for name in differ:
            sys.stderr.write(
                f"docs/{name} is not what its sources say. Next: python docs/generate.py\n"
            )
        return 1 if differ else 0
    for name in differ:
        (DOCS / name).write_text(made[name])
    return 0


def pages() -> dict[str, str]:
    """Text of each page that is generated, whole or in part, by its name in docs/."""
    sys.path.insert(0, str(ROOT))  # this tree, whatever is installed
    whole = {
        "errors.md": formatted(errors_page()),
        "quickstart.md": formatted(quick_start()),
        "sinks/index.md": formatted(copied("sinks/README.md", "sinks/index.md")),
        "job.schema.json": schema(),
    }
    written = {
        path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))
    }
    parts = {
        name: with_figures(filled(text, name), name)
        for name, text in written.items()
        if name not in whole
    }
    return parts | whole | figures.drawings()


def with_figures(text: str, page: str) -> str:
    """A page with what benchmarks have recorded, formatted if there is any."""
    return formatted(figures.filled(text, page)) if figures.MARKER.search(text) else text


def formatted(text: str) -> str:
    """Markdown in the style of .mdformat.toml."""
    style = tomllib.loads((ROOT / ".mdformat.toml").read_text())
    return mdformat.text(text, options=style, extensions=style["extensions"])


def quick_start() -> str:
    """Sections of README.md as a page: how to install, and the first program."""
    text = copied("README.md", "quickstart.md")
    parts = dict(re.findall(r"^## ([^\n]+)\n\n(.+?)(?=^## )", text, flags=re.MULTILINE | re.DOTALL))
    made_from = text.partition("\n")[0]
    return (
        f"{made_from}\n\n# Quick start\n\n## Install\n\n{parts['Install']}"
        f"## The first program\n\n{parts['Quick start']}"
    )


def copied(source: str, page: str) -> str:
    """A Markdown file from outside docs/, as a page: links lead to pages, names of
    other files are code.
    """

    def link(found: re.Match[str]) -> str:
        label, target = found.groups()
        name, _, anchor = target.partition("#")
        if "://" in target or not name:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        path = COPIES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if not path:
            return f"`{label}`"
        relative = posixpath.relpath(path, posixpath.dirname(page) or ".")
        return f"[{label}]({relative}{'#' + anchor if anchor else ''})"

    text = (ROOT / source).read_text()
    return f"<!-- Made from {source} by docs/generate.py. -->\n\n" + re.sub(
        r"\[([^\]]+)\]\(([^)\s]+)\)", link, text
    )


def errors_page() -> str:
    """The catalogue of errors: a section for each class of the tree."""
    module = import_module("twophase.errors")
    drawn = textwrap.dedent(module.__doc__.partition("\n\n")[2].partition("\n\n")[0])
    sections = [_section(kind) for kind in _tree(module.TwoPhaseError)]
    head = (
        "<!-- Made from twophase/errors.py and docs/operations.md by docs/generate.py. -->\n\n"
        "# Errors\n\n"
        "Every error that twophase raises by name, from `twophase/errors.py`. "
        "The name is the last word of a message's first line, in brackets, or the exception's "
        "class. Every message says what happened, whether data is lost, and what to do next. "
        "[Operations](operations.md#exit-codes) says what a supervisor does with an exit code."
        f"\n\n```\n{drawn}\n```\n"
    )
    return head + "".join(sections)


def _section(kind: Any) -> str:
    summary = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    lines = [f"\n## {kind.__name__}", summary, ""]
    if names := [child.__name__ for child in _kinds(kind)]:
        lines.append(
            "- Kinds: " + ", ".join(f"[`{name}`](#{name.lower()})" for name in names) + "."
        )
    restarts = "yes, as `restart.strategy` says" if kind.restartable else "no"
    lines.append(f"- Restarts the query: {restarts}. Exit code: {kind.exit_code}.")
    if row := _operations().get(kind.__name__):
        place, lost, remedy = row
        lines += [f"- Data lost? {lost}", f"- What to do: {remedy}", f"- Operations: {place}."]
    elif kind.data_lost:
        lines.append(f"- {kind.data_lost}")
    return "\n".join(lines) + "\n"


def _operations() -> dict[str, tuple[str, str, str]]:
    """For each error in the tables of docs/operations.md: a link to the table, whether data
    is lost, what to do.
    """
    found: dict[str, tuple[str, str, str]] = {}
    place = ""
    for line in (DOCS / "operations.md").read_text().splitlines():
        if line.startswith("#"):
            head = line.lstrip("# ")
            anchor = re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
            place = f"[{head}](operations.md#{anchor})"
        elif match := re.match(r"\| `(\w+)` \((?:restarts, )?\d\) \| ", line):
            _, lost, remedy = (
                cell.strip() for cell in line[match.end() :].rstrip(" |").split(" | ")
            )
            found[match[1]] = (
                place,
                *(cell.replace("](#", "](operations.md#") for cell in (lost, remedy)),
            )
    return found


def _tree(kind: Any) -> list[Any]:
    return [kind, *(leaf for child in _kinds(kind) for leaf in _tree(child))]


def _kinds(kind: Any) -> list[Any]:
    """Subclasses in the same module: which others there are depends on what is imported."""
    return [child for child in kind.__subclasses__() if child.__module__ == kind.__module__]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
