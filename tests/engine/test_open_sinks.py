"""The sinks of a job are opened side by side, and spoken of in the user's order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from harness.folder_sink import FolderSink, OpenFolderSink
from harness.memory_driver import JOB, SCHEMA
from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.fan_out import Step, T
from twophase.engine.engine import Engine, open_side_by_side
from twophase.errors import ConfigError
from twophase.events import Observers
from twophase.options.job_options import JobOptions
from twophase.testing.plain_host import ListedRows, PlainHost


def the_last_one_first(steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
    taken = {name: steps[name](observers) for name in [*steps][::-1]}
    return {name: taken[name] for name in steps}


def test_two_sinks_on_one_target_are_named_in_the_user_s_order(tmp_path: Path) -> None:
    sinks = {"facts": FolderSink(tmp_path), "copy": FolderSink(tmp_path)}

    def describe(name: str) -> SinkContext:
        return SinkContext(JOB, name, SCHEMA, parallelism=1)

    with pytest.raises(ConfigError, match="sinks 'facts' and 'copy' write to one target"):
        open_side_by_side(JOB, sinks, describe, the_last_one_first, Observers())


class Told(FolderSink):
    """Keeps the context in which it is opened."""

    context: SinkContext

    def open(self, context: SinkContext) -> OpenFolderSink:
        self.context = context
        return super().open(context)


@pytest.mark.parametrize(
    ("max_concurrent", "behind"), [("1", {}), ("3", {"facts": ("lake",), "lake": ("facts",)})]
)
def test_a_sink_is_told_which_others_its_pieces_wait_for(
    tmp_path: Path, max_concurrent: str, behind: dict[str, tuple[str, ...]]
) -> None:
    given = {"checkpointLocation": str(tmp_path / "job")}
    options = JobOptions.parse(given | {"checkpoint.max_concurrent": max_concurrent}, "test")
    sinks = {name: Told(tmp_path / name) for name in ("facts", "lake")}
    host = PlainHost(JOB, options, ListedRows([[pa.RecordBatch.from_pylist([], schema=SCHEMA)]]))
    Engine(host, JOB, sinks, options, Observers()).open_sinks()
    for name, sink in sinks.items():
        assert sink.context.waits is not None
        assert sink.context.waits.behind == behind.get(name, ())
