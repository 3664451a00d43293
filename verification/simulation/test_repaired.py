"""What repairs change in what the oracle expects, and for whom."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from verification.simulation.decisions import Decision
from verification.simulation.oracle import Oracle
from verification.simulation.saved import Saved
from verification.simulation.scheduler import Process

LINEAGE = "01234567-89ab-cdef-0123-456789abcdef"
OLD, NEW = "/data/job", "/data/restored1"


def xid(subtask: str, checkpoint: int = 0) -> str:
    gtrid = f"0123456789ab-{LINEAGE.replace('-', '')}-{checkpoint}"
    return f"'{gtrid}','1.1-aaaaaaaaaaaa-{subtask}-bbbbbbbb-7',1953984616"


def decision(checkpoint: int, *subtasks: str, root: str = OLD) -> Decision:
    xids = tuple(xid(subtask, checkpoint) for subtask in subtasks)
    body = f"{root}/chk/{LINEAGE}-{checkpoint}-1.1/_metadata"
    sinks = dict.fromkeys(xids, "sink0")
    path = f"{root}/log/0000000003"
    return Decision(path, body, LINEAGE, checkpoint, (1, 1), checkpoint, xids, sinks=sinks)


@pytest.fixture
def repair() -> Process:
    return Process("repair0")


@pytest.fixture
def oracle(repair: Process) -> Oracle:
    """A task of checkpoint 0 has no piece any more, which somebody has rolled back by hand."""
    scheduler: Any = SimpleNamespace(current=SimpleNamespace(process=repair), stop=pytest.fail)
    disk: Any = SimpleNamespace(find=lambda path: path)  # everything is there
    oracle = Oracle(scheduler, disk, lambda chunk, subtask: [(chunk, subtask)])
    oracle.decided[OLD, LINEAGE, 0] = decision(0, "0.1", "1.2")
    oracle.lost.append(xid("1.2"))
    oracle.folders[repair] = NEW
    return oracle


def test_another_attempt_of_a_lost_task_is_the_decided_one_from_then_on(
    oracle: Oracle, repair: Process
) -> None:
    oracle.adopting.add(repair)
    found = oracle._adopts(xid("1.3"))
    assert found is oracle.decided[OLD, LINEAGE, 0]
    assert found.xids == (xid("0.1"), xid("1.3"))
    assert found.sinks[xid("1.3")] == "sink0"
    assert oracle.withdrawn == {xid("1.2")}


@pytest.mark.parametrize("attempt", ["0.3", "2.3"], ids=["of a task that is there", "of no task"])
def test_no_other_attempt_is(oracle: Oracle, repair: Process, attempt: str) -> None:
    oracle.adopting.add(repair)
    assert oracle._adopts(xid(attempt)) is None


def test_a_driver_takes_none(oracle: Oracle) -> None:
    assert oracle._adopts(xid("1.3")) is None


def test_whoever_has_the_log_takes_none(oracle: Oracle, repair: Process) -> None:
    oracle.adopting.add(repair)
    oracle.folders[repair] = OLD
    assert oracle._adopts(xid("1.3")) is None


def test_a_lost_piece_of_an_adopted_checkpoint_is_given_up_without_its_log(oracle: Oracle) -> None:
    assert not oracle.repaired.missing_rows(oracle, "sink0")
    oracle.repaired._adopt(oracle, NEW, {LINEAGE: 0})
    assert oracle.repaired.missing_rows(oracle, "sink0") == [(0, 1)]
    oracle.repaired.comes_back(oracle, xid("1.2"))
    assert not oracle.repaired.missing_rows(oracle, "sink0")


def test_with_its_log_it_is_missed(oracle: Oracle) -> None:
    with pytest.raises(pytest.fail.Exception, match="are not visible"):
        oracle.repaired._adopt(oracle, OLD, {LINEAGE: 0})


def test_a_target_lacks_nothing_of_what_is_not_adopted(oracle: Oracle) -> None:
    oracle.undone |= {xid("0.1"), xid("0.1", 1)}
    oracle.decided[OLD, LINEAGE, 1] = decision(1, "0.1")
    oracle.repaired._adopt(oracle, NEW, {LINEAGE: 0})
    assert oracle.missing() == {xid("0.1")}


@pytest.mark.parametrize(
    ("own", "folder", "is_older"),
    [(4, NEW, True), (5, NEW, False), (0, NEW, False), (4, OLD, False)],
    ids=["older", "newer", "no driver", "of another folder"],
)
def test_a_piece_that_comes_back_is_committed_by_an_older_driver_only(
    oracle: Oracle, repair: Process, own: int, folder: str, is_older: bool
) -> None:
    oracle.generation[NEW] = 5
    oracle.repaired._adopt(oracle, NEW, {LINEAGE: 0})
    oracle.fences[repair], oracle.folders[repair] = own, folder
    assert oracle.repaired.is_older(oracle, xid("1.2")) is is_older


def test_what_only_a_fork_has_given_up_is_the_first_jobs_to_accept(oracle: Oracle) -> None:
    oracle.withdrawn.add(xid("1.2"))
    loss = {"lineage": LINEAGE, "checkpoint": 0, "sink": "sink0", "pieces": ["1.2"]}
    oracle.repaired._accept(oracle, OLD, {**loss, "emptied": False, "lacks": [], "before": []})
    assert oracle.decided[OLD, LINEAGE, 0].xids == (xid("0.1"),)


def test_a_piece_may_have_the_numbers_of_the_one_that_it_was_written_again_for(
    oracle: Oracle,
) -> None:
    again = xid("1.2").replace("'1.1-", "'2.1-")
    written = oracle.decided[OLD, LINEAGE, 0]
    oracle.superseded.append(written)
    oracle.withdrawn.add(xid("1.2"))
    xids = (xid("0.1"), again)
    oracle.decided[OLD, LINEAGE, 0] = replace(
        written, attempt=(2, 1), xids=xids, sinks=dict.fromkeys(xids, "sink0")
    )
    oracle.lost.append(again)
    loss = {"lineage": LINEAGE, "checkpoint": 0, "sink": "sink0", "pieces": ["1.2"]}
    oracle.repaired._accept(oracle, OLD, {**loss, "emptied": False, "lacks": [], "before": []})
    assert oracle.decided[OLD, LINEAGE, 0].xids == (xid("0.1"),)


def test_what_a_log_has_given_up_stays_so_when_it_is_restored_there_again(oracle: Oracle) -> None:
    loss = {"lineage": LINEAGE, "checkpoint": 0, "sink": "sink0", "pieces": ["1.2"]}
    oracle.repaired._accept(oracle, OLD, {**loss, "emptied": False, "lacks": [], "before": []})
    oracle.repaired._adopt(oracle, OLD, {})
    assert not oracle.repaired.missing_rows(oracle, "sink0"), "its records are read again"
    path = f"{OLD}/chk/{LINEAGE}-0-1.1"
    begun = {"id": "new", "restored_from": path, "restore_id": "", "ancestors": {LINEAGE: 0}}
    oracle.repaired.decided_again(OLD, oracle.saved.begins(oracle, OLD, begun))
    assert oracle.repaired.missing_rows(oracle, "sink0") == [(0, 1)]


@pytest.mark.parametrize(("chunk", "stays"), [(2, True), (0, False)], ids=["after it", "before it"])
def test_a_checkpoint_that_was_given_up_whole_goes_if_its_records_are_read_again(
    oracle: Oracle, chunk: int, stays: bool
) -> None:
    oracle.decided[OLD, LINEAGE, 1] = replace(decision(1), committed=True)
    saved = Saved(OLD, "after an adoption", 1, {LINEAGE: 0}, frozenset(), chunk)
    oracle.saved.by_path["/data/saved1"] = saved
    begun = {"id": "new", "restored_from": "/data/saved1", "restore_id": "", "ancestors": {}}
    oracle.saved.begins(oracle, NEW, begun)
    assert ((OLD, LINEAGE, 1) in oracle.decided) is stays


@pytest.mark.parametrize(
    ("older", "committed", "may_begin"),
    [(True, True, True), (True, False, False), (False, True, False)],
    ids=["an older copy has", "an older copy is about to", "no older copy"],
)
def test_a_fork_may_begin_when_another_checkpoint_was_committed_under_the_number(
    oracle: Oracle, older: bool, committed: bool, may_begin: bool
) -> None:
    saved = oracle.decided[OLD, LINEAGE, 0]
    oracle.lost.clear()
    oracle.superseded.append(saved)
    another = tuple(one.replace("'1.1-", "'2.1-") for one in saved.xids)
    oracle.decided[OLD, LINEAGE, 0] = replace(
        saved,
        body=saved.body.replace("-1.1/", "-2.1/"),
        attempt=(2, 1),
        xids=another,
        committed=committed,
        sinks=dict.fromkeys(another, "sink0"),
    )
    oracle.saved.older |= {OLD} if older else set()
    pending = frozenset({f"{LINEAGE}-0-1.1"})
    oracle.saved.by_path["/data/saved1"] = Saved(OLD, LINEAGE, 0, {LINEAGE: 0}, pending, 0)
    oracle.saved.forks.add("/data/fork1")
    begun = {"id": "new", "restored_from": "/data/saved1", "restore_id": "", "ancestors": {}}
    with nullcontext() if may_begin else pytest.raises(pytest.fail.Exception, match="H30"):
        oracle.saved.begins(oracle, "/data/fork1", begun)
