"""One plain job under test: its input, its targets, its folder, and what must hold of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import checker, order_files
from harness.iceberg_places import Place, SqlitePlace
from harness.nemesis import Ended
from harness.query_folder import last_number
from integration.without_spark import source
from integration.without_spark.process import PlainDriver, Zygote
from integration.without_spark.targets import (
    FolderTarget,
    IcebergTarget,
    KafkaTarget,
    Pieces,
    RoutedKafkaTarget,
    RoutedStagedKafkaTarget,
    SqlTarget,
    StagedKafkaTarget,
    Target,
)
from twophase.state.files.storage import ReadOnlyStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.services.access import SqlAccess

BATCH = 20
TIMEOUT_S = 60
# The sinks of a job, in the order in which they commit, and what they write to.
TARGETS = {
    "mysql": ("mysql",),
    "mariadb": ("mariadb",),
    "files": ("files",),
    "iceberg": ("iceberg",),
    "kafka": ("kafka",),
    "staged_kafka": ("staged_kafka",),
    "two_servers": ("mysql", "mariadb"),
}
# An Iceberg table elsewhere than in main, or in another catalog than SQLite's.
CATALOGS = {
    kind: (kind,) for kind in ("iceberg_branch", "iceberg_mysql", "iceberg_hive", "iceberg_rest")
}
# One of the older format version.
VERSIONS = {"iceberg_v1": ("iceberg_v1",)}
TOPICS = {
    "kafka": KafkaTarget,
    "staged_kafka": StagedKafkaTarget,
    "routed_kafka": RoutedKafkaTarget,
    "routed_staged_kafka": RoutedStagedKafkaTarget,
}
"""The kinds of targets that are topics."""
SQL = ("mysql", "mariadb")
"""Those that are tables on a server."""


@dataclass(frozen=True)
class State:
    """All that a kill may leave, as an independent look finds it.

    Attributes:
        decided: decided checkpoints, from the job's log.
        committed: those that the log calls committed.
        planned: micro-batches with frozen offsets, from Spark's folder.
        returned: those that are noted as finished there.
        targets: what each target holds, in the order of the sinks.
    """

    decided: int
    committed: int
    planned: int
    returned: int
    targets: tuple[Pieces, ...]


class Scenario:
    """A job in a folder of its own.

    Args:
        zygote: forks its drivers.
        servers: by kind.
        kinds: of its targets, one for each sink.
        scratch: a folder for everything.
        options: of the job.
        brokers: of Kafka, if a target is a topic.
        places: gives a place in a kind of catalog, and a folder, if a target is in one.
    """

    def __init__(
        self,
        zygote: Zygote,
        servers: Mapping[str, SqlAccess],
        kinds: tuple[str, ...],
        scratch: Path,
        options: Mapping[str, Any] | None = None,
        brokers: str = "",
        places: Callable[[str, Path], Place] | None = None,
    ) -> None:
        self.job = f"plain-{uuid.uuid4().hex[:12]}"
        self.scratch = scratch
        self.location = scratch / "job"
        self.kinds = kinds
        self.produced = 0
        self.settings: dict[str, Any] = {}
        self._zygote = zygote
        self._drivers: list[PlainDriver] = []
        self._places = places
        self._input = scratch / "produced"
        source.produce(self._input, 0)
        self.targets: dict[str, Target] = {
            f"{kind}_orders": self.new_target(kind, servers, brokers) for kind in kinds
        }
        self._options: dict[str, Any] = {
            "restart.delay": "10 ms",
            "commit.backoff": "20 ms",
            **(options or {}),
        }
        self._base = {
            "job": self.job,
            "location": str(self.location),
            "produced": str(self._input),
            "batch": BATCH,
            "options": self._options,
            "sinks": {name: target.sink() for name, target in self.targets.items()},
        }

    def new_target(self, kind: str, servers: Mapping[str, SqlAccess], brokers: str) -> Target:
        """Make a target of a kind."""
        if kind == "files":
            return FolderTarget(self.scratch, self.job)
        if kind in ("iceberg", "iceberg_branch", *VERSIONS):
            place = SqlitePlace(self.scratch / "lake")
            branch = "audit" if kind == "iceberg_branch" else "main"
            return IcebergTarget(place, branch, 1 if kind in VERSIONS else 2)
        if kind.startswith("iceberg_") and self._places is not None:
            return IcebergTarget(self._places(kind.removeprefix("iceberg_"), self.scratch))
        if kind in TOPICS:
            return TOPICS[kind](brokers, self.job)
        return SqlTarget(servers[kind], self.scratch)

    def produce(self, batches: int) -> None:
        """Let there be the orders of so many more micro-batches."""
        self.produced += batches * BATCH
        source.produce(self._input, self.produced)

    def start(self, arm: str = "", **settings: Any) -> PlainDriver:
        """Start a driver."""
        driver = PlainDriver(
            self._zygote, self._base | self.settings | {"arm": arm} | settings, self.scratch
        )
        self._drivers.append(driver)
        return driver

    def run(self, arm: str = "", **settings: Any) -> Ended:
        """Run a driver until its input is used up."""
        return self.start(arm, **settings).wait(TIMEOUT_S)

    def change_options(self, options: Mapping[str, Any]) -> None:
        """Let later drivers have other options."""
        self.settings["options"] = {**self._options, **options}

    def finish(self) -> None:
        """A driver without failpoints ends cleanly, having written everything."""
        ended = self.run()
        assert ended.code == 0, f"exit code {ended.code}:\n{ended.output}"

    def end(self) -> None:
        """Leave no driver behind."""
        for driver in self._drivers:
            if driver.running:
                driver.kill()
        for target in self.targets.values():
            target.close()

    def history(self) -> History:
        """What the job's log says."""
        if not self.location.exists():
            return History()
        return JobLog(ReadOnlyStorage(self.location), self.job).read()

    def state(self) -> State:
        """What is there now."""
        history = self.history()
        lineage = history.lineage.id if history.lineage else None
        decided = max((decision.checkpoint for decision in history.decisions), default=-1)
        committed = max(
            (decision.checkpoint for decision in history.decisions if decision.committed),
            default=-1,
        )
        folder = self.location / "spark" / str(lineage)
        logs = [last_number(folder / log) + 1 for log in ("offsets", "commits")]
        pieces = tuple(target.pieces(lineage) for target in self.targets.values())
        return State(decided + 1, committed + 1, logs[0], logs[1], pieces)

    def check_state(self, expected: State) -> None:
        """It is so now."""
        found = self.state()
        assert found == expected, f"the state is\n{found}, expected\n{expected}"

    def records(self) -> dict[str, bytes]:
        """Every record of the job's log, as it lies there."""
        return {path.name: path.read_bytes() for path in (self.location / "log").glob("[0-9]*")}

    def wait_for(self, driver: PlainDriver, what: str, condition: Callable[[State], bool]) -> None:
        """Wait until the state is so, while the driver lives."""
        driver.wait_for(lambda: condition(self.state()), what, TIMEOUT_S)

    def verdict(self, name: str) -> checker.Verdict:
        """What the independent checker says of one target."""
        return checker.compare(order_files.written(self.produced), self.targets[name].rows())

    def verify(self) -> None:
        """Every record once in every sink, nothing prepared or staged left, what belongs
        to others untouched.
        """
        for name, target in self.targets.items():
            verdict = self.verdict(name)
            assert verdict.exact, f"{name}: {verdict}"
            assert verdict.produced == self.produced
            target.check_canary()
        checkpoints = self.produced // BATCH
        whole = tuple(Pieces(0, 0, self.produced) for _ in self.targets)
        self.check_state(State(checkpoints, checkpoints, checkpoints, checkpoints, whole))
        bodies = {path.name for path in (self.location / "chk").iterdir()}
        undecided = bodies - {
            decision.folder.removeprefix("chk/") for decision in self.history().decisions
        }
        assert not undecided, f"bodies of checkpoints that are not decided: {undecided}"

    def goes_on(self) -> None:
        """The next driver recovers what is there; one more checkpoint changes nothing else."""
        self.finish()
        self.verify()
        self.produce(1)
        self.finish()
        self.verify()
