"""`twophase checkpoints` shows what is in a job's folder, and changes nothing in it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.newer_version import renew, renew_body
from tests.cli.conftest import LINEAGE, JobFolder
from tests.state.conftest import snapshot
from twophase.cli import checkpoint_list
from twophase.cli.display.text import local_time
from twophase.cli.main import main
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    JobStopped,
    QueryProgressed,
    RecoveryStarted,
    SavepointMade,
)
from twophase.ids import Attempt
from twophase.internals.clock import SystemClock
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.event_file import EventFile
from twophase.state.files.storage import ReadOnlyStorage
from twophase.state.journal.entries import (
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    Decision,
    Lineage,
    Note,
    Rewinding,
    Rewrite,
    SinkDecision,
)
from twophase.state.journal.stats import CheckpointStats, DeclinedAttempt

KAFKA_PARTITION = PartitionOffset("orders", "id-1", 0, 5, 3)
KAFKA_LINE = SourceOffset("kafka", (KAFKA_PARTITION,)).to_line()


def show(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["checkpoints", str(folder), *options])


def shown(folder: Path) -> list[dict[str, Any]]:
    result = show(folder, "--json")
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["checkpoints"])


def test_repairs_are_listed_with_who_and_why(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    note = Note("ann@host", 1_700_000_000_000, "rolled back\x1b by hand")
    loss = AcceptedLoss(
        note, LINEAGE, 0, "facts", ("0.0",), 10, (None,), ("e",), emptied=False, before=()
    )
    job_folder.log.append(loss)
    adopted = Lineage("22222222-2222-3333-4444-555555555555", ancestors={LINEAGE: 0})
    head, *_ = lines = show(job_folder.root).stdout.splitlines()
    assert head.startswith("Job orders")
    (line,) = [line for line in lines if line.startswith("repaired: ")]
    assert line.endswith(
        "10 rows of checkpoint 0 given up in sink facts, by ann@host: rolled back by hand"
    )
    (entry,) = shown(job_folder.root)
    assert entry["rows"] == 20, "what is given up is not counted"
    job_folder.log.append(Adoption(note, adopted))
    assert "adopted from the targets: 11111111 up to 0, by ann@host" in show(job_folder.root).stdout
    repairs = json.loads(show(job_folder.root, "--json").stdout)["repairs"]
    assert [repair["action"] for repair in repairs] == ["accept-loss", "adopt-from-target"]


def test_a_sink_that_is_ahead_is_named(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    body = job_folder.checkpoint(1)
    offsets, pieces = body.offsets, tuple(body.committables["facts"])
    job_folder.log.append(
        SinkDecision(
            *(LINEAGE, 1, "facts", body.attempt, offsets.hash),
            *(offsets.start, offsets.end, pieces),
        )
    )
    (line,) = [
        line for line in show(job_folder.root).stdout.splitlines() if line.startswith("ahead: ")
    ]
    assert line == (
        "ahead: sink facts has or gets 30 rows of checkpoint 1 (1.2), which is not decided in "
        "the others"
    )
    found = json.loads(show(job_folder.root, "--json").stdout)
    assert found["ahead"] == [{"sink": "facts", "checkpoint": 1, "attempt": "1.2"}]


def test_a_rewind_that_has_begun_is_named_with_its_ways_on(job_folder: JobFolder) -> None:
    """No start goes on after the newest checkpoint then."""
    job_folder.commit(0)
    job_folder.commit(1)
    job_folder.log.append(Rewinding("/savepoints/orders", {LINEAGE: 0}))
    *_, last = show(job_folder.root).stdout.splitlines()
    assert last.startswith("rewinding: no start goes on before the rewind to /savepoints/orders")
    assert "start with `restore.path=/savepoints/orders`" in last
    assert "twophase repair abandon-rewind JOB.yaml" in last
    assert "goes on after checkpoint" not in show(job_folder.root).stdout
    assert json.loads(show(job_folder.root, "--json").stdout)["rewinding"] == "/savepoints/orders"


def test_what_was_written_again_is_listed(job_folder: JobFolder) -> None:
    job_folder.decide(0)
    note = Note("ann@host", 1_700_000_000_000, "rolled back by hand")
    (old,) = job_folder.log.history.decisions
    new = job_folder.store.prepare(replace(job_folder.checkpoint(0), attempt=Attempt(1, 7)))
    job_folder.log.append(Rewrite(note, new, old.attempt, "facts", ("1.201",), 15))
    (line,) = [
        line for line in show(job_folder.root).stdout.splitlines() if line.startswith("repaired: ")
    ]
    assert line.endswith(
        "15 rows of checkpoint 0 written again to sink facts (1.7), by ann@host: "
        "rolled back by hand"
    )
    (entry,) = shown(job_folder.root)
    assert (entry["state"], entry["attempt"]) == ("decided", "1.7")


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def test_a_row_tells_all_of_a_checkpoint(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    result = show(job_folder.root)
    assert result.exit_code == 0
    head, columns, row, after = result.stdout.splitlines()
    assert head == f"Job orders, generation 1, lineage {LINEAGE}"
    for part in (
        "11111111",
        "1.1",
        "committed",
        "2023-11-1",
        "0.84 s",
        " kB ",
        "30",
        "orders-0:0 orders-1:1",
    ):
        assert part in row
    assert columns.split()[0] == "id"
    assert "goes on after checkpoint 0, without a restore" in after
    assert after.endswith(f" {job_folder.body(0).parent}")


def test_a_row_tells_how_long_its_parts_took_and_what_was_declined_before(
    job_folder: JobFolder,
) -> None:
    job_folder.decide(0)
    declined = tuple(
        DeclinedAttempt(Attempt(1, counter), reason, cause)
        for counter, reason, cause in (
            (1, "CHECKPOINT_EXPIRED", ""),
            (2, "CHECKPOINT_EXPIRED", ""),
            (3, "TASK_FAILURE", "a task failed."),
        )
    )
    stats = CheckpointStats(LINEAGE, 0, 700, 20, 95, 1_234, declined)
    job_folder.log.append(CommittedRecord(LINEAGE, 0, stats))
    row = show(job_folder.root).stdout.splitlines()[2]
    for part in ("0.84 s", "0.70 s", "95 ms", "2 CHECKPOINT_EXPIRED, 1 TASK_FAILURE"):
        assert part in row
    (entry,) = shown(job_folder.root)
    durations = [entry[name] for name in ("pre_commit_ms", "decide_ms", "commit_ms")]
    assert durations == [700, 20, 95]
    assert entry["declined"][1:] == [
        {"attempt": "1.2", "reason": "CHECKPOINT_EXPIRED", "cause": ""},
        {"attempt": "1.3", "reason": "TASK_FAILURE", "cause": "a task failed."},
    ]


@pytest.mark.parametrize(
    ("line", "shown_offsets", "listed"),
    [
        ('{"n": 7}', '{"n": 7}', [{"format": "", "offsets": [{"n": 7}]}]),
        (
            KAFKA_LINE,
            "orders-0:5",
            [{"format": "twophase-kafka", "offsets": [asdict(KAFKA_PARTITION)]}],
        ),
    ],
)
def test_the_plugin_form_shows_the_frozen_offsets_and_no_restore(
    job_folder: JobFolder, line: str, shown_offsets: str, listed: list[Any]
) -> None:
    found = replace(job_folder.checkpoint(0), sources=(), offsets=FrozenOffsets((None,), (line,)))
    job_folder.store.decide(job_folder.store.prepare(found))
    _, _, row, after = show(job_folder.root).stdout.splitlines()
    assert shown_offsets in row
    assert after == "The query goes on after checkpoint 0, with its checkpointLocation."
    assert shown(job_folder.root)[0]["sources"] == listed


@pytest.mark.parametrize(
    ("lake", "shown_rows"),
    [((10, 20), "30 each"), ((5,), "facts 30, lake 5"), ((), "facts 30, lake 0")],
)
def test_rows_are_shown_by_sink(
    job_folder: JobFolder, lake: tuple[int, ...], shown_rows: str
) -> None:
    checkpoint = job_folder.checkpoint(0)
    facts = checkpoint.committables["facts"]
    pieces = [replace(piece, rows=rows) for piece, rows in zip(facts, lake, strict=False)]
    several = replace(checkpoint, committables={"facts": facts, "lake": pieces})
    job_folder.store.decide(job_folder.store.prepare(several))
    assert f"  {shown_rows}  " in show(job_folder.root).stdout
    (entry,) = shown(job_folder.root)
    assert (entry["rows"], entry["rows_by_sink"]) == (
        30 + sum(lake),
        {"facts": 30, "lake": sum(lake)},
    )


def test_a_decided_checkpoint_shows_its_pending_commits(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    job_folder.decide(1)
    assert "2 pieces of facts" in show(job_folder.root).stdout
    first, second = shown(job_folder.root)
    assert (first["state"], first["pending_commits"]) == ("committed", {})
    assert (second["state"], second["pending_commits"]) == ("decided", {"facts": 2})
    assert second["path"] == str(job_folder.body(1).parent)
    assert second["sources"][0]["offsets"][1] == {"topic": "orders", "partition": 1, "offset": 101}


def test_what_newer_checkpoints_replaced_is_subsumed(job_folder: JobFolder) -> None:
    for number in range(3):
        job_folder.commit(number)
    assert [entry["state"] for entry in shown(job_folder.root)] == [
        "subsumed",
        "subsumed",
        "committed",
    ]


def test_a_body_without_a_decision_is_undecided(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    job_folder.store.prepare(job_folder.checkpoint(1))
    assert f"undecided: {LINEAGE}-1-1.2" in show(job_folder.root).stdout
    assert len(shown(job_folder.root)) == 1


def test_a_job_without_checkpoints_has_an_empty_table(job_folder: JobFolder) -> None:
    assert show(job_folder.root).exit_code == 0
    assert shown(job_folder.root) == []


def test_nothing_in_the_folder_changes(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    before = everything(job_folder.root)
    show(job_folder.root)
    show(job_folder.root, "--json")
    assert everything(job_folder.root) == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = show(tmp_path / "nothing")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: There is no folder")
    assert "Next: name the job's checkpointLocation." in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "log", "chk", "events"])
@pytest.mark.parametrize("options", [[], ["--history"]])
def test_a_folder_of_no_job_is_refused_and_that_of_the_job_is_shown(
    tmp_path: Path, content: str | None, options: list[str], job_folder: JobFolder
) -> None:
    folder = tmp_path / "another"
    folder.mkdir()
    if content is not None:
        (folder / content).mkdir()
    result = show(folder, *options)
    assert result.exit_code == 2
    assert "is not the folder of a job. [ConfigError]" in result.stderr
    assert "Next: name the job's checkpointLocation." in result.stderr
    assert show(job_folder.root, *options).exit_code == 0


def test_a_damaged_log_record_is_named(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    record = job_folder.root / "log" / "0000000003"
    record.write_bytes(record.read_bytes()[:-1])
    result = show(job_folder.root)
    assert result.exit_code == 3
    assert "log/0000000003 is damaged" in result.stderr
    assert "[CorruptRecordError]" in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in show(job_folder.root, "--verbose").output


@pytest.mark.parametrize("gone", [True, False])
def test_a_damaged_body_is_shown_beside_the_others(job_folder: JobFolder, gone: bool) -> None:
    job_folder.commit(0)
    job_folder.decide(1)
    if gone:
        shutil.rmtree(job_folder.body(0).parent)
    else:
        job_folder.body(0).write_bytes(b"x")
    result = show(job_folder.root)
    assert result.exit_code == 3
    assert "damaged" in result.stdout
    assert "decided" in result.stdout
    assert "Error: The body of " in result.stderr
    entries = json.loads(show(job_folder.root, "--json").stdout)["checkpoints"]
    assert [entry["state"] for entry in entries] == ["damaged", "decided"]


def test_a_log_of_a_newer_version_is_no_damage(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    renew(job_folder.root / "log" / "0000000003")
    before = everything(job_folder.root)
    result = show(job_folder.root)
    assert result.exit_code == 3
    assert result.stderr.startswith(
        "Error: The durable file log/0000000003 was written by a newer twophase (format 2; "
        "this one reads up to 1)."
    )
    assert "No data is lost" in result.stderr
    assert "Next: start the newer version again." in result.stderr
    assert "[NewerFormatError]" in result.stderr
    assert "repair" not in result.output
    assert everything(job_folder.root) == before


def test_a_body_of_a_newer_version_is_told_beside_the_others(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    job_folder.decide(1)
    renew_body(job_folder.root, job_folder.body(0))
    result = show(job_folder.root)
    assert result.exit_code == 3
    assert "_metadata was written by a newer twophase" in result.stderr
    entries = json.loads(show(job_folder.root, "--json").stdout)["checkpoints"]
    assert [entry["state"] for entry in entries] == ["newer", "decided"]


def test_a_driver_that_goes_on_meanwhile_is_no_damage(
    job_folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_folder.commit(0)
    reads: list[Any] = []
    original = checkpoint_list._entry

    def entry(*arguments: Any) -> Any:
        if not reads:
            job_folder.commit(1)  # deletes the body of 0, which is about to be read
        reads.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(checkpoint_list, "_entry", entry)
    assert [found["state"] for found in shown(job_folder.root)] == ["subsumed", "committed"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_body_that_is_subsumed_while_it_is_read_is_no_damage(
    job_folder: JobFolder, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The driver has noted checkpoint 1 as committed already: the log tells nothing of
    what it deletes now.
    """
    job_folder.commit(0)
    job_folder.decide(1)
    job_folder.log.append(CommittedRecord(LINEAGE, 1))
    original = CompletedCheckpointStore.read

    def read(store: CompletedCheckpointStore, decision: Decision) -> CompletedCheckpoint:
        if when == "before":
            job_folder.store.subsume()
        body = original(store, decision)
        job_folder.store.subsume()
        return body

    monkeypatch.setattr(CompletedCheckpointStore, "read", read)
    assert [found["state"] for found in shown(job_folder.root)] == ["subsumed", "committed"]


