"""What a planned micro-batch reads is looked for in the log of each source, by Spark's numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twophase.contract.source import SourceLeg
from twophase.errors import SourceLossError
from twophase.ids import new_lineage_id
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark.folder.planned_reads import check_present, check_undecided
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Lineage

NORTH, SOUTH = (SourceLeg(f"FileSource[{name}]", {}) for name in ("north", "south"))
KAFKA, SPARK_S = (SourceLeg(name, {}) for name in ("twophase-kafka", "kafka"))


def line(leg: SourceLeg, batch: int) -> str:
    """Where a source ends in a micro-batch."""
    if leg == KAFKA:
        part = PartitionOffset("t", "id-1", 0, batch, leader_epoch=0)
        return SourceOffset.of("kafka", [part]).to_line()
    return json.dumps({"t": {"0": batch}} if leg == SPARK_S else {"logOffset": batch})


class Planned:
    """Micro-batch 1, in which each source reads its file 1. Those of before are gone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = SparkFolder(root, Lineage(new_lineage_id()))
        (root / "offsets").mkdir()

    def freeze(self, *legs: SourceLeg, logs: int) -> None:
        for batch in range(2):
            lines = [line(leg, batch) for leg in legs]
            (self.root / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
            for place in range(logs):
                log = self.root / "sources" / str(place)
                log.mkdir(parents=True, exist_ok=True)
                entry = {"path": self.file(place, batch).as_uri(), "timestamp": 1, "batchId": batch}
                (log / str(batch)).write_text(f"v1\n{json.dumps(entry)}")
        for place in range(logs):
            self.file(place, 1).touch()

    def file(self, place: int, batch: int) -> Path:
        return self.root / f"{place}-{batch}.json"


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    return Planned(tmp_path)


@pytest.mark.parametrize("form", ["write_stream", "plugin"])
@pytest.mark.parametrize(
    "legs",
    [(NORTH, SOUTH), (NORTH, NORTH), (NORTH, NORTH, KAFKA)],
    ids=["two", "equal", "one that Spark notes nothing of behind them"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_each_source_with_a_number_of_its_own_is_looked_at(
    planned: Planned, legs: tuple[SourceLeg, ...], form: str, place: int
) -> None:
    planned.freeze(*legs, logs=2)
    known = legs if form == "write_stream" else None
    check_undecided(planned.folder, 1, known)
    planned.file(place, 1).unlink()
    with pytest.raises(SourceLossError, match=f"^Checkpoint 1 is not decided: .*{place}-1"):
        check_undecided(planned.folder, 1, known)


@pytest.mark.parametrize("form", ["write_stream", "plugin"])
@pytest.mark.parametrize("last", [SOUTH, SPARK_S, SourceLeg("unknown", {})])
def test_behind_a_source_that_is_read_twice_nothing_is_looked_for(
    planned: Planned, last: SourceLeg, form: str
) -> None:
    legs = NORTH, NORTH, last
    planned.freeze(*legs, logs=2)
    known = legs if form == "write_stream" else None
    planned.file(1, 1).unlink()
    check_present(planned.folder, 1, known)
    planned.file(0, 1).unlink()
    with pytest.raises(SourceLossError, match=r"0-1\.json"):
        check_present(planned.folder, 1, known)


def test_a_source_that_reads_nothing_new_is_not_looked_at(planned: Planned) -> None:
    planned.freeze(NORTH, logs=1)
    planned.file(0, 1).unlink()
    offsets = planned.root / "offsets"
    (offsets / "2").write_text((offsets / "1").read_text())
    check_present(planned.folder, 2, [NORTH])


def test_without_a_source_that_may_leave_something_out_the_offsets_are_not_read(
    planned: Planned,
) -> None:
    check_present(planned.folder, 7, [SourceLeg("kafka", {})])
