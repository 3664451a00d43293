"""An older savepoint while the sinks are ahead of it: refused, rewound, or forked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, files
from harness.folder_sink import FolderSink, FolderTarget, OpenFolderSink
from harness.memory_driver import JOB, offsets
from harness.plain_job import PlainJob
from harness.savepoint_world import World, killed, older, restoring
from harness.selection import representatives
from tests.state.conftest import snapshot
from twophase.cli.dry_run import _lines
from twophase.contract.sink import ArrowSink
from twophase.contract.source import Source, SourceLeg
from twophase.errors import (
    ConfigError,
    OffsetOutOfRangeError,
    RestoreRefusedError,
    SavepointError,
    StopJobError,
)
from twophase.events import SinkRewound
from twophase.ids import Attempt
from twophase.operations.savepoint import format as format_module
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.preview import preview_start
from twophase.options.job_options import JobOptions
from twophase.spark.plan import operator_states

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_module, "PART_BYTES", 64)


def unfinished(world: World, name: str = "saved") -> Path:
    """A savepoint of checkpoint 1, which is decided and committed nowhere."""
    world.drive(1)
    assert killed("C11", lambda: world.drive(2))
    (world.spark() / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    path = world.make(name)
    assert not open_savepoint(str(path)).is_committed
    return path


# -- rewind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["job", "again"])
def test_a_rewind_takes_back_what_is_newer_and_writes_it_again(world: World, folder: str) -> None:
    path = older(world)
    lineage = world.history().lineage
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)
    rewound = [event for event in world.events if isinstance(event, SinkRewound)]
    assert lineage is not None
    assert rewound == [SinkRewound(JOB, name, lineage.id, 3, 1) for name in world.sinks]
    assert world.history(folder).rewinding is None


def test_a_rewound_job_is_rewound_again_and_restored_from_its_own_savepoints(world: World) -> None:
    path = older(world)
    world.drive(5, **restoring(path, "rewind"), **{"checkpoint.num_retained": "9"})
    newer = world.make("newer")
    shutil.move(path, world.root / "moved")
    world.drive(6, **restoring(world.root / "moved", "rewind"), **{"checkpoint.num_retained": "9"})
    world.is_exact("job", 6)
    with pytest.raises(RestoreRefusedError):
        world.drive(7, **restoring(newer, "refuse"))
    own = world.make("own")
    world.drive(7, **restoring(own, "refuse"))
    world.is_exact("job", 7)


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_savepoint_of_what_a_rewind_has_taken_back_is_refused(
    world: World, policy: str, waits: bool
) -> None:
    """Found by the simulation: the job stopped for pieces that were lost, or for a target that was
    restored from a backup, and nothing told that the savepoint is of no use any more.
    """
    path = older(world)
    if waits:
        assert killed("C11", lambda: world.drive(5))
        (world.spark() / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":0}')
    newer = world.make("newer")
    world.drive(5, **restoring(path, "rewind"))
    before = snapshot(world.root)
    with pytest.raises(RestoreRefusedError, match="has gone back to 1 of it since"):
        world.drive(6, **restoring(newer, policy))
    with pytest.raises(RestoreRefusedError, match="what was newer was taken back"):
        said(world, newer, policy)
    assert snapshot(world.root) == before
    world.drive(6)
    world.is_exact("job", 6)


def test_a_checkpoint_that_is_decided_is_committed_and_taken_back_with_the_rest(
    world: World,
) -> None:
    world.drive(2)
    path = world.make()
    assert killed("C11", lambda: world.drive(3))
    assert world.prepared() == 4
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)
    assert {event.newest for event in world.events if isinstance(event, SinkRewound)} == {2}


def test_what_the_savepoint_holds_as_pending_is_committed_and_stays(world: World) -> None:
    path = unfinished(world)
    world.drive(4)
    world.drive(5, "again", **restoring(path, "rewind"))
    world.is_exact("again", 5)


def test_the_newest_checkpoint_needs_no_rewind(world: World) -> None:
    world.drive(2)
    path = world.make()
    world.drive(4, **restoring(path, "rewind"))
    world.is_exact("job", 4)
    assert not [event for event in world.events if isinstance(event, SinkRewound)]


class CannotRewind(OpenFolderSink):
    check_rewind = rewind = None  # type: ignore[assignment]


class Changed(OpenFolderSink):
    """Its rows were changed by somebody else."""

    def check_rewind(self, keep: Any) -> None:
        raise RestoreRefusedError("Rows of checkpoint 3 are gone.", remedy="bring them back.")


class SomeWorld(World):
    """Its sink `lake` is of another kind."""

    kind: type[OpenFolderSink] = OpenFolderSink

    def sink(self, name: str) -> ArrowSink:
        return FolderSink(self.root / name, self.kind if name == "lake" else None)


@pytest.mark.parametrize("decided_only", [False, True])
@pytest.mark.parametrize(("kind", "why"), [(CannotRewind, "sink 'lake'"), (Changed, "are gone")])
def test_a_sink_that_cannot_take_it_back_refuses_before_anything_is_written(
    tmp_path: Path, kind: type[OpenFolderSink], why: str, decided_only: bool
) -> None:
    world = SomeWorld(tmp_path)
    world.drive(2)
    path = world.make()
    if decided_only:
        assert killed("C11", lambda: world.drive(3))
    else:
        world.drive(4)
    world.kind = kind
    before = snapshot(world.root)
    with pytest.raises(RestoreRefusedError, match=why) as caught:
        world.drive(5, **restoring(path, "rewind"))
    assert caught.value.remedy
    assert snapshot(world.root) == before
    world.kind = OpenFolderSink
    world.drive(5)
    world.is_exact("job", 5)


class Numbers(Source):
    """The source of the world, some of whose records are gone.

    Attributes:
        asked: what it was asked for, with the folder of its log.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, Path | None]] = []

    def owns(self, line: str) -> bool:
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        self.asked.append((line, log))
        raise OffsetOutOfRangeError("Numbers 20 to 29 are gone.", remedy="bring them back.")


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Numbers:
    source = Numbers()
    monkeypatch.setattr(operator_states, "source_of", lambda _: source)
    return source