def test_a_folder_opened_to_look_cannot_be_written(job_folder: JobFolder) -> None:
    storage = ReadOnlyStorage(job_folder.root)
    with pytest.raises(OSError, match="opened for reading only"):
        storage.create("log/0000000099", b"")
    with pytest.raises(OSError, match="opened for reading only"):
        storage.delete("log/0000000001")


def test_what_a_name_holds_cannot_steer_the_terminal(job_folder: JobFolder) -> None:
    job_folder.commit(0)
    (job_folder.root / "chk" / "\x1b[31mred").mkdir()
    assert "\x1b" not in show(job_folder.root).stdout


def test_the_history_tells_what_has_happened_and_when(job_folder: JobFolder) -> None:
    keep = EventFile(job_folder.storage, At(1_700_000_000_000))
    lines = (KAFKA_LINE.replace("id-1", "id-2"),)
    keep(RecoveryStarted("orders", 3))
    keep(QueryProgressed("orders", 10, 5.0, 1310))
    keep(CheckpointDeclined("orders", 5, Attempt(3, 1), "CHECKPOINT_EXPIRED", "slow", True))
    keep(CheckpointCommitted("orders", 5, 10, lines, 1.25, 0.02, {"facts": 10}))
    keep(SavepointMade("orders", 5, "/savepoints/orders-5"))
    keep(JobStopped("orders", "no space"))
    before = snapshot(job_folder.root)
    result = show(job_folder.root, "--history")
    assert (result.exit_code, result.stderr) == (0, "")
    at = local_time(1_700_000_000_000)
    assert result.stdout.splitlines() == [
        f"{at} generation 3 has taken the job over",
        f"{at} 10 records read since the start, lag 1,310",
        f"{at} checkpoint 5 (3.1) declined, trying again: CHECKPOINT_EXPIRED: slow",
        (
            f"{at} checkpoint 5 committed: 10 rows in 1.25 s (protocol 20 ms), lag 1,310; "
            "at orders-0:5"
        ),
        f"{at} savepoint of checkpoint 5 made in /savepoints/orders-5",
        f"{at} failed: no space",
    ]
    as_json = show(job_folder.root, "--history", "--json").stdout.splitlines()
    assert json.loads(as_json[3])["offsets"] == ["orders-0:5"]
    assert json.loads(as_json[0]) == {
        "at": "2023-11-14T22:13:20.000+00:00",
        "event": "RecoveryStarted",
        "job": "orders",
        "generation": 3,
    }
    assert snapshot(job_folder.root) == before


def test_the_history_says_what_it_leaves_out(job_folder: JobFolder) -> None:
    assert show(job_folder.root, "--history").stdout == ""
    EventFile(job_folder.storage, At(0))(RecoveryStarted("orders", 3))
    job_folder.storage.append("events/0000000001", b'{"at": "20')
    result = show(job_folder.root, "--history")
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr.startswith("1 line left out: a driver was killed while it wrote")


class At(SystemClock):
    """Always at one moment."""

    def __init__(self, unix_ms: int) -> None:
        self._unix_ms = unix_ms

    def unix_ms(self) -> int:
        return self._unix_ms
