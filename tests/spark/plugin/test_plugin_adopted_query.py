"""A query of the plugin form whose log is old, damaged or gone:
`twophase repair adopt-from-target`, and it goes on. No Spark, no server.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.spark.plugin.plugin_world import ENVIRONMENT, SCHEMA
from twophase.cli.main import main
from twophase.contract.committable import Committable
from twophase.contract.source import SourceLeg
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    CorruptRecordError,
    OffsetMismatchError,
    TargetChangedError,
)
from twophase.ids import Subtask
from twophase.internals import failpoints
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plugin import job as job_module
from twophase.spark.plugin.description import describe
from twophase.spark.plugin.job import Acknowledged, Plan, PluginJob, job_of
from twophase.spark.plugin.source import SinkDataSource
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

PARTITIONS = "spark.sql.shuffle.partitions"


OTHER = '{{"next":{}}}'
KAFKA = '{{"orders":{{"0":{}}}}}'
TWOPHASE_KAFKA = (
    '{{"version":1,"source":"kafka","partitions":[{{"topic":"orders","topic_id":"x","partition":0,'
    '"offset":{},"leader_epoch":0}}],"begin":{},"released":[]}}'
)


def at(offset: int) -> str:
    """`startingOffsets`, and a line of Spark's own source."""
    return KAFKA.format(offset)


def entries(offset: int) -> str:
    """Where `twophase-kafka` has begun."""
    return json.dumps(json.loads(TWOPHASE_KAFKA.format(offset, "null"))["partitions"])


class Written(SinkDataSource):
    """The format of the query, in the process that starts it."""

    sink_type, environment = "file", ENVIRONMENT