def test_no_row_is_taken_back_that_its_source_cannot_read_again(
    world: World, gone: Numbers
) -> None:
    path = older(world)
    before = snapshot(world.root)
    with pytest.raises(OffsetOutOfRangeError, match="has to be read again") as caught:
        world.drive(5, **restoring(path, "rewind"))
    assert "Numbers 20 to 29 are gone. Nothing was taken back." in caught.value.what
    assert "To rewind all the same: bring them back." in caught.value.remedy
    assert snapshot(world.root) == before
    [line] = open_savepoint(str(path)).checkpoint().offsets.end
    assert gone.asked == [(line, world.spark() / "sources" / "0")]
    world.drive(5)
    world.is_exact("job", 5)


@pytest.mark.parametrize("policy", ["refuse", "fork"])
def test_nobody_asks_the_source_where_no_row_is_taken_back(
    world: World, gone: Numbers, policy: str
) -> None:
    path = older(world)
    with pytest.raises(StopJobError if policy == "refuse" else ConfigError):
        world.drive(5, "again", **restoring(path, policy))
    assert gone.asked == []


PROVE = {"restore.allow_unproven_sources": "false"}


@pytest.mark.parametrize("folder", ["job", "again"])
def test_no_row_is_taken_back_that_its_source_cannot_prove_to_have(
    world: World, folder: str
) -> None:
    """Nothing is known of the source of the world: that it still has all is for me to say."""
    path = older(world)
    before = files(world.root)
    with pytest.raises(RestoreRefusedError, match=r"not proven\. Numbers cannot tell") as caught:
        world.drive(5, folder, **restoring(path, "rewind"), **PROVE)
    assert "restore.allow_unproven_sources" in caught.value.remedy
    assert files(world.root) == before
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)


def test_where_no_row_is_taken_back_nothing_has_to_be_proven(world: World) -> None:
    world.drive(2)
    path = world.make()
    world.drive(4, "again", **restoring(path, "rewind"), **PROVE)
    world.is_exact("again", 4)


