"""The plain matrix finds what is wrong: each mistake that a kill can show makes a case go red, for
the reason it should.

The mistakes are those of `verification/simulation/mutations.py`, applied inside the plain driver
and its workers, and three more. Two say nothing at all: one duplicates, one loses, and only the
count of the rows can see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.mutants import DUPLICATES, EARLY, LOSES, OWN
from integration.without_spark.points import IN_CHAIN
from integration.without_spark.scenario import TARGETS, Scenario
from twophase.errors import (
    CheckpointMissingError,
    LostCommittableError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.testing.services import SqlService
from verification.simulation.mutations import MISTAKES

pytestmark = pytest.mark.part("without_spark")

Servers = dict[str, SqlService]


@dataclass(frozen=True)
class Shown:
    """How a mistake shows.

    Attributes:
        case: what is run.
        red: what the failure says.
        target: of the job.
        options: of the job.
    """

    case: Callable[[Scenario, Servers], None]
    red: str
    target: str = "mysql"
    options: Mapping[str, Any] = field(default_factory=dict)


def killed_at(point: str, number: int = 2) -> Callable[[Scenario, Servers], None]:
    def case(scenario: Scenario, _: Servers) -> None:
        steps.die_in_checkpoint(scenario, point, number)
        scenario.goes_on()

    return case


def zombie_at(point: str) -> Callable[[Scenario, Servers], None]:
    return lambda scenario, _: steps.be_fenced_out(scenario, point)


def fenced_at_once(scenario: Scenario, _: Servers) -> None:
    steps.be_fenced_out_at_once(scenario, "C07")


def worker_lost(scenario: Scenario, _: Servers) -> None:
    steps.lose_a_worker(scenario, "E01", 2)


def server_lost(scenario: Scenario, servers: Servers) -> None:
    steps.lose_a_server(scenario, servers["mysql"], "C04")


def behind(scenario: Scenario, _: Servers) -> None:
    steps.die_in_commit_behind(scenario, "C11")


def ahead_at(point: str) -> Callable[[Scenario, Servers], None]:
    def case(scenario: Scenario, _: Servers) -> None:
        scenario.produce(3)
        steps.killed(scenario.run(f"{point}=kill", arm_from=2), point)
        scenario.goes_on()

    return case


def held_in_chain(scenario: Scenario, _: Servers) -> None:
    scenario.settings["chained"] = True
    steps.die_in_chain(scenario, "E01", 2, 1, IN_CHAIN["E01", 2])


def ends_with(error: type[TwoPhaseError], said: str) -> str:
    """What the failure says if a driver ends by name; one that dies of anything else has another
    code and another last line.
    """
    return rf"exit code {error.exit_code}:\n(?:.*\n)*{error.__name__}: .*{said}"


# A driver that cannot go on ends soon instead of trying for ever.
FEW_RESTARTS = {"restart.strategy": "fixed", "restart.attempts": 3}
LEFT = "a trace was left"
BODY_GONE = r"The body of the decided checkpoint 0 \(.*\) is missing"
SHOWN = {
    DUPLICATES: Shown(killed_at("C06"), r"duplicated=20"),
    LOSES: Shown(killed_at("C11"), r"lost=20"),
    EARLY: Shown(held_in_chain, "the state is", "two_servers"),
    "recovery takes decided pieces for orphans": Shown(killed_at("C11"), "lost=20"),
    "a checkpoint is called committed before it is": Shown(
        killed_at("C16"), ends_with(TargetChangedError, "knows none of that lineage")
    ),
    "a declined checkpoint returns": Shown(worker_lost, "lost=20"),
    "bodies that were not decided are left behind": Shown(killed_at("C07"), "bodies"),
    "a checkpoint is subsumed by itself": Shown(
        killed_at("C16"), ends_with(CheckpointMissingError, BODY_GONE)
    ),
    "the body is never written": Shown(
        killed_at("C11"), ends_with(CheckpointMissingError, BODY_GONE)
    ),
    "the ledger row is written outside of the branch": Shown(
        killed_at("C06"),
        ends_with(
            CheckpointMissingError, "has committed checkpoint 2, but the checkpoint store ends at 1"
        ),
    ),
    "the ledger is collapsed and no mark is raised": Shown(
        killed_at("C16"), ends_with(TargetChangedError, "knows none of that lineage")
    ),
    "a lost reply to XA PREPARE is taken for yes": Shown(
        server_lost, ends_with(LostCommittableError, "neither prepared nor committed")
    ),
    "a writer does not look at the fence": Shown(zombie_at("C02"), LEFT),
    "neither a lock nor a fence keeps old writers out": Shown(zombie_at("E01"), LEFT),
    "an abort does not wait for the writer's session": Shown(
        zombie_at("C05"), ends_with(TargetUnreachableError, "could not be rolled back")
    ),
    "a taken place in the log is taken for one's own": Shown(fenced_at_once, f"{LEFT} in the log"),
    "more checkpoints are under way than allowed": Shown(
        behind, "the state is", options=steps.BEHIND
    ),
    "the newest commit is made first": Shown(
        lambda scenario, _: steps.commit_in_order(scenario), "out of order", options=steps.BEHIND
    ),
    "the end does not wait for the commits behind": Shown(
        lambda scenario, _: steps.end_with_commits_behind(scenario), "lost=", options=steps.BEHIND
    ),
    "a sink commits ahead without a record": Shown(
        ahead_at("A02"),
        ends_with(CheckpointMissingError, "has committed checkpoint 2, but the checkpoint store"),
        "two_servers",
        steps.AHEAD,
    ),
    "a retry asks a sink that is ahead to write again": Shown(
        ahead_at("A02"), "decided twice|duplicated=20", "two_servers", steps.AHEAD
    ),
    "pieces of a sink that is ahead count as orphans": Shown(
        ahead_at("A01"),
        ends_with(LostCommittableError, "neither prepared nor committed"),
        "two_servers",
        steps.AHEAD,
    ),
}

_POWER_CUT = "a power cut: what a killed process has written stays in the kernel's memory"
_REPLY = "an error of the disk or of the server in a certain reply; nothing is killed"
_RACE = "two things at the same moment, between which there is no crash point"
_BY_HAND = "somebody who changes or deletes what is there"
_COPY = f"{_BY_HAND}: a driver over a copy of the job's folder"
_CHANGED = f"{_BY_HAND}: a target that is restored from a backup or swapped"
_REPAIR = f"{_BY_HAND}, and an operator who runs a repair; a plain driver has none"
_SAVEPOINT = (
    "a plain driver makes and restores no savepoints: tests/operations/savepoint/test_savepoints.py"
)
_STOP = "a stop at a certain moment: a plain driver is killed, or ends by itself"
# What no kill shows, and what it takes instead; the simulation has all of it.
NOT_SHOWN = {
    (
        "a restart takes the fence of its own failed recovery for a rival's"
    ): f"{_REPLY}, in the recovery of a restart",
    "a restart takes its own unclear fence for a rival's": f"{_REPLY}: as above, of a fence",
    "a record in doubt is taken for a rival's": f"{_REPLY}: as above",
    "a restart forgets its generation": f"{_RACE}: a query that fails while another driver starts",
    "a fenced driver is restarted": "it is fenced again at each restart, and ends as it should",
    "a lineage begins before the job is recovered": (
        "the order of two records: the rows are right, whoever is killed"
    ),
    "a lineage begins although a stop has cut its recovery short": _STOP,
    "a decided micro-batch is written again": (
        "a plain plan has no watermark: a start notes a committed micro-batch as finished"
    ),
    "a stop is lost between two runs": _STOP,
    "a stop does not wait for the commit queue": (
        "shown by another: that the end does not wait for the commits behind"
    ),
    "sinks are closed before the commit queue has ended": _STOP,
    "a stop with a savepoint cancels the micro-batch under way": _SAVEPOINT,
    "the gate of a stop with a savepoint does not hold": _SAVEPOINT,
    "a recovery leaves a sink that is ahead to the next commit": (
        "the commit of the checkpoint makes up for it; the simulation looks at each recovery"
    ),
    "a rewind that has begun leaves a sink ahead": _SAVEPOINT,
    "a fold forgets the sinks that are ahead": (
        "a log of 33 records, without a checkpoint in between"
    ),
    "a savepoint leaves out what waits to be committed": _SAVEPOINT,
    "a savepoint of a stopped job is of a checkpoint before its newest": _SAVEPOINT,
    "a savepoint is called finished before it is committed": _SAVEPOINT,
    "a restore aborts what a savepoint holds before it is committed": _SAVEPOINT,
    "a savepoint is restored while a sink is ahead of it": _SAVEPOINT,
    "a fork begins before what its savepoint holds is committed": _SAVEPOINT,
    "the loss that a fork has found is looked for in its own name": _SAVEPOINT,
    "a rewind leaves decided checkpoints to be committed later": _SAVEPOINT,
    "a rewind takes rows back in one sink": _SAVEPOINT,
    "a restore that another driver has done meanwhile is done again": _SAVEPOINT,
    "the note of who has written a folder is deleted first": _SAVEPOINT,
    "superseded attempts are aborted in a target that lacks a checkpoint": (
        f"{_BY_HAND}: a target that is restored from a backup"
    ),
    "what was restored is restored again because its option stays set": _SAVEPOINT,
    "what a restore has written stays when it dies": _SAVEPOINT,
    "a lineage that continues Spark's folder begins at 1": _SAVEPOINT,
    "an unknown branch is taken for committed": (
        f"{_BY_HAND}: a decided branch that was rolled back"
    ),
    "a commit does not wait for the writer's session": (
        f"{_RACE}: a session that leaves and the commit of its branch"
    ),
    "a lock wait inside a branch is passed over": f"{_REPLY}: 1205 inside a branch",
    "the ledger is read without a lock": f"{_RACE}: a commit in flight and the question for it",
    "the ledger is collapsed before the mark is raised": (
        f"{_RACE}: a crash between two statements of `subsume`"
    ),
    "orphans are looked for only before the fence": (
        f"{_RACE}: a prepare between a scan and the fence"
    ),
    (
        "a sink without orphans is not scanned again after its fence"
    ): f"{_RACE}: a prepare between a scan and the fence",
    "a decision of unclear outcome is aborted": f"{_REPLY}: a sync that fails after the link",
    "a record is linked before it is synced": _POWER_CUT,
    "a folder is not synced after the link": _POWER_CUT,
    "a reader does not sync what it acts on": _POWER_CUT,
    "a folder that another driver has made is not synced": _POWER_CUT,
    "an xid leaves out the task attempt": (
        "two attempts of one task in one transaction: a plain driver repeats no task"
    ),
    "an empty folder is taken for a fresh start": f"{_BY_HAND}: the job's folder",
    "two threads append at once": _RACE,
    (
        "one thread appends after the other has met a doubt"
    ): f"{_REPLY}: as above, with commits behind",
    "a folded log is not noticed": "what it writes lies before the newest SUBSUMED record, where "
    "nobody reads it, and the next start sweeps it",
    "the first record of a folded log is written again": (
        f"{_RACE}: a driver between reading an empty log and its fence"
    ),
    (
        "a restore is validated against what sinks knew before"
    ): f"{_RACE}: a restore and a driver that goes on",
    "the sinks are not asked again after the fences": _COPY,
    "orphans are aborted without asking the other sinks": _COPY,
    "a commit does not require its predecessor": _CHANGED,
    "a start does not look for what its targets should have": _CHANGED,
    "the mark is raised to what a target lacks": _CHANGED,
    "a table is known by its name alone": _CHANGED,
    "a server is known by its address alone": _CHANGED,
    "a loss is accepted without asking the target": _REPAIR,
    "an accepted loss stays in the checkpoint": _REPAIR,
    "a repair does not take the job over": _REPAIR,
    "an adoption takes a piece that was written again": _REPAIR,
    "an adoption leaves the pieces that wait": _REPAIR,
    "an adoption of several lineages leaves the pieces that wait": _REPAIR,
    (
        "MySQL is asked as soon as a session is off the list"
    ): f"{_RACE}: a session that leaves on a slow server",
    (
        "MariaDB is asked as soon as a session is off the list"
    ): f"{_RACE}: a session that leaves on a slow server",
}


def test_every_mistake_of_the_simulation_is_shown_or_it_is_said_why_not() -> None:
    assert not {*SHOWN} & {*NOT_SHOWN}
    assert {*SHOWN} - OWN | {*NOT_SHOWN} == {*MISTAKES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in (DUPLICATES, LOSES) else pytest.mark.proof)
        for name in SHOWN
    ],
)
def test_a_kill_shows_that(make_scenario: MakeScenario, servers: Servers, name: str) -> None:
    shown = SHOWN[name]
    scenario = make_scenario(TARGETS[shown.target], **FEW_RESTARTS, **shown.options)
    scenario.settings["mutant"] = name
    with pytest.raises(AssertionError, match=shown.red):
        shown.case(scenario, servers)
