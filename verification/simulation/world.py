"""One run: everything that is simulated, put together, and the real code put into it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.options import Endpoint
from verification.simulation.catalogue import Catalogue
from verification.simulation.client import Line, SimulatedSession
from verification.simulation.dialects import DIALECTS
from verification.simulation.disk import Disk
from verification.simulation.faults import Faults
from verification.simulation.files import Files
from verification.simulation.loads import Loads
from verification.simulation.options import Options
from verification.simulation.oracle import Oracle
from verification.simulation.paths import SimulatedPath
from verification.simulation.repaired import Key
from verification.simulation.scheduler import Scheduler
from verification.simulation.server import Hooks, Server
from verification.simulation.spark import Input, context_of
from verification.simulation.statements import Statements
from verification.simulation.telling import Telling
from verification.simulation.threads import ByProcess, CallingByTask, Condition, Event, Lock

MAX_STEPS = 60_000
_BACKUP = "/data/backup"
SLOTS = 8
"""Sessions that a sink may have at once; 512 in the product, which makes a long statement."""

_WITH_FAILPOINTS = (
    "twophase.sinks.mysql.committer",
    "twophase.sinks.mysql.orphans",
    "twophase.sinks.mysql.writer",
    "twophase.operations.repair.adopt",
    "twophase.coordinator.attempt",
    "twophase.coordinator.commit.checkpoint_completion",
    "twophase.coordinator.coordinator",
    "twophase.coordinator.recovery.recovery",
    "twophase.coordinator.recovery.recovery_steps",
    "twophase.operations.repair.abandon_rewind",
    "twophase.operations.repair.accept_loss",
    "twophase.operations.repair.rewrite",
    "twophase.operations.savepoint.finish",
    "twophase.coordinator.commit.sink_decisions",
    "twophase.spark.job.lineage_start",
    "twophase.operations.savepoint.savepoint_restore",
    "twophase.spark.batch.chain",
    "twophase.spark.batch.writer_task",
    "twophase.state.journal.log",
    "twophase.operations.savepoint.format",
    "twophase.state.files.storage",
    "twophase.state.checkpoints.store",
)
_WITH_THREADS = (
    "twophase.coordinator.commit.commit_queue",
    "twophase.engine.batch_gate",
    "twophase.engine.engine",
    "twophase.engine.run",
    "twophase.state.journal.log",
)
_WITH_LOGGERS = (
    "twophase.operations.savepoint.restore",
    "twophase.operations.savepoint.abandoned_folders",
    "twophase.sinks.mysql.sink",
)
# of no tree, so that nobody sets its level
_SILENT = logging.Logger("silent", logging.CRITICAL)  # noqa: LOG001
_PART_BYTES = 400
"""Of a savepoint, so that it has several parts; 16 MiB in the product."""
_FREE_BYTES = 10**9
_qualified = lru_cache(qualified)
_WITH_TIME = tuple(
    f"twophase.sinks.mysql.{name}"
    for name in ("committer", "fence", "client.session_exit", "orphans")
)


class World:
    """What the drivers of one run live in.

    Args:
        options: what the run is like.

    Attributes:
        telling: what the drivers tell their observers.
        targets: the host name of each sink's server, by the sink's name, which is also its table's.
        catalogues: what each server says of itself, by its host name.
        starting: the chunk at which a lineage begins that has no start of its own: the source's
            `startingOffsets`.
        sink_ahead: the job's option `restore.sink_ahead`.
        restore_id: the job's option `restore.id`.
        reads_other_sources: whether the plan has other sources than a savepoint that is restored.
        obstructed: the sinks that cannot take rows back.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        random = Random(options.seed)
        self.scheduler = Scheduler(random, options.switching, MAX_STEPS)
        self.faults = Faults(options, random, self.scheduler)
        self.source = Input(options)
        self.telling = Telling()
        self.disk = Disk(random)
        self.files = Files(self.disk, self.scheduler.step, self.faults.of_disk)
        self.oracle = Oracle(
            self.scheduler,
            self.disk,
            self.source.rows,
            most_under_way=options.max_concurrent,
        )
        self.files.on_link, self.files.on_sync = self.oracle.linked, self.oracle.synced
        self.targets: dict[str, str] = {}
        self._lines: dict[str, Line] = {}
        self.catalogues: dict[str, Catalogue] = {}
        self.starting = 0
        self.sink_ahead = "refuse"
        self.restore_id = ""
        self.reads_other_sources = False
        self.obstructed: set[str] = set()
        for number, dialect in enumerate(options.sinks):
            host = "db" if options.one_server else f"db{number}"
            self.targets[f"sink{number}"] = host
            if host not in self._lines:
                self._lines[host] = self._line(host, dialect)

    @property
    def servers(self) -> list[Server]:
        return [line.server for line in self._lines.values()]

    def targets_and_servers(self) -> list[tuple[str, Server]]:
        """Each sink's name, and the server of its target."""
        return [(name, self._lines[host].server) for name, host in self.targets.items()]

    def new_id(self) -> str:
        """A UUID of the seed's."""
        return str(UUID(int=self.scheduler.random.getrandbits(128), version=4))

    def mode(self) -> str:
        """The job's option `checkpoint.mode` for the next driver. It may change between runs."""
        if not self.options.ahead:
            return "exactly_once"
        return self.scheduler.random.choice(("at_least_once", "at_least_once", "exactly_once"))

    def happens(self, what: str) -> None:
        """Somebody does something to the job's folder or to a target."""
        self.scheduler.trace.append(("somebody", what))
        self.faults.points[what] += 1

    def copy_folder(self, source: str, target: str) -> None:
        """Copy a job's folder, Spark's in it too, at one moment."""
        self.disk.copy(source, target)
        self.oracle.copied(source, target)

    def back_up_folder(self, folder: str) -> None:
        """Copy a job's folder, Spark's in it too, for later."""
        self.disk.copy(folder, _BACKUP)
        self.oracle.repaired.backed_up = [*self.oracle.repaired.accepted]

    def restore_folder(self, folder: str, known: Iterable[Key] | None) -> None:
        """A job's folder is as it was when it was copied; without known decisions it is gone."""
        if known is None:
            parent, name = self.disk.folder_of(folder)
            parent.put(name, None)
            self.disk.sync(parent)
        else:
            self.disk.copy(_BACKUP, folder)
        known = [*(known or ())]
        self.oracle.repaired.folder_restored(self.oracle, folder, known)
        self.oracle.saved.folder_restored(self.oracle, folder, {*known})

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The product's modules see this world instead of the machine."""
        random = self.scheduler.random
        secrets = SimpleNamespace(
            token_hex=lambda count: f"{random.getrandbits(8 * count):0{2 * count}x}"
        )
        clock = SimpleNamespace(monotonic=lambda: self.scheduler.now_s, sleep=self.scheduler.sleep)
        replaced: dict[str, Any] = {
            **{f"{module}.threading": self._threading() for module in _WITH_THREADS},
            "twophase.engine.engine._claimed": ByProcess(self.scheduler),
            "twophase.events._calling": CallingByTask(),
            "twophase.state.files.storage.os": self.files,
            "twophase.state.files.storage.Path": self.path,
            "twophase.state.files.storage.secrets": secrets,
            "twophase.state.journal.log.secrets": secrets,
            "twophase.operations.savepoint.format.secrets": secrets,
            "twophase.state.checkpoints.store._FOLD_AT": self.options.fold_at,
            (
                "twophase.coordinator.commit.checkpoint_completion.SUBSUME_SINKS_EVERY"
            ): self.options.subsume_every,
            **self._of_savepoints(),
            "twophase.operations.savepoint.restore.Path": self.path,
            "twophase.operations.repair.adopt.new_lineage_id": self.new_id,
            "twophase.operations.savepoint.restore.new_lineage_id": self.new_id,
            "twophase.spark.batch.chain.TaskContext": context_of(self.scheduler),
            "twophase.spark.batch.chain.freeze_gc": lambda: None,
            "twophase.spark.batch.writer_task.TaskContext": context_of(self.scheduler),
            "twophase.spark.batch.writer_task.freeze_gc": lambda: None,
            "twophase.sinks.mysql.metadata_tables.qualified": _qualified,
            "twophase.sinks.mysql.metadata_tables.uuid": SimpleNamespace(uuid4=self.new_id),
            "twophase.sinks.mysql.client.session.Session": self._connect,
            "twophase.sinks.mysql.client.session_locks.SLOTS": SLOTS,
            **{f"{module}._log": _SILENT for module in _WITH_LOGGERS},
            **{f"{module}.failpoint": self.faults.failpoint for module in _WITH_FAILPOINTS},
            **{f"{module}.time": clock for module in _WITH_TIME},
        }
        real = {name: getattr(*_owner(name)) for name in replaced}
        for name, new in replaced.items():
            setattr(*_owner(name), new)
        try:
            yield
        finally:
            for name, old in real.items():
                setattr(*_owner(name), old)

    def _of_savepoints(self) -> dict[str, Any]:
        trees = SimpleNamespace(
            rmtree=self.files.remove_tree,
            disk_usage=lambda _: SimpleNamespace(free=_FREE_BYTES),
        )
        return {
            "twophase.operations.savepoint.abandoned_folders.os": self.files,
            "twophase.spark.job.lineage_start.new_lineage_id": self.new_id,
            "twophase.operations.savepoint.savepoint_restore.new_lineage_id": self.new_id,
            "twophase.operations.savepoint.savepoint_restore.os": self.files,
            "twophase.operations.savepoint.savepoint_restore.shutil": trees,
            "twophase.operations.savepoint.savepoint_restore.sync_file_system": self.files.sync_all,
            "twophase.operations.savepoint.make.Path": self.path,
            "twophase.spark.folder.spark_folder.os": self.files,
            "twophase.operations.savepoint.format.PART_BYTES": _PART_BYTES,
        }

    def _threading(self) -> SimpleNamespace:
        """Stands for the module `threading`."""
        scheduler = self.scheduler
        return SimpleNamespace(
            Condition=lambda: Condition(scheduler),
            Event=lambda: Event(scheduler),
            Lock=lambda: Lock(scheduler),
            RLock=lambda: Lock(scheduler),
        )

    def path(self, text: object) -> SimulatedPath:
        return SimulatedPath(self.files, str(text))

    def _connect(self, endpoint: Endpoint, *, local_infile: bool = False) -> SimulatedSession:
        return SimulatedSession(self._lines[endpoint.host])

    def _line(self, host: str, dialect_name: str) -> Line:
        options, dialect = self.options, DIALECTS[dialect_name]
        oracle = self.oracle
        hooks = Hooks(
            oracle.started, oracle.prepared, oracle.commits, oracle.rolled_back, oracle.lost_its_way
        )
        server = Server(host, dialect, self.scheduler, hooks, options.lingering_s)
        oracle.servers.append(server)
        catalogue = self.catalogues[host] = Catalogue(
            dialect, host, keyed=options.keyed, local_infile=options.local_infile
        )
        statements = Statements(server, catalogue, Loads(server, keyed=options.keyed))
        return Line(server, statements, self.scheduler, self.faults.of_network)


@lru_cache
def _owner(name: str) -> tuple[Any, str]:
    """The module of a name, and the name in it."""
    module, _, attribute = name.rpartition(".")
    return import_module(module), attribute
