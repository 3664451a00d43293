"""The sinks of a job are opened side by side, and spoken of in the user's order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.folder_sink import FolderSink
from harness.memory_driver import JOB, SCHEMA
from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.fan_out import Step, T
from twophase.engine.engine import _open_side_by_side
from twophase.errors import ConfigError
from twophase.events import Observers


def the_last_one_first(steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
    taken = {name: steps[name](observers) for name in [*steps][::-1]}
    return {name: taken[name] for name in steps}


def test_two_sinks_on_one_target_are_named_in_the_user_s_order(tmp_path: Path) -> None:
    sinks = {"facts": FolderSink(tmp_path), "copy": FolderSink(tmp_path)}

    def describe(name: str) -> SinkContext:
        return SinkContext(JOB, name, SCHEMA, parallelism=1)

    with pytest.raises(ConfigError, match="sinks 'facts' and 'copy' write to one target"):
        _open_side_by_side(JOB, sinks, describe, the_last_one_first, Observers())
