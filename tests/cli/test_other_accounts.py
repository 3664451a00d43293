"""A job's folder is for its account alone: another one is told whose it is, by every command that
reads there.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.test_savepoint import Files, job_file
from twophase.cli.main import main

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another account")
NOBODY, DAEMON = 65534, 1


@pytest.fixture
def world() -> Iterator[Files]:
    """In a folder that every account may enter, but for the job's and the savepoint's own."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.chmod(0o755)
        yield Files(root)


def run_as(account: int, words: list[str]) -> tuple[int, str]:
    """Run a command in a process of an account; return the exit code, and standard error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(account)
            found = CliRunner().invoke(main, words)
            os.write(writing, f"{found.exit_code}\n{found.stderr}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        code, _, text = answer.read().partition("\n")
    os.waitpid(child, 0)
    return int(code), text


COMMANDS = [
    "checkpoints {root}/job",
    "checkpoints {root}/job --json",
    "checkpoints {root}/job --history",
    "state read {root}/job",
    "savepoint create {file} {root}/saved/two",
    "savepoint list {root}/saved",
    "savepoint show {root}/saved/one",
    "savepoint verify {root}/saved/one",
    "savepoint dispose {root}/saved/one",
]
REPAIRS = [
    "rewrite {file} --checkpoint 1 --sink facts",
    "accept-loss {file} --checkpoint 1 --sink facts",
    "adopt-from-target {file} --yes --reason x",
    "abandon-rewind {file}",
    "complete-partitions {file} --sink facts",
    "release-topic {file} --topic orders",
]


@pytest.mark.parametrize("command", REPAIRS)
def test_a_repair_by_another_account_is_refused_by_the_owners_name(
    world: Files, command: str
) -> None:
    world.drive(3)
    words = ["repair", *command.format(file=job_file(world)).split()]
    CliRunner().invoke(main, [*words, "--help"])  # imports it
    for path in (world.root / "job", *(world.root / "job").rglob("*")):
        os.chown(path, DAEMON, DAEMON)
    code, said = run_as(NOBODY, words)
    assert (code, "belongs to the account daemon" in said) == (2, True), said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_another_account_is_refused_by_its_owners_name(
    world: Files, command: str
) -> None:
    world.drive(3)
    (world.root / "saved").mkdir()
    file = job_file(world)
    made = CliRunner().invoke(main, ["savepoint", "create", file, str(world.root / "saved/one")])
    assert made.exit_code == 0, made.output
    words = command.format(root=world.root, file=file).split()
    if "dispose" not in words and "create" not in words:
        assert CliRunner().invoke(main, words).exit_code == 0  # and it is imported
    for folder in (world.root / "job", world.root / "saved"):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, DAEMON, DAEMON)
    code, said = run_as(NOBODY, words)
    assert (code, "[ConfigError]" in said) == (2, True), said
    assert "the account daemon" in said
    [account] = re.findall(r"Next: run the same command as that account: (sudo .*) \.\.\.", said)
    assert shlex.split(account) == ["sudo", "-u", "daemon"]
    assert run_as(DAEMON, words)[0] == 0
