"""`twophase repair` of a job whose sink needs Spark to open, from the file that
`twophase run` runs.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.job_command import Command

pytestmark = [pytest.mark.spark, pytest.mark.part("repair")]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Command]:
    """Two micro-batches of ten rows."""
    folder = tmp_path / "in"
    folder.mkdir()
    for file in range(2):
        (folder / f"{file}.json").write_text(
            "".join(f'{{"id": {10 * file + step}}}\n' for step in range(10))
        )
    options = {"path": str(folder), "maxFilesPerTrigger": 1}
    with ExitStack() as left:
        yield Command(tmp_path, left, {"format": "json", "schema": "id long", "options": options})


@pytest.mark.proof
def test_a_job_whose_decided_piece_is_gone_goes_on_after_the_repair(job: Command) -> None:
    code, _, err = job.run("--available-now", TWOPHASE_FAILPOINTS="C12=kill@2")
    first = job.ids()  # of either file: they are of the same second
    assert (code, len(first)) == (-signal.SIGKILL, 10), err
    (piece,) = [
        path
        for path in (job.root / "facts").rglob("*")
        if path.is_file() and "prepared" in path.parts
    ]
    piece.unlink()
    code, _, err = job.run("--available-now")
    assert code == 3
    assert re.search(r"twophase repair accept-loss \S+\.yaml --checkpoint 1 --sink facts", err)

    options = ("--checkpoint", "1", "--sink", "facts", "--yes", "--reason", "deleted by hand")
    code, out, err = job.run(*options, command=("repair", "accept-loss"))
    assert (code, "To be given up: 10 rows in 1 piece" in out) == (0, True), err

    (job.root / "in" / "2.json").write_text('{"id": 20}\n')
    code, _, err = job.run("--available-now")
    assert (code, job.ids()) == (0, [*first, 20]), err
