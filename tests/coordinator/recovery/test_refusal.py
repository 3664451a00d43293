"""What a refused start says: which folder it has begun from, since the user may not have named the
one that they think.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import pytest

from harness.memory_driver import ManualClock
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    GoOn,
    HalfRewound,
    NamedOtherwise,
    Observed,
    Refusal,
    RewindUnfinished,
    Way,
)
from twophase.coordinator.recovery.refusal import refused
from twophase.events import Observers
from twophase.options.job_options import JobOptions
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History

OF_A_FOLDER: Mapping[str, Refusal] = MappingProxyType(
    {
        "an empty one": FolderBehind("facts", "a1", 3),
        "an older one": FolderBehind("facts", "a1", 3, known=2),
        "one without a checkpoint": FolderBehind("facts", "a1", 3, known=-1),
        "one that goes on from elsewhere": FolderBehind("facts", "a1", 3, 2, continued=True),
        "one that a driver has not used": DriverMissed("facts", 7),
        "one of another name": NamedOtherwise("facts", ("orders_old", "facts"), "a1", 3),
        "one without the rewind": HalfRewound("facts"),
    }
)


def test_each_refusal_that_asks_for_another_folder_is_here() -> None:
    asking = {kind for kind in get_args(Refusal) if Way.RESTORE_FOLDER in kind.ways}
    assert asking - {RewindUnfinished} <= {type(why) for why in OF_A_FOLDER.values()}


@pytest.mark.parametrize("pieces", [(), ("1.1/0.0",)], ids=["", "pieces"])
@pytest.mark.parametrize("name", OF_A_FOLDER)
def test_the_folder_that_a_start_has_begun_from_is_named(
    tmp_path: Path, name: str, pieces: tuple[str, ...]
) -> None:
    folder = tmp_path / "a job"
    options = JobOptions.parse({"checkpointLocation": str(folder)}, "job")
    context = JobContext("orders", LocalStorage(folder), {}, options, Observers(), ManualClock())
    known = History() if name == "an empty one" else History(generation=1)
    why = OF_A_FOLDER[name]
    error = refused(why, Observed("orders", known, {}), GoOn(), context, lambda *_: pieces)
    assert str(folder) in str(error)
    says_twice = "write rows twice" in str(error) or "write its rows twice" in str(error)
    assert says_twice == isinstance(why, FolderBehind | NamedOtherwise), "only of rows that exist"
