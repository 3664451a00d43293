"""An adoption is confirmed while a start with the old job file asks its sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.savepoint_world import StatefulHost, World
from twophase.coordinator.commit.context import JobContext
from twophase.engine.host import Plan
from twophase.errors import ConfigError
from twophase.ids import new_lineage_id
from twophase.spark.job.lineage_start import LineageStart
from twophase.state.journal.entries import Adoption, Lineage, Note, StartingOffsets
from twophase.state.journal.log import JobLog


class ConfirmedMeanwhile(StatefulHost):
    def beginning(self, context: JobContext, plan: Plan) -> LineageStart:
        start = super().beginning(context, plan)
        log = JobLog(self._storage, context.job)
        log.read()
        starting = (StartingOffsets("orders", '{"orders":{"0":100}}'),)
        note = Note("operator@host", 0, "the folder is gone")
        log.append(Adoption(note, Lineage(new_lineage_id()), starting=starting))
        return start


class Confirmed(World):
    host = ConfirmedMeanwhile


def test_a_start_does_not_begin_elsewhere_than_was_confirmed_before_its_fence(
    tmp_path: Path,
) -> None:
    world = Confirmed(tmp_path)
    with pytest.raises(ConfigError, match="it was confirmed that it begins at") as caught:
        world.drive(1)
    assert "until the first checkpoint is made, set" in caught.value.remedy
    assert world.ids() == [[], []]
