"""An attempt that is declined by an error hands on what tells whether the next one will fail in the
same way (docs/decisions/0066).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from harness.memory_driver import Driver
from harness.rights import permissions_checked
from harness.staged_sink_harness import FileHarness, orders
from twophase.coordinator.commit.failure_manager import SAME_FAILURES
from twophase.errors import DeclinedError, RepeatedFailureError
from twophase.ids import Subtask
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Lineage
from twophase.testing.harness import SinkHarness, transaction_id
from twophase.testing.memory import MemoryTarget

LEFT_OUT = {
    "sinks/common/staging/staging_area.py: check_open": "the next attempt names what is gone",
    "sinks/kafka/writer.py: _declining": "a secret is being replaced (docs/decisions/0067)",
    "sinks/mysql/lock_conflicts.py: find": "the next attempt aborts what an earlier one has left",
    "sinks/mysql/writer.py: _declining": "a secret is being replaced, or nobody has answered",
}
"""Where an error is caught that says nothing of the next attempt, and why."""


def places(path: Path) -> Iterator[str]:
    """Yield the functions of a module that decline because of an error, without a fingerprint."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        of_error = any(
            argument.annotation is not None
            and ast.unparse(argument.annotation).endswith(("Error", "Exception"))
            for argument in [*function.args.args, *function.args.kwonlyargs]
        )
        handlers = [node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)]
        calls = {
            call
            for part in ([function] if of_error else handlers)
            for call in ast.walk(part)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "DeclinedError"
        }
        if any("fingerprint" not in {given.arg for given in call.keywords} for call in calls):
            yield f"{path}: {function.name}"


def test_whoever_declines_because_of_an_error_says_whether_somebody_has_answered() -> None:
    modules = [path for root in ("sinks", "twophase") for path in Path(root).rglob("*.py")]
    assert {place for path in modules for place in places(path)} == LEFT_OUT.keys()


# -- to be denied something is an answer -----------------------------------------------------------


def write_rows(root: Path) -> Iterator[Path]:
    table = FileHarness(root / "orders")
    writer = table.opened().writers()(transaction_id(), Subtask(0, 0))
    writer.write(pa.RecordBatch.from_pylist(orders([1]), SinkHarness.schema))
    [staged] = table.staged()
    yield staged
    writer.pre_commit()


def write_checkpoint(root: Path, folder: str, **options: str) -> Iterator[Path]:
    targets = {name: MemoryTarget() for name in ("facts", "lake")}
    driver = Driver(root / "job", targets, options=options).recover()
    driver.run(0)
    yield root / "job" / folder
    for _ in range(SAME_FAILURES - 1):
        with pytest.raises(DeclinedError):
            driver.run(1)
    with pytest.raises(RepeatedFailureError) as caught:
        driver.run(1)
    raise caught.value


def trigger(root: Path) -> Iterator[Path]:
    driver = Driver(root / "job", {"facts": MemoryTarget()}).recover()
    spark = root / "offsets"
    spark.mkdir()
    yield spark
    with pytest.raises(PermissionError) as caught:
        (spark / "0").read_text()
    for _ in range(SAME_FAILURES):
        declined = driver.coordinator.cannot_trigger(0, caught.value)
    assert isinstance(declined, RepeatedFailureError)
    raise declined


def sync(root: Path) -> Iterator[Path]:
    for name in ("offsets", "commits"):
        (root / "spark" / name).mkdir(parents=True)
        (root / "spark" / name / "1").touch()
    yield root / "spark" / "offsets"
    SparkFolder(root / "spark", Lineage("a")).sync(1)


DENIED: dict[str, Callable[[Path], Iterator[Path]]] = {
    "a piece": write_rows,
    "a body": lambda root: write_checkpoint(root, "chk"),
    "a decision": lambda root: write_checkpoint(root, "log"),
    "a decision on one sink": lambda root: write_checkpoint(
        root, "log", **{"checkpoint.mode": "at_least_once"}
    ),
    "an offset": trigger,
    "Spark's folder": sync,
}


@pytest.mark.parametrize("name", DENIED)
def test_an_account_that_may_not_write_is_told_so_and_the_job_ends_in_the_end(
    tmp_path: Path, name: str
) -> None:
    steps = DENIED[name](tmp_path)
    folder = next(steps)
    folder.chmod(0o444 if folder.name == "offsets" else 0o555)
    with permissions_checked(), pytest.raises(DeclinedError) as caught:
        next(steps)
    assert caught.value.fingerprint == "builtins.PermissionError"
    folder.chmod(0o700)
