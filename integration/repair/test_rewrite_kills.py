"""`twophase repair rewrite` on MySQL and files, killed by SIGKILL: run again, it ends exact,
nothing lost and nothing twice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from harness.job_command import CONF, Command
from integration.kafka.topics import Topics
from integration.mysql.sink_harness import MySqlHarness
from integration.repair.world import REASON
from twophase.cli.checkpoint_list import read_checkpoints
from twophase.state.journal.entries import Rewrite
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("repair"), pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 50


class World(Command):
    """A topic of two partitions, a table and a folder of files."""

    def __init__(self, root: Path, left: ExitStack, topics: Topics, mysql: MySqlService) -> None:
        self.topics, self.topic, self.produced = topics, topics.create(2), 0
        self.table = MySqlHarness(mysql, "id BIGINT")
        url = mysql.url(self.table.database)
        facts = {
            "url": url,
            "table": "target",
            "password_env": self.table._variable,
            "fence_timeout": "20 s",
        }
        options = {
            "kafka.bootstrap.servers": topics.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "value.format": "json",
        }
        super().__init__(
            root, left, {"format": "twophase-kafka", "schema": "id long", "options": options}
        )
        job = yaml.safe_load((root / "job.yaml").read_text())
        job["sql"] = "select id from source where id >= 0"
        job["spark"]["conf"] = CONF
        job["sinks"] = {
            "facts": {"type": "mysql", "options": facts},
            "lake": {
                "type": "file",
                "options": {"path": str(root / "lake"), "format": "json"},
                "sql": "select id from rows",
            },
        }
        (root / "job.yaml").write_text(yaml.safe_dump(job))
        self.produce()

    def produce(self) -> None:
        for partition in (0, 1):
            ids = range(self.produced, self.produced + ROWS)
            self.topics.send(self.topic, [b'{"id": %d}' % number for number in ids], partition)
            self.produced += ROWS

    def lose_a_branch(self) -> None:
        """Checkpoint 0 is decided; one of its two branches is rolled back by hand."""
        code, _, err = self.run("--available-now", TWOPHASE_FAILPOINTS="C11=kill")
        assert code == -signal.SIGKILL, err
        branches = self.table.sql("XA RECOVER")
        assert len(branches) == 2
        form, length, _, data = branches[1]
        self.table.sql(f"XA ROLLBACK '{data[:length]}','{data[length:]}',{form}")

    def rewrite(self, **environment: str) -> tuple[int, str, str]:
        options = ("--checkpoint", "0", "--sink", "facts", "--yes", "--reason", REASON)
        return self.run(*options, command=("repair", "rewrite"), **environment)

    def exact(self) -> None:
        self.produce()
        code, _, err = self.run("--available-now")
        assert code == 0, err
        lake = [
            row
            for path in (self.root / "lake").glob("*.json")
            for row in path.read_text().splitlines()
        ]
        assert self.table.ids() == list(range(self.produced))
        assert sorted(int(row.partition(":")[2].strip(" }")) for row in lake) == list(
            range(self.produced)
        )
        assert self.table.sql("XA RECOVER") == []
        (repair,) = read_checkpoints(str(self.root / "job")).history.repairs
        assert isinstance(repair, Rewrite)
        assert (repair.rows, repair.note.reason) == (ROWS, REASON)


@pytest.fixture
def world(tmp_path: Path, kafka: KafkaService, mysql: MySqlService) -> Iterator[World]:
    with ExitStack() as left, Topics(kafka.bootstrap_servers) as topics:
        made = World(tmp_path, left, topics, mysql)
        yield made


@pytest.mark.proof
def test_the_command_shows_what_it_would_write_and_writes_it(world: World) -> None:
    world.lose_a_branch()
    code, _, err = world.run("--available-now")
    assert (code, "twophase repair rewrite" in err) == (3, True), err
    process = world.start("--checkpoint", "0", "--sink", "facts", command=("repair", "rewrite"))
    out, err = process.communicate()  # nobody answers
    assert process.returncode == 1, err
    assert f"To be written again: {ROWS} rows in 1 piece" in out
    assert f"- {world.topic}-" in out
    assert ":0 to 50 (source kafka)" in out
    code, out, err = world.rewrite()
    assert (code, "The rows are written again and committed." in out) == (0, True), err
    world.exact()
    code, _, err = world.rewrite()
    assert code in (2, 3), "where the job goes on by itself, nothing is written"


@pytest.mark.proof
@pytest.mark.parametrize("point", ["R01", "R02", "C05=kill_driver", "R04", "R05", "R03", "C14@2"])
def test_a_rewrite_that_is_killed_is_run_again(world: World, point: str) -> None:
    """C14: the branch that was not lost is committed first, then the one that is written again."""
    name, _, how = point.partition("=")
    name, _, hit = name.partition("@")
    arm = f"{name}={how or 'kill'}" + (f"@{hit}" if hit else "")
    world.lose_a_branch()
    code, _, err = world.rewrite(TWOPHASE_FAILPOINTS=arm)
    assert code == -signal.SIGKILL, err
    if not read_checkpoints(str(world.root / "job")).history.repairs:
        code, _, err = world.run("--available-now")
        assert (code, "LostCommittableError" in err) == (3, True), err
        code, _, err = world.rewrite()
        assert code == 0, err
    world.exact()
