"""Paths, names and values of rows are printed as they are: nothing in them is rich's markup."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.remedies import modules
from twophase.cli.display.console import JobConsole, plain_table, print_lines
from twophase.cli.main import main
from twophase.testing.services import __main__ as services
from twophase.testing.services import up

TEXTS = ["orders [old]", "[/b]", ":warning:", "[bold]x[/bold]", "two  blanks"]


def consoles(source: str) -> list[ast.Call]:
    """The calls that make one."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Console"
    ]


@pytest.mark.parametrize("module", [*modules()], ids=str)
def test_every_console_takes_texts_as_they_are(module: Path) -> None:
    for call in consoles(module.read_text()):
        given = {one.arg or ast.unparse(one.value): ast.unparse(one.value) for one in call.keywords}
        off = given.get("markup"), given.get("emoji"), given.get("highlight")
        assert "TEXT" in given or off == ("False",) * 3, ast.unparse(call)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_in_a_table_is_printed_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = plain_table(("path",))
    table.add_row(text)
    print_lines([table])
    JobConsole().print(table)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["path", text] * 2


def test_savepoints_are_listed_whatever_their_folder_is_called(tmp_path: Path) -> None:
    """Also one that is not whole."""
    folder = tmp_path / "sp [" / "b]"
    for name in ("a  [old]", "b:warning:"):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "_begun").write_text("")
    found = CliRunner().invoke(main, ["savepoint", "list", str(folder)])
    assert str(folder / "a  [old]") in found.stdout
    assert str(folder / "b:warning:") in found.stdout


@pytest.mark.parametrize("text", TEXTS)
def test_rows_of_a_local_server_are_printed_as_they_are(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "query", lambda *_: (["a [b]"], [[text]]))
    found = CliRunner().invoke(services.main, ["sql", "SELECT 1"])
    assert [line.strip() for line in found.stdout.splitlines()] == ["a [b]", text]