class Query:
    """A query that writes the records of one partition to files, and Spark as it would run it.

    As with `twophase-kafka`, micro-batch 0 has no records and ends where the query begins; that of
    Spark's `kafka` has, and its beginning is noted elsewhere.

    Attributes:
        starting: where the query really begins.
        begins: its `startingOffsets`, if they are not that number.
        is_seen: whether its `start()` is that of a registered session in the driver's process.
        format: its source, in the job file too.
        records: in each later micro-batch.
        line: what Spark notes as an offset, of where a micro-batch ends and where the first began.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.folder, self.lake = root / "chk", root / "lake"
        self.log = self.folder / "twophase"
        self.starting, self.records = 0, 10
        self.line = OTHER
        self.format, self.begins, self.is_seen = "twophase-kafka", "", True
        self._compared: dict[str, str] = {}
        self._tasks = 0
        self._patch = monkeypatch
        self._jobs: list[PluginJob] = []
        self.lake.mkdir()
        self.application("first")

    # -- Spark -------------------------------------------------------------------------------------

    def application(self, name: str) -> None:
        """From here on this application runs the query."""
        local = self.root / f"blockmgr-{name}"
        local.mkdir(exist_ok=True)
        self._patch.setenv("SPARK_LOCAL_DIRS", str(local))

    def run(self, batches: int = 1) -> None:
        """A start, and so many micro-batches with records; first the one without, if
        the folder is new.
        """
        options = {"startingOffsets": self.begins or at(self.starting)}
        self._compared = {}
        if self.is_seen:
            sources = [SourceLeg(self.format, options)]
            written = Written(self._options())
            self._compared = written.compare(SCHEMA, "append", lambda: sources)
        self._open_folder()
        done = 0
        while done < batches:
            number = self._next()
            start, end = self._offsets(number - 1), self._offsets(number)
            plan = self._job().plan()
            tasks = (
                [Acknowledged(plan.attempt, self._piece(plan, range(start, end)))]
                if number or end > start
                else []
            )
            self._job().commit(number, tasks)
            (self.folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            done += end > start or number > 0

    def _open_folder(self) -> None:
        for name in ("offsets", "commits"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "metadata").exists():
            (self.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    def _next(self) -> int:
        """The micro-batch that Spark runs next; it freezes its offsets, if they are not."""
        planned, finished = (
            max((int(path.name) for path in (self.folder / log).glob("[0-9]*")), default=-1)
            for log in ("offsets", "commits")
        )
        if planned > finished:
            return planned
        number = planned + 1
        begin = self._offsets(planned)
        end = begin + (self.records if number or self.format == "kafka" else 0)
        if number == 0 and self.format == "kafka":
            noted = self.folder / "sources" / "0" / "0"
            noted.parent.mkdir(parents=True, exist_ok=True)
            noted.write_bytes(b"\0v1\n" + at(begin).encode())
        header = json.dumps(
            {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {PARTITIONS: "7", "other": "1"}}
        )
        (self.folder / "offsets" / str(number)).write_text(
            "\n".join(["v1", header, self.line.format(end, "null" if number else entries(begin))])
        )
        return number

    def _offsets(self, number: int) -> int:
        if number < 0:
            return self.starting
        line = (self.folder / "offsets" / str(number)).read_text().split("\n")[2]
        return int(re.findall(r'"(?:next|logOffset|offset|0)": ?(\d+)', line)[0])

    def _options(self) -> dict[str, str]:
        return {
            "name": "orders",
            "checkpointlocation": str(self.folder),
            "path": str(self.lake),
            "format": "json",
        }

    def _job(self) -> PluginJob:
        """In a process of its own."""
        job_module._jobs.clear()
        options = self._options() | self._compared
        self._jobs.append(job_of(describe("twophase-file", "file", options, SCHEMA, ENVIRONMENT)))
        return self._jobs[-1]

    def _piece(self, plan: Plan, ids: range) -> Committable | None:
        if plan.transaction is None:
            return None
        self._tasks += 1
        writer = plan.writers(plan.transaction, Subtask(0, self._tasks))
        writer.write(pa.RecordBatch.from_pydict({"id": list(ids)}))
        return writer.pre_commit()

    def close(self) -> None:
        for job in self._jobs:
            job.close()

    # -- the operator ------------------------------------------------------------------------------

    def repair(self, *arguments: str, location: Path | None = None, **options: str) -> Result:
        """`twophase repair adopt-from-target`, said yes to."""
        schema = {} if self.format == "kafka" else {"schema": "id long"}
        source = {"format": self.format, "options": options, **schema}
        sinks = {"file": {"type": "file", "options": {"path": str(self.lake), "format": "json"}}}
        given = {"checkpointLocation": str(location or self.log)}
        job_file = self.root / "job.yaml"
        job_file.write_text(
            yaml.safe_dump({"name": "orders", "source": source, "sinks": sinks, "options": given})
        )
        command = [
            "repair",
            "adopt-from-target",
            str(job_file),
            *arguments,
            "--yes",
            "--reason",
            "lost",
        ]
        return CliRunner().invoke(main, command)

    def repair_dies(self) -> None:
        """The same, killed when the log has adopted it."""
        with killed_at("R03"):
            assert self.repair().exit_code == 1

    def back_up(self) -> Path:
        """A copy of the log's folder."""
        return shutil.copytree(self.log, self.root / "backup")

    def restore_backup(self, backup: Path) -> None:
        """The log's folder as it was."""
        shutil.rmtree(self.log)
        backup.rename(self.log)

    # -- what is there -----------------------------------------------------------------------------

    def ids(self) -> list[int]:
        """What readers see."""
        rows = [row for path in self.lake.glob("*.json") for row in path.read_text().splitlines()]
        return sorted(json.loads(row)["id"] for row in rows)

    def history(self) -> History:
        """What the log says."""
        return JobLog(LocalStorage(self.log), "orders").read()


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
        patch.setattr(failpoints, "_hits", {})
        yield


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path, monkeypatch)


def damage_log(query: Query) -> None:
    query.run(2)
    newest = max((query.log / "log").iterdir())
    newest.write_bytes(newest.read_bytes()[:-3])


