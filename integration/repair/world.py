"""A job with a table on a server and a folder of files, without Spark, that tests break and
the command repairs.
"""

from __future__ import annotations

import gc
import os
import shutil
import warnings
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result

from harness import order_files
from harness.memory_driver import (
    JOB,
    SCHEMA,
    Driver,
    completed_of,
    offsets,
    open_sinks,
)
from integration.mysql.sink_harness import TABLES, MySqlHarness, Server, xid_sql
from twophase.cli.main import main
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import Write
from twophase.ids import Subtask
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError
from twophase.sinks.file.sink import FileSink
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

REASON = "it was rolled back by hand"


class World:
    """One job: checkpoint n writes the ids 10 n to 10 n + 9, half of them in each of two
    pieces, into both sinks.

    Args:
        root: a folder for everything.
        server: of the table.
        left: closes what is left open.
    """

    def __init__(self, root: Path, server: Server, left: ExitStack) -> None:
        self.root = root
        self.folder = root / "job"
        self.table = MySqlHarness(server, "id BIGINT", SCHEMA)
        self.lake = root / "lake"
        self._left = left
        self.job_file = root / "job.yaml"
        self.write_job_file()

    def write_job_file(self, **options: str) -> None:
        """The job as `twophase run` would take it."""
        url = self.table.server.url(self.table.database)
        facts = {
            "url": url,
            "table": "target",
            "password_env": self.table._variable,
            "fence_timeout": "10 s",
        }
        sinks = {
            "facts": {"type": "mysql", "options": facts},
            "lake": {"type": "file", "options": {"path": str(self.lake), "format": "json"}},
        }
        source = {"format": "twophase-kafka", "schema": "id long", "options": options}
        job = {
            "name": JOB,
            "source": source,
            "sinks": sinks,
            "options": {"checkpointLocation": str(self.folder)},
        }
        self.job_file.write_text(yaml.safe_dump(job))

    def driver(self) -> Driver:
        """A driver that has not recovered."""
        lake = FileSink(path=str(self.lake), format="json")
        sinks = open_sinks({"facts": self.table.new_sink(), "lake": lake})
        for sink in sinks.values():
            self._left.callback(sink.close)
        return Driver(self.folder, {}, sinks=sinks)

    def dies(self, number: int, point: str, driver: Driver | None = None) -> Driver:
        """A driver dies in a checkpoint, at a crash point."""
        driver = driver or self.driver().recover()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
            patch.setattr(failpoints, "_hits", {})
            with pytest.raises(FailpointError):
                driver.run(number)
        return driver

    def roll_back(self, number: int, *indices: int) -> None:
        """Somebody rolls branches of a decided checkpoint back by hand."""
        for index in indices:
            self.table.sql(
                "XA ROLLBACK "
                f"{xid_sql(completed_of(self.folder, number).committables['facts'][index])}"
            )

    def staged(self) -> list[Path]:
        """The folders of the pieces that are staged in the lake."""
        return sorted(Path(path) for path in order_files.staged(self.lake))

    def remove_staged(self, *indices: int) -> None:
        """Somebody deletes staged pieces by hand."""
        pieces = self.staged()
        for index in indices:
            shutil.rmtree(pieces[index])

    def run(self, *arguments: str) -> Result:
        """The command, in this process."""
        return CliRunner().invoke(main, [*arguments])

    def repair(self, name: str, *arguments: str) -> Result:
        """`twophase repair NAME JOB.yaml ...`, said yes to."""
        return self.run("repair", name, str(self.job_file), *arguments, "--yes", "--reason", REASON)

    def repair_forked(self, name: str, *arguments: str, arm: str = "") -> int:
        """The same in a process of its own, which a crash point may kill; its exit status as
        `subprocess` has it.

        Forked, because a Python that imports everything again costs half a minute where
        tests run side by side.
        """
        with warnings.catch_warnings():
            # of threads: the command takes no lock of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            gc.freeze()  # a client that is garbage would wait for threads that are not here
            failpoints.arm(arm)
            os._exit(self.repair(name, *arguments).exit_code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def history(self) -> History:
        """What the log says."""
        return JobLog(LocalStorage(self.folder), JOB).read()

    def body(self, number: int) -> Path:
        """The folder of a decided checkpoint's body."""
        return self.folder / next(
            one.folder for one in self.history().decisions if one.checkpoint == number
        )

    def freeze(self, newest: int) -> None:
        """Spark has planned the micro-batches up to this one, in the folder of
        the current lineage.
        """
        lineage = self.history().lineage
        assert lineage is not None
        folder = self.folder / "spark" / lineage.id / "offsets"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(newest + 1):
            (folder / str(number)).write_text(
                "\n".join(["v1", "{}", *map(str, offsets(number).end)])
            )

    def back_up_folder(self) -> None:
        """As it is now."""
        shutil.copytree(self.folder, self.root / "backup")

    def restore_folder(self) -> None:
        """To that backup."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.root / "backup", self.folder)

    def restore_folder_in_commit(self) -> None:
        """To a backup taken before checkpoint 1. Its driver died when the table had committed it,
        and the files had not.
        """
        self.driver().recover().run(0)
        self.freeze(1)
        self.back_up_folder()
        facts = self.dies(1, "C11").sinks["facts"]
        facts.commit([CommitRequest(piece) for piece in facts.in_doubt()])
        self.restore_folder()

    def back_up_table(self) -> None:
        """With its bookkeeping, as a backup of the database would."""
        for table in TABLES:
            self.table.sql(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}")

    def restore_table(self) -> None:
        """To that backup."""
        for table in TABLES:
            self.table.sql(f"DELETE FROM {table}")
            self.table.sql(f"INSERT INTO {table} SELECT * FROM backup_{table}")

    def start(self) -> Driver:
        """A start, up to the query."""
        driver = self.driver().recover()
        newest = driver.coordinator.newest()
        if newest is not None:
            driver.context.store.read(newest)
        return driver

    def start_and_write(self, ids: range) -> None:
        """A start, and one more checkpoint with these ids, where the lineage is."""
        driver = self.start()
        coordinator = driver.coordinator
        newest = coordinator.newest()
        number = newest.checkpoint + 1 if newest else coordinator.lineage.first_checkpoint
        begin = (
            coordinator.context.store.read(newest).offsets.end
            if newest
            else coordinator.lineage.start or (None,)
        )
        frozen = FrozenOffsets(tuple(begin), (f'{{"next":{ids.stop}}}',))
        assert coordinator.lineage.start in ((), ('{"next":20}',)), (
            "it begins where the newest checkpoint ended"
        )

        def pre_commit(pending: PendingCheckpoint) -> None:
            for index, (name, sink) in enumerate(driver.sinks.items()):
                subtask = Subtask(0, pending.attempt.counter * 100 + index)
                writer = sink.writers()(pending.transaction(name), subtask)
                writer.write(
                    pa.RecordBatch.from_pylist([{"id": one} for one in ids], schema=SCHEMA)
                )
                piece = writer.pre_commit()
                assert piece is not None
                pending.acknowledge(name, [piece])

        assert isinstance(coordinator.classify(number, frozen), Write)
        coordinator.checkpoint(number, frozen, pre_commit)

    def ids(self) -> tuple[list[int], list[int]]:
        """What readers see: of the table, of the lake."""
        rows = [
            row
            for path in sorted(self.lake.glob("*.json"))
            for row in path.read_text().splitlines()
        ]
        return self.table.ids(), sorted(int(row.partition(":")[2].strip(" }")) for row in rows)
