"""What `write_stream` refuses before anything runs, and the call that it asks for instead."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from twophase.contract.listener import CheckpointedFunction, CheckpointListener
from twophase.errors import ConfigError
from twophase.sinks.file import FileSink
from twophase.spark.job.stream_writer import StreamWriter, write_stream


@pytest.fixture
def writer() -> StreamWriter:
    """A description of a job asks nothing of its DataFrame before `start`."""
    return StreamWriter(cast(DataFrame, None), "orders")


def test_two_sinks_of_one_name_are_refused_and_each_has_its_own(writer: StreamWriter) -> None:
    writer.sink("facts", "file", path="/lake/orders")
    with pytest.raises(ConfigError, match="two sinks named 'facts'") as caught:
        writer.sink("facts", "file", path="/lake/copies")
    assert caught.value.remedy == "give each its own name."
    writer.sink("copies", "file", path="/lake/copies")
    assert [*writer._sinks] == ["facts", "copies"]


def test_two_functions_of_one_name_are_refused_and_each_has_its_own(writer: StreamWriter) -> None:
    writer.function("count", Counted())
    with pytest.raises(ConfigError, match="two functions named 'count'") as caught:
        writer.function("count", Counted())
    assert caught.value.remedy == "give each its own name."
    writer.function("recount", Counted())
    assert [*writer._functions] == ["count", "recount"]


class Counted:
    """A function without state."""

    def snapshot_state(self, context: Any) -> None:
        """It has none."""

    def initialize_state(self, context: Any) -> None:
        """It has none."""


class Misspelt(Counted):
    def notify_checkpoint_completed(self, checkpoint: int) -> None:
        """Would never be called."""


class Forgetful:
    def initialize_state(self, context: Any) -> None:
        """It has none."""


class Renamed(Counted):
    snapshot_state: Any = "state"


class Argumentless(Counted):
    def snapshot_state(self) -> None:  # type: ignore[override]
        """It wants to know nothing."""


class Later(Counted):
    async def snapshot_state(self, context: Any) -> None:  # type: ignore[override]
        """Nobody waits for it."""


class OfTooMany(Counted):
    def notify_checkpoint_complete(self, job: str, checkpoint: int) -> None:
        """It wants to know more."""


def _name(value: object) -> str:
    """Of a case: without the address of an object, which differs between processes."""
    return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)


@pytest.mark.parametrize(
    ("given", "says", "remedy"),
    [
        (Counted, "function 'count': Counted is a class", "with parentheses"),
        (
            Forgetful(),
            "Forgetful needs a method snapshot_state",
            "def snapshot_state(self, context",
        ),
        (None, "NoneType needs a method snapshot_state", "def snapshot_state(self, context)"),
        (Renamed(), "Renamed needs a method snapshot_state", "def snapshot_state(self, context)"),
        (Argumentless(), "Argumentless needs a method snapshot_state", "def snapshot_state("),
        (Later(), "a method snapshot_state with one argument, not async", "def snapshot_state("),
        (OfTooMany(), "needs a method notify_checkpoint_complete", "(self, checkpoint)"),
        (Misspelt(), "Misspelt.notify_checkpoint_completed would never", "as one of these"),
    ],
    ids=_name,
)
def test_a_function_is_refused_before_anything_is_written(
    writer: StreamWriter, given: Any, says: str, remedy: str
) -> None:
    """It failed behind the fence, or was never called."""
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        writer.function("count", given)
    assert remedy in caught.value.remedy
    writer.function("count", Counted())
    assert [*writer._functions] == ["count"]


class Told:
    """Listens to one of three."""

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        """It needs no others."""


class Subclass(CheckpointListener):
    """Has the defaults of the others."""

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """It needs no others."""


@pytest.mark.parametrize(
    ("given", "says", "remedy"),
    [
        (Told, "listener: Told is a class", "with parentheses"),
        (Counted(), "a Counted has none of the methods notify_checkpoint_complete", "one of them"),
        (print, "has none of the methods", "is added with .observer(function)."),
        (OfTooMany(), "needs a method notify_checkpoint_complete", "(self, checkpoint)"),
        (Misspelt(), "notify_checkpoint_completed would never be called", "as one of these"),
    ],
    ids=_name,
)
def test_a_listener_is_refused_before_anything_is_written(
    writer: StreamWriter, given: Any, says: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        writer.listener(given)
    assert remedy in caught.value.remedy
    told: Any = Told()
    writer.listener(told).listener(Subclass())
    assert len(writer._listeners) == 2


@pytest.mark.parametrize("given", [7, "print", None, Counted], ids=_name)
def test_what_cannot_be_called_is_no_observer_and_no_transform(
    writer: StreamWriter, given: Any
) -> None:
    with pytest.raises(ConfigError, match=r"'orders', observer: .* is no function") as caught:
        writer.observer(given)
    assert caught.value.remedy == "pass a function, or an object that can be called."
    if given is not None:  # as it is without one
        with pytest.raises(ConfigError, match=r"transform of sink 'facts': .* is no function"):
            writer.sink("facts", "file", given, path="/lake/orders")
    writer.observer(print).sink("facts", "file", lambda frame: frame, path="/lake/orders")


def test_a_subclass_without_state_cannot_be_made() -> None:
    """It would inherit a method that does nothing."""

    class Half(CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            """It has none."""

    with pytest.raises(TypeError, match=r"abstract method .*snapshot_state"):
        Half()  # type: ignore[abstract]


@pytest.mark.spark
def test_a_job_runs_once_each_refusal_was_answered_as_it_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}')
    with pytest.raises(ConfigError, match="is not streaming") as caught:
        write_stream(spark.read.schema("id long").json(f"{tmp_path}/in"), name="orders")
    assert caught.value.remedy == "load it with spark.readStream."
    rows = spark.readStream.schema("id long").json(f"{tmp_path}/in")
    writer = write_stream(rows, name="orders").option("checkpointLocation", f"{tmp_path}/job")
    writer.trigger(availableNow=True)
    with pytest.raises(ConfigError, match="has no sink") as caught:
        writer.start()
    assert caught.value.remedy == "add one with .sink(name, sink)."
    neither: Any = tmp_path / "out"
    with pytest.raises(ConfigError, match="not an ArrowSink or a BatchSink") as caught:
        writer.sink("facts", neither)
    assert caught.value.remedy.startswith("pass a sink, or the type of an installed one")
    assert not (tmp_path / "job").exists()
    for folder in ("out", "copies"):
        (tmp_path / folder).mkdir()
    writer.sink("facts", FileSink(path=f"{tmp_path}/out", format="json"))
    writer.sink("copies", "file", path=f"{tmp_path}/copies", format="json")
    writer.start().await_termination(120)
    for folder in ("out", "copies"):
        [file] = (tmp_path / folder).glob("*.json")
        assert json.loads(file.read_text()) == {"id": 1}