def lose_log(query: Query) -> None:
    query.run(2)
    shutil.rmtree(query.log)


def lose_body(query: Query) -> None:
    query.run(2)
    shutil.rmtree(query.log / query.history().decisions[-1].folder)


def restore_log(query: Query) -> None:
    query.run(1)
    backup = query.back_up()
    query.run(1)
    query.restore_backup(backup)


LOST = {
    "the log is damaged": (damage_log, CorruptRecordError),
    "the log is gone": (lose_log, CheckpointMissingError),
    "the body of the newest checkpoint is gone": (lose_body, CheckpointMissingError),
    "the log was restored from a backup": (restore_log, CheckpointMissingError),
}


@pytest.mark.parametrize("name", LOST)
def test_where_spark_s_folder_is_whole_the_query_goes_on_where_the_newest_checkpoint_ended(
    query: Query, name: str
) -> None:
    provoke, error = LOST[name]
    provoke(query)
    query.application("second")
    with pytest.raises(error):
        query.run()
    if error is CorruptRecordError:
        (query.log / "log").rename(query.log / "log.damaged")
    result = query.repair()
    assert result.exit_code == 0, result.output
    assert "Start the query." in result.output
    query.run(2)
    assert query.ids() == list(range(40))
    query.application("third")
    query.run()
    assert query.ids() == list(range(50))
    assert query.repair().exit_code == 3, "the query goes on by itself"
    assert query.ids() == list(range(50))


def lose_folder(query: Query) -> None:
    """All of it; then a start, of which Spark has frozen the first offsets: those of
    the very beginning.
    """
    query.run(2)
    query.application("second")
    shutil.rmtree(query.folder)
    with pytest.raises(CheckpointMissingError, match="the checkpoint store is empty"):
        query.run()


def test_where_all_is_gone_the_query_begins_at_the_offsets_that_the_operator_gives(
    query: Query,
) -> None:
    lose_folder(query)
    # as many micro-batches as were adopted, of another query: they tell nothing
    for number in (1, 2):
        shutil.copy(query.folder / "offsets" / "0", query.folder / "offsets" / str(number))
    assert query.repair().exit_code == 2
    result = query.repair("--from-starting-offsets", startingOffsets='{"orders":{"0":20}}')
    assert (
        result.exit_code,
        "Set the same startingOffsets on the query itself: with others it is refused."
        in result.output,
    ) == (0, True)
    query.starting = 20
    query.run(2)
    assert query.ids() == list(range(40))
    kept = [
        json.loads(path.read_text().split("\n")[2])
        for path in query.log.glob("replaced/*/offsets/0")
    ]
    assert kept == [{"next": 0}], "the micro-batch that would have been run otherwise"


# -- where it begins -------------------------------------------------------------------------------


def adopted(query: Query, form: str, confirmed: str) -> None:
    """Everything was gone but the rows 0 to 19, and the operator has said where to go on."""
    query.format, query.line = ("kafka", KAFKA) if form == "kafka" else (query.format, form)
    query.run(2)
    shutil.rmtree(query.folder)
    query.folder.mkdir()
    query.application("second")
    with pytest.raises(CheckpointMissingError):
        query.run()
    result = query.repair("--from-starting-offsets", startingOffsets=confirmed)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        (TWOPHASE_KAFKA, "earliest"),
        (TWOPHASE_KAFKA, "timestamp:1700000000000"),
        (TWOPHASE_KAFKA, at(19)),
        ("kafka", "latest"),
        (OTHER, "earliest"),
    ],
)
def test_a_query_that_was_not_changed_as_was_confirmed_is_refused_by_start(
    query: Query, form: str, begins: str
) -> None:
    adopted(query, form, at(20))
    query.begins = begins
    with pytest.raises(ConfigError) as caught:
        query.run()
    uid = "" if form == "kafka" else " of the source with uid kafka"
    assert f"now it begins at startingOffsets{uid} {begins}." in caught.value.what
    assert (
        caught.value.remedy
        == f"until the first checkpoint is made, set startingOffsets{uid} {at(20)}."
    )
    assert not [*query.folder.glob("offsets/*")], "what Spark plans it does not plan again"
    query.begins, query.starting = "", 20
    query.run(2)
    assert query.ids() == list(range(40))
    query.begins = "earliest"
    query.run()
    assert query.ids() == list(range(50)), "after its first checkpoint"