def test_a_rewind_that_has_begun_takes_back_no_more_of_what_is_gone_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is finished when the records are back."""
    path = older(world)
    assert killed("S12", lambda: world.drive(5, **restoring(path, "rewind")))
    before = snapshot(world.root)
    with monkeypatch.context() as patched:
        patched.setattr(operator_states, "source_of", lambda _: Numbers())
        with pytest.raises(
            OffsetOutOfRangeError, match=r"cannot be finished: .* are gone"
        ) as caught:
            world.drive(5, **restoring(path, "rewind"))
    assert "bring them back" in caught.value.remedy
    assert "twophase repair abandon-rewind JOB.yaml" in caught.value.remedy
    assert snapshot(world.root) == before
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)


def test_a_rewind_fences_the_original_that_still_runs(world: World) -> None:
    path = older(world)
    original = world._driver("job", {}).coordinator
    original.recover()
    world.drive(5, "again", **restoring(path, "rewind"))
    with pytest.raises(StopJobError):
        original.context.sinks["facts"].fence(Attempt(original.generation, 1))
    world.is_exact("again", 5)


IN_REWIND = ["C18", "C22", "S11", "S12", "S12@2", "S13", "S05", "S06", "S07", "C01", "C06", "C16"]
RECORDED = ["S11", "S12", "S12@2", "S13", "S05", "S06"]
FOLDERS = ["job", "again"]
"""The job's own folder, and one of its own for the restore."""


@pytest.mark.parametrize("folder", representatives(FOLDERS, {"again"}))
@pytest.mark.parametrize("point", representatives(IN_REWIND, {"S12", "S07", "C06"}))
def test_a_kill_in_a_rewind_loses_nothing_and_repeats_nothing(
    world: World, point: str, folder: str
) -> None:
    path = older(world)
    assert killed(point, lambda: world.drive(5, folder, **restoring(path, "rewind")))
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)


@pytest.mark.parametrize("folder", representatives(FOLDERS, {"job"}))
@pytest.mark.parametrize("point", representatives(RECORDED, {"S11", "S12", "S06"}))
def test_a_start_in_the_middle_of_a_rewind_is_refused_without_it(
    world: World, point: str, folder: str
) -> None:
    path = older(world)
    newest = world.make("newest")
    assert killed(point, lambda: world.drive(5, folder, **restoring(path, "rewind")))
    before = snapshot(world.root)
    for options in ({}, restoring(path, "refuse"), restoring(newest, "rewind")):
        with pytest.raises(RestoreRefusedError, match="was started and not finished") as caught:
            world.drive(5, folder, **options)
        assert "restore.sink_ahead=rewind" in caught.value.remedy
    assert snapshot(world.root) == before
    shutil.copytree(path, world.root / "copy")
    world.drive(5, folder, **restoring(world.root / "copy", "rewind"))
    world.is_exact(folder, 5)


def test_a_repeated_rewind_is_finished_as_its_refusals_say(world: World) -> None:
    """The job was rewound to it before, and the second time, with an id of its own, has died."""
    path = older(world)
    rewind = restoring(path, "rewind")
    world.drive(5, **rewind)
    assert killed("S12", lambda: world.drive(5, **rewind, **{"restore.id": "second"}))
    for options in ({}, rewind):
        with pytest.raises(RestoreRefusedError, match="was started and not finished") as caught:
            world.drive(5, **options)
        assert "and with a new `restore.id`" in caught.value.remedy
    with pytest.raises(SavepointError) as unsaved:
        world.make("amid")
    assert "and with a new `restore.id`" in unsaved.value.remedy
    world.drive(5, **rewind, **{"restore.id": "third"})
    world.is_exact("job", 5)


def test_the_newest_checkpoint_that_a_refused_restore_names_is_restored(tmp_path: Path) -> None:
    world = BeginningWorld(tmp_path)
    keep = {"checkpoint.num_retained": 4}
    PlainJob(world, 4, options=keep).run()
    first = min((tmp_path / "job" / "chk").iterdir(), key=lambda one: int(one.name.split("-")[-2]))
    job = PlainJob(world, 5, options=keep | restoring(first, "refuse"))
    with pytest.raises(RestoreRefusedError, match="cannot restore from") as caught:
        job.run()
    newest = re.search(r"restore that: (\S+);", caught.value.remedy)
    assert newest is not None, caught.value.remedy
    PlainJob(world, 5, options=keep | restoring(Path(newest[1]), "refuse")).run()
    assert world.ids() == [[*range(50)]] * 2