@pytest.mark.parametrize(
    ("form", "begins"),
    [(TWOPHASE_KAFKA, 0), (TWOPHASE_KAFKA, 21), ("kafka", 0), ("kafka", 10), ("kafka", 21)],
)
def test_where_nobody_sees_its_start_it_is_refused_by_what_spark_has_planned(
    query: Query, form: str, begins: int
) -> None:
    """As over Spark Connect, and in a pipeline."""
    adopted(query, form, at(20))
    query.is_seen, query.starting = False, begins
    for _ in range(2):
        with pytest.raises(
            OffsetMismatchError, match="planned its first micro-batch from"
        ) as caught:
            query.run()
        query.starting = 20  # Spark goes on with what it has planned
    assert "run `twophase repair adopt-from-target JOB.yaml --from-starting" in caught.value.remedy
    query.is_seen = True
    with pytest.raises(OffsetMismatchError, match="planned its first micro-batch from"):
        query.run()
    result = query.repair("--from-starting-offsets", startingOffsets=at(20))
    assert result.exit_code == 0, result.output
    query.is_seen = False
    query.run(2)
    assert query.ids() == list(range(40))


@pytest.mark.parametrize(
    ("form", "confirmed", "remedied"),
    [
        (TWOPHASE_KAFKA, "timestamp:1700000000000", at(20)),
        (TWOPHASE_KAFKA, '{"orders":{"0":-1}}', at(20)),
        ("kafka", "latest", at(20)),
        (OTHER, at(20), at(20)),
    ],
)
def test_what_spark_s_offsets_do_not_tell_is_refused_unless_start_has_seen_it(
    query: Query, form: str, confirmed: str, remedied: str
) -> None:
    adopted(query, form, confirmed)
    query.is_seen, query.begins, query.starting = False, confirmed, 20
    with pytest.raises(OffsetMismatchError, match="do not tell whether it does") as caught:
        query.run()
    assert "set the offset of every partition in JOB.yaml and on the query" in caught.value.remedy
    result = query.repair("--from-starting-offsets", startingOffsets=remedied)
    assert result.exit_code == 0, result.output
    query.begins, query.is_seen = remedied, form == OTHER
    query.run(2)
    assert query.ids() == list(range(40))


def test_an_earlier_start_that_has_planned_it_is_told_where_nothing_can_be_compared(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    adopted(query, TWOPHASE_KAFKA, "timestamp:17")
    query.is_seen, query.begins, query.starting = False, "earliest", 20
    with pytest.raises(OffsetMismatchError):
        query.run()
    assert "an earlier start has planned" not in caplog.text
    query.is_seen, query.begins = True, "timestamp:17"
    query.run()
    assert "an earlier start has planned its first micro-batch" in caplog.text
    assert query.ids() == list(range(30))


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_query_of_which_the_target_has_nothing_begins_as_a_new_one(
    query: Query, is_seen: bool
) -> None:
    """A driver has taken the target over, and has written no row."""
    query.line = TWOPHASE_KAFKA
    with killed_at("C01"), pytest.raises(failpoints.FailpointError):
        query.run()
    shutil.rmtree(query.folder)
    query.application("second")
    with pytest.raises(CheckpointMissingError, match="has seen generation"):
        query.run()
    result = query.repair(startingOffsets="earliest")
    assert result.exit_code == 0, result.output
    query.begins, query.is_seen = "earliest", is_seen
    query.run(2)
    assert query.ids() == list(range(20))


def test_what_was_adopted_has_to_be_in_the_target_from_then_on(query: Query) -> None:
    damage_log(query)
    (query.log / "log").rename(query.log / "log.damaged")
    assert query.repair().exit_code == 0
    shutil.rmtree(query.lake)
    query.lake.mkdir()
    query.application("second")
    with pytest.raises(TargetChangedError, match="checkpoint 2 of lineage"):
        query.run()


def test_an_old_folder_of_spark_is_restored_as_it_was_after_the_newest_checkpoint(
    query: Query,
) -> None:
    query.run(1)
    old = shutil.copytree(query.folder, query.root / "old")
    query.run(2)
    backup = shutil.copytree(query.folder, query.root / "backup")
    for name in ("offsets", "commits"):
        shutil.rmtree(query.folder / name)
        shutil.copytree(old / name, query.folder / name)
    query.application("second")
    with pytest.raises(OffsetMismatchError, match="does not match the checkpoint store") as caught:
        query.run()
    assert "restore what Spark has in the query's checkpointLocation" in caught.value.remedy
    for path in query.folder.iterdir():
        if path.name != "twophase":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(backup, query.folder, ignore=lambda *_: ["twophase"], dirs_exist_ok=True)
    query.application("third")
    query.run()
    assert query.ids() == list(range(40))


# -- a repair that is not whole --------------------------------------------------------------------


def dies_before_the_folder(query: Query) -> None:
    lose_log(query)
    query.repair_dies()


def dies_within_the_folder(query: Query) -> None:
    """And a start follows, for which Spark makes what it misses."""
    dies_before_the_folder(query)
    for name in ("offsets", "commits"):
        (query.folder / name).rename(query.root / name)


def dies_before_spark_s_id(query: Query) -> None:
    lose_log(query)
    assert query.repair().exit_code == 0
    (query.folder / "metadata").unlink()


@pytest.mark.parametrize(
    "provoke", [dies_before_the_folder, dies_within_the_folder, dies_before_spark_s_id]
)
def test_a_repair_that_died_is_run_again_and_until_then_nothing_is_written(
    query: Query, provoke: object
) -> None:
    assert callable(provoke)
    provoke(query)
    query.application("second")
    with pytest.raises(OffsetMismatchError) as caught:
        query.run()
    assert "twophase repair adopt-from-target JOB.yaml" in caught.value.remedy
    assert query.ids() == list(range(20))
    result = query.repair()
    assert (result.exit_code, '- {"next": 20}' in result.output) == (0, True), result.output
    query.run()
    assert query.ids() == list(range(30))
    assert query.repair().exit_code == 3


@pytest.mark.parametrize("is_started", [False, True])
@pytest.mark.parametrize("step", ["offsets", "commits", "metadata", "prepare"])
def test_a_repair_that_died_while_it_wrote_spark_s_folder_is_run_again(
    query: Query, monkeypatch: pytest.MonkeyPatch, step: str, is_started: bool
) -> None:
    lose_log(query)
    with monkeypatch.context() as patch:
        rename = Path.rename

        def dies(self: Path, target: Path) -> Path:
            if self == query.folder / step:
                raise failpoints.FailpointError
            return rename(self, target)

        patch.setattr(Path, "rename", dies)
        if step == "prepare":
            patch.setattr(
                SparkFolder, "prepare", lambda *_: dies(query.folder / step, query.folder)
            )
        assert query.repair().exit_code == 1
    query.application("second")
    if is_started:
        with pytest.raises(OffsetMismatchError):
            query.run()
    result = query.repair()
    assert (result.exit_code, "Start the query." in result.output) == (0, True), result.output
    query.run()
    assert query.ids() == list(range(30))
    header = (query.folder / "offsets" / "0").read_text().split("\n")[1]
    assert json.loads(header)["conf"] == {PARTITIONS: "7"}


def test_a_repair_that_saw_no_folder_of_spark_is_run_again_after_a_start(query: Query) -> None:
    query.run(2)
    shutil.rmtree(query.folder)
    query.folder.mkdir()
    flag, offsets = "--from-starting-offsets", '{"orders":{"0":20}}'
    assert query.repair(flag, startingOffsets=offsets).exit_code == 0
    query.starting = 20
    query.application("second")
    with pytest.raises(OffsetMismatchError, match="belongs to query"):
        query.run()
    assert query.repair(flag, startingOffsets=offsets).exit_code == 0
    query.run()
    assert query.ids() == list(range(30))


def test_a_folder_is_not_written_again_once_something_of_the_lineage_is_decided(
    query: Query,
) -> None:
    lose_log(query)
    assert query.repair().exit_code == 0
    query.application("second")
    query.run()
    (query.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    assert query.repair().exit_code == 3
    assert (query.folder / "offsets" / "1").exists()


# -- a log that was adopted, and is old itself -----------------------------------------------------


def test_after_a_restore_of_an_adopted_log_everything_in_the_target_is_adopted(
    query: Query,
) -> None:
    lose_log(query)
    assert query.repair().exit_code == 0
    backup = query.back_up()
    query.application("second")
    query.run(2)
    query.restore_backup(backup)
    query.application("third")
    with pytest.raises(CheckpointMissingError):
        query.run()
    result = query.repair()
    assert (result.exit_code, '- {"next": 40}' in result.output) == (0, True), result.output
    query.run()
    assert query.ids() == list(range(50))


@pytest.mark.parametrize("records", [0, 10])
def test_what_a_restored_log_does_not_know_as_decided_is_shown(query: Query, records: int) -> None:
    """Micro-batch 1 of the new lineage is committed, with or without rows; 2 is
    decided and no more.
    """
    lose_log(query)
    assert query.repair().exit_code == 0
    backup = query.back_up()
    query.application("second")
    query.records = records
    query.run(1)
    query.records = 10
    with killed_at("C11"), pytest.raises(failpoints.FailpointError):
        query.run(1)
    query.restore_backup(backup)
    query.application("third")
    with pytest.raises(CheckpointMissingError):
        query.run()
    result = query.repair()
    assert result.exit_code == 0, result.output
    assert re.search(r"file .* up to \d +- +2: \d+\.\d+/0", result.output), (
        "what the next start aborts"
    )
    query.run(2)
    assert query.ids() == list(range(40 + records))


def test_pieces_that_wait_of_the_lineage_that_was_adopted_are_shown(query: Query) -> None:
    """Nothing else tells whether the log is old or a task has pre-committed."""
    lose_log(query)
    assert query.repair().exit_code == 0
    query.application("second")
    with killed_at("C06"), pytest.raises(failpoints.FailpointError):
        query.run()
    (query.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    result = query.repair()
    assert result.exit_code == 0, result.output
    assert re.search(r"file .* up to 2 +- +1: \d+\.\d+/0", result.output)
    query.application("third")
    query.run()
    assert query.ids() == list(range(30))


# -- what is refused -------------------------------------------------------------------------------


def test_spark_s_folder_in_the_place_of_the_log_s_is_refused_and_the_right_one_named(
    query: Query,
) -> None:
    query.run(2)
    for gone in (False, True):
        result = query.repair(location=query.folder)
        output = " ".join(result.output.split())
        assert (result.exit_code, f"give {query.log} as checkpointLocation." in output) == (
            2,
            True,
        ), output
        assert not (query.folder / "log").exists()
        if not gone:
            shutil.rmtree(query.log)


def test_an_adoption_that_took_spark_s_folder_for_the_log_s_is_not_made_twice(query: Query) -> None:
    query.run(2)
    shutil.rmtree(query.log)
    (query.folder / "log").mkdir()
    result = query.repair(
        "--from-starting-offsets", location=query.folder, startingOffsets='{"orders":{"0":20}}'
    )
    output = " ".join(result.output.split())
    assert (result.exit_code, f"give {query.log} as checkpointLocation." in output) == (2, True), (
        output
    )


def test_a_job_of_write_stream_whose_folder_is_called_like_the_log_is_none_of_this_form(
    query: Query,
) -> None:
    query.run(2)
    (query.log / "spark").mkdir()
    shutil.rmtree(query.log / "log")
    result = query.repair("--from-starting-offsets", startingOffsets='{"orders":{"0":20}}')
    assert (result.exit_code, "twophase run" in result.output) == (0, True), result.output
    assert (query.folder / "offsets" / "2").exists()


def test_a_query_that_keeps_state_does_not_begin_without_it(query: Query) -> None:
    query.run(2)
    (query.folder / "ranges").mkdir()  # as the listener does when such a query starts
    backup = shutil.copytree(query.folder, query.root / "backup")
    shutil.rmtree(query.log)
    assert query.repair().exit_code == 0
    (query.folder / "ranges").mkdir()
    query.application("second")
    with pytest.raises(ConfigError, match="holds nothing of the state") as caught:
        query.run()
    assert (
        "restore the query's checkpointLocation from one backup, and start" in caught.value.remedy
    )
    assert query.ids() == list(range(20))
    shutil.rmtree(query.folder)
    backup.rename(query.folder)
    query.application("third")
    with pytest.raises(CheckpointMissingError, match="has seen generation") as missed:
        query.run()
    assert "twophase repair adopt-from-target JOB.yaml" in missed.value.remedy
    assert query.repair().exit_code == 0
    query.run()
    assert query.ids() == list(range(30))


@pytest.mark.parametrize("is_another", [False, True])
def test_state_in_spark_s_folder_is_refused_before_anything_is_written(
    query: Query, is_another: bool
) -> None:
    query.run(2)
    (query.folder / "state" / "0" / "0").mkdir(parents=True)
    backup = shutil.copytree(query.folder, query.root / "backup")
    shutil.rmtree(query.log)
    if is_another:
        (query.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    result = query.repair("--from-starting-offsets", startingOffsets='{"orders":{"0":20}}')
    assert (result.exit_code, "holds the state" in result.output) == (2, True), result.output
    assert "restore the job's folder from a backup" in " ".join(result.output.split())
    assert query.history() == History()
    shutil.rmtree(query.folder)
    backup.rename(query.folder)
    query.application("second")
    query.run()
    assert query.ids() == list(range(30))


def test_a_source_of_files_whose_list_spark_keeps_is_refused(query: Query) -> None:
    query.line = '{{"logOffset":{}}}'
    query.run(2)
    backup = shutil.copytree(query.folder, query.root / "backup")
    shutil.rmtree(query.log)
    result = query.repair()
    assert (result.exit_code, "a folder of files" in result.output) == (2, True), result.output
    assert "restore the whole checkpointLocation" in " ".join(result.output.split())
    assert query.history() == History()
    shutil.rmtree(query.folder)
    backup.rename(query.folder)
    query.application("second")
    query.run()
    assert query.ids() == list(range(30))


def test_the_folder_has_the_setting_that_spark_compares(query: Query) -> None:
    lose_log(query)
    header = query.folder / "offsets" / "2"
    text = header.read_text()
    header.write_text(text.replace(f'"{PARTITIONS}": "7", ', ""))
    result = query.repair()
    assert (result.exit_code, "start the query once" in result.output) == (2, True), result.output
    query.application("second")
    with pytest.raises(CheckpointMissingError):
        query.run()
    assert query.repair().exit_code == 0
    _, header_line, line = (query.folder / "offsets" / "0").read_text().split("\n")
    assert (json.loads(header_line)["conf"], line) == ({PARTITIONS: "7"}, '{"next":20}')
    query.run()
    assert query.ids() == list(range(30))