@pytest.mark.parametrize("point", ["S11", "S12", "S13"])
def test_the_original_does_not_go_on_beside_a_rewind_elsewhere(world: World, point: str) -> None:
    path = older(world)
    assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
    with pytest.raises(StopJobError):
        world.drive(5)
    world.drive(5, "again", **restoring(path, "rewind"))
    world.is_exact("again", 5)


# -- fork ------------------------------------------------------------------------------------------

FORK = "orders-fork"


def rows_of(world: World, job: str) -> list[list[int]]:
    """The rows that a job has written to each sink."""
    found = []
    for name in world.sinks:
        target = FolderTarget(world.root / name)
        files = sorted((target.root / "visible").glob(f"{job}~*.json"))
        rows = [row for path in files for row in json.loads(path.read_text())["rows"]]
        found.append(sorted(row["id"] for row in rows))
    return found


def test_a_fork_goes_on_from_the_savepoint_and_leaves_the_original_alone(world: World) -> None:
    path = older(world)
    world.drive(5, "fork", FORK, **restoring(path, "fork"))
    assert rows_of(world, FORK) == [[*range(20, 50)]] * 2
    assert world.state("fork", FORK) == sum(range(50))
    begun = world.history("fork", FORK).lineage
    assert begun is not None
    assert not begun.ancestors
    world.drive(5)
    assert rows_of(world, JOB) == [[*range(50)]] * 2
    assert world.state() == sum(range(50))
    assert world.prepared() == 0
    world.drive(7, "fork", FORK, **restoring(path, "fork"))
    world.drive(8, "fork", FORK)
    assert rows_of(world, FORK) == [[*range(20, 80)]] * 2


def test_a_fork_commits_what_was_pending_under_its_old_identity(world: World) -> None:
    path = unfinished(world)
    world.drive(4, "fork", FORK, **restoring(path, "fork"))
    assert rows_of(world, JOB) == [[*range(20)]] * 2
    assert rows_of(world, FORK) == [[*range(20, 40)]] * 2
    assert world.prepared() == 0
    world.drive(4)
    assert rows_of(world, JOB) == [[*range(40)]] * 2


def test_a_fork_aborts_and_fences_nothing_of_a_live_original(world: World) -> None:
    path = older(world)
    driver = world._driver("job", {"commit.backoff": "1 ms"})
    driver.coordinator.recover()
    generations = [sink.history().generation for sink in driver.sinks.values()]

    def beside(pending: Any) -> None:
        driver.write(pending)
        world.drive(5, "fork", FORK, **restoring(path, "fork"))

    driver.coordinator.checkpoint(4, offsets(4), beside)
    assert [sink.history().generation for sink in driver.sinks.values()] == generations
    assert rows_of(world, JOB) == [[*range(50)]] * 2
    assert rows_of(world, FORK) == [[*range(20, 50)]] * 2


def test_a_fork_under_the_same_name_is_refused(world: World) -> None:
    path = older(world)
    before = snapshot(world.root)
    with pytest.raises(ConfigError, match="a fork is a job of another name") as caught:
        world.drive(5, "job", JOB, **restoring(path, "fork"))
    assert snapshot(world.root) == before
    assert caught.value.remedy.startswith("give the job another name, checkpointLocation and")
    world.drive(5, "fork", FORK, **restoring(path, "fork"))
    assert rows_of(world, FORK) == [[*range(20, 50)]] * 2
    world.drive(5, "job", JOB, **restoring(path, "rewind"))
    assert rows_of(world, JOB) == [[*range(50)]] * 2


def test_a_fork_from_a_checkpoint_is_refused_and_begins_with_a_savepoint(world: World) -> None:
    world.drive(2)
    [checkpoint] = (world.root / "job" / "chk").iterdir()
    (world.root / "fork").mkdir(mode=0o700)
    before = snapshot(world.root)
    with pytest.raises(ConfigError, match=r"begins with a savepoint, and .* is none") as caught:
        world.drive(5, "fork", FORK, **restoring(checkpoint, "fork"))
    assert snapshot(world.root) == before
    assert "make a savepoint of the other job" in caught.value.remedy
    world.drive(5, "fork", FORK, **restoring(world.make(), "fork"))
    assert rows_of(world, FORK) == [[*range(20, 50)]] * 2


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_a_savepoint_of_another_job_is_refused_and_the_fork_named(
    world: World, policy: str
) -> None:
    path = older(world)
    (world.root / "fork").mkdir(mode=0o700)
    before = snapshot(world.root)
    with pytest.raises(ConfigError, match="one of job 'orders'") as caught:
        world.drive(5, "fork", FORK, **restoring(path, policy))
    assert "set `restore.sink_ahead=fork`" in caught.value.remedy
    assert snapshot(world.root) == before
    world.drive(5, "fork", FORK, **restoring(path, "fork"))
    assert rows_of(world, FORK) == [[*range(20, 50)]] * 2


def test_a_fork_with_targets_of_its_own_needs_a_finished_savepoint(world: World) -> None:
    path = unfinished(world)

    class Elsewhere(World):
        def sink(self, name: str) -> ArrowSink:
            return FolderSink(self.root / f"{name}-of-the-fork")

    forked = Elsewhere(world.root)
    with pytest.raises(RestoreRefusedError, match="is not one of this job") as caught:
        forked.drive(4, "fork", FORK, **restoring(path, "fork"))
    assert f"twophase savepoint finish {JOB}.yaml {path}" in caught.value.remedy
    assert world.prepared() == 4
    world.finish(path)
    forked.drive(4, "fork", FORK, **restoring(path, "fork"))
    mine = FolderTarget(world.root / "facts-of-the-fork").rows()
    assert sorted(row["id"] for row in mine) == [*range(20, 40)]


def test_a_fork_into_a_job_that_has_history_is_refused(world: World) -> None:
    path = older(world)
    world.drive(1, "fork", FORK)
    with pytest.raises(RestoreRefusedError):
        world.drive(5, "fork", FORK, **restoring(path, "fork"))


IN_FORK = ["C18", "C12", "C13", "C14", "C15", "C22", "S05", "S06", "S07", "C01", "C06", "C16"]


@pytest.mark.parametrize("point", representatives(IN_FORK, {"C14", "S07"}))
def test_a_kill_in_a_fork_loses_nothing_and_repeats_nothing(world: World, point: str) -> None:
    path = unfinished(world)
    assert killed(point, lambda: world.drive(4, "fork", FORK, **restoring(path, "fork")))
    world.drive(4, "fork", FORK, **restoring(path, "fork"))
    assert rows_of(world, JOB) == [[*range(20)]] * 2
    assert rows_of(world, FORK) == [[*range(20, 40)]] * 2
    assert world.prepared() == 0


# -- dry run ---------------------------------------------------------------------------------------


def said(world: World, path: Path, policy: str, job: str = JOB, folder: str = "job") -> str:
    """What `twophase run --restore PATH --dry-run` says; it writes nothing."""
    sinks = world._driver(folder, {}, job).sinks
    given = {"checkpointLocation": str(world.root / folder), **restoring(path, policy)}
    before = snapshot(world.root)
    options = JobOptions.parse(given, "job")
    found = preview_start(job, sinks, options)
    assert snapshot(world.root) == before
    return "\n".join(_lines(job, str(path), found))


def test_a_dry_run_says_what_would_be_taken_back(world: World) -> None:
    path = older(world)
    lineage = world.history().lineage
    assert lineage is not None
    text = said(world, path, "rewind")
    for name in world.sinks:
        taken = f"Of sink {name} would be taken back: checkpoints 2 to 3 of lineage {lineage.id}."
        assert taken in text
    with pytest.raises(RestoreRefusedError):
        said(world, path, "refuse")


def test_a_dry_run_ends_with_the_refusal_of_a_sink(tmp_path: Path) -> None:
    world = SomeWorld(tmp_path)
    path = older(world)
    world.kind = CannotRewind
    with pytest.raises(RestoreRefusedError, match="sink 'lake'"):
        said(world, path, "rewind")


def test_a_dry_run_of_a_fork_says_what_it_would_commit_for_the_original(world: World) -> None:
    path = unfinished(world)
    text = said(world, path, "fork", FORK, "fork")
    for name in world.sinks:
        assert f"Of sink {name} would be committed: 2 pieces, 10 rows." in text
    assert "Nothing would be aborted." in text
    assert world.prepared() == 4
