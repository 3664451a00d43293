"""Delta's own transactions, and the work that Delta does within a commit.

With every tenth version Delta counts the table's files within the commit, by Spark jobs over the
state of its log, and then writes a checkpoint of the log. The jobs have
`spark.databricks.delta.snapshotPartitions` tasks, 50 by default: for a log of a few hundred
kilobytes, in a JVM that has just started, that takes twenty seconds. So a commit that counts runs
in a session with as many tasks as the log's size needs, and recovery mostly leaves the count to
the running job.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

from twophase.sinks.delta.jvm import Jvm, items
from twophase.sinks.delta.log import Log, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger("twophase.sinks.delta")

# Delta's own hook for the names of data files. A property of the writing thread reaches its tasks,
# so that two sinks that write side by side in one session do not interfere. Phase 1 checks the
# names that come back.
_NAME_PREFIX = "spark.databricks.delta.testOnly.dataFileNamePrefix"
_FAR_BEHIND = 100
_POLL_S = 0.005
_COMMIT_THREAD = "twophase-delta-commit"

PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_DEFAULT_PARTITIONS = 50
BYTES_A_TASK = 8 * 2**20

_NAME = "twophase.DeferringTransaction"
_SOURCE = """
package twophase;

import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;

public final class DeferringTransaction extends OptimisticTransaction {
    public DeferringTransaction(DeltaLog log, Snapshot snapshot) {
        super(log, scala.Option.apply(null), snapshot);
    }

    @Override
    public boolean isCheckpointNeeded(long version, Snapshot snapshot) {
        return false;
    }
}
"""

_STATISTICS = "org.apache.spark.sql.delta.stats.CommitStats"


class Transactions:
    """Begins transactions in one table.

    Args:
        log: the table's log.
    """

    def __init__(self, log: Log) -> None:
        self.log = log

    def begin(self) -> Transaction:
        """Begin a transaction on the latest snapshot."""
        return Transaction(self.log.start_transaction(), self)

    @cached_property
    def commit_session(self) -> CommitSession:
        """The session for commits, created on first use: to Spark it has its own listeners."""
        return CommitSession(self.log.jvm)

    @cached_property
    def deferring(self) -> Any | None:
        """The constructor of transactions that are never due for a checkpoint, compiled once."""
        return _compile_deferring(self.log.jvm, self.log.java)


class Transaction:
    """An optimistic transaction on the latest snapshot, checked against others' commits since.

    Args:
        java: Delta's transaction.
        transactions: those of the table.
    """

    def __init__(self, java: Any, transactions: Transactions) -> None:
        self._java = java
        self._transactions = transactions
        self.jvm = transactions.log.jvm
        self.snapshot = Snapshot(self.jvm, java.snapshot(), transactions.log)
        self.nonce = uuid.uuid4().hex

    @cached_property
    def _counted(self) -> int | None:
        """The bytes of the log that Delta reads within the commit to count files; None: none."""
        return self.snapshot.counted_bytes()

    def watch(self, app_id: str) -> None:
        """Make the commit fail if a version of this application id is committed meanwhile."""
        # as txnVersion does, which also reads the table's state
        self._java.readTxn().addOne(app_id)

    def defer_checkpoint(self) -> None:
        """Leave the log's checkpoint to a later commit if it is due now and the last one is recent.

        Call this first: it replaces Delta's transaction.

        Delta counts the table's files and makes a checkpoint with every tenth commit. That takes
        seconds, or twenty seconds in a JVM that has just started.
        """
        if self._counted is None or self.snapshot.commits_since_checkpoint >= _FAR_BEHIND:
            return
        constructor = self._transactions.deferring
        if constructor is not None:
            arguments = self.jvm.array(self._transactions.log.java, self._java.snapshot())
            self._java, self._counted = constructor.newInstance(arguments), None

    def write_files(self, rows: DataFrame, prefix: str) -> list[str]:
        """Write data files, uncommitted, with names from `prefix`; return their actions as JSON.

        The Spark jobs that write them have the prefix as a tag.
        """
        with self.jvm.local_property(_NAME_PREFIX, prefix), self.jvm.job_tag(prefix):
            actions = self._java.writeFiles(rows._jdf, self.jvm.option())
        return [str(action.json()) for action in items(actions)]

    def commit(
        self,
        actions: Sequence[str],
        app_id: str,
        version: int,
        query: str,
        epoch: int,
        note: Mapping[str, Any],
    ) -> int:
        """Commit actions with a version of an application id; return the table's new version.

        The nonce of the transaction goes with the note into the commit's user metadata.
        """
        return self._commit(
            [self._marked(app_id, version), *map(self._parsed, actions)], query, epoch, note
        )

    def remove(
        self,
        added: Sequence[str],
        versions: Mapping[str, int],
        epoch: int,
        note: Mapping[str, Any],
    ) -> int:
        """Commit the removal of data files, with versions of application ids; return as `commit`.

        Args:
            added: for each file, the action that has added it.
            versions: by application id.
            epoch: as Delta's history shows it.
            note: see `commit`.
        """
        marked = [self._marked(*one) for one in versions.items()]
        now_ms = _now_ms()
        removed = [self._parsed(action).removeWithTimestamp(now_ms, True) for action in added]
        return self._commit([*marked, *removed], ", ".join(versions), epoch, note)

    def _commit(
        self, actions: Sequence[Any], query: str, epoch: int, note: Mapping[str, Any]
    ) -> int:
        text = json.dumps({**note, "nonce": self.nonce}, sort_keys=True)
        operation = self.jvm.delta("DeltaOperations$StreamingUpdate")(
            self.jvm.append, query, epoch, self.jvm.option(text)
        )
        with self._session():
            return int(self._java.commit(self.jvm.seq(actions), operation))

    def _marked(self, app_id: str, version: int) -> Any:
        # the time is only for the table's own retention of application ids
        return self.jvm.delta("actions.SetTransaction")(app_id, version, self.jvm.option(_now_ms()))

    def _parsed(self, action: str) -> Any:
        return self.jvm.delta("actions.Action").fromJson(action)

    def commit_ahead(
        self, app_id: str, version: int, query: str, epoch: int, note: Mapping[str, Any]
    ) -> int:
        """Commit a version of an application id and no data; return once the log shows it.

        What Delta does after that goes on in a thread: its checksum of the table, and the hooks. An
        error there changes nothing about the commit. If Delta counts files, or if the error comes
        first, this is `commit`.
        """

        def commit() -> int:
            with self.jvm.active():
                return self.commit([], app_id, version, query, epoch, note)

        if self._counted is not None:
            return commit()
        outcome: Future[int] = Future()
        Thread(target=_settle, args=(outcome, commit), name=_COMMIT_THREAD, daemon=True).start()
        candidate = self.snapshot.version + 1
        with suppress(Exception):  # of a look at the log: the table's lock is held for the commit
            while not wait([outcome], _POLL_S).done:
                while (text := self._transactions.log.commit_text(candidate)) is not None:
                    if self.nonce in text:
                        return candidate
                    candidate += 1
        return outcome.result()

    def _session(self) -> AbstractContextManager[None]:
        """Return the session to commit in: not the job's if Delta counts files."""
        counted = self._counted
        return (
            nullcontext() if counted is None else self._transactions.commit_session.active(counted)
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _settle(outcome: Future[int], act: Callable[[], int]) -> None:
    try:
        outcome.set_result(act())
    except BaseException as error:  # noqa: BLE001 raised by the thread that waits, if it still does
        outcome.set_exception(error)


class CommitSession:
    """A copy of the session, taken on construction.

    Args:
        jvm: the job's session.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._most = int(jvm.session.conf.get(PARTITIONS, None) or _DEFAULT_PARTITIONS)
        self._java = jvm.java_session.cloneSession()

    @contextmanager
    def active(self, log_bytes: int) -> Iterator[None]:
        """Make the copy the active session of this thread.

        Args:
            log_bytes: the total length of the files that hold the table's state.
        """
        tasks = tasks_for(log_bytes, self._most)
        self._java.sessionState().conf().setConfString(PARTITIONS, str(tasks))
        with self._jvm.active(self._java):
            yield


def tasks_for(log_bytes: int, most: int) -> int:
    """Return how many tasks read a log: one for every 8 MiB, up to the session's setting."""
    return min(most, 1 + log_bytes // BYTES_A_TASK)


def _compile_deferring(jvm: Jvm, log: Any) -> Any | None:
    """Return the constructor of a transaction that is never due for a checkpoint of the log.

    Removing the hook that writes the checkpoint would leave the counting: only the transaction's
    own `isCheckpointNeeded` decides about that. So this is a subclass in Java. Spark's own compiler
    for generated code, Janino, compiles it in the driver's JVM.

    It is not essential: without it a commit takes seconds longer if Delta counts with it.

    Args:
        jvm: the JVM of Spark.
        log: Delta's log of the table.

    Returns:
        The constructor, which takes the log and a snapshot of Delta's; None if the class could not
        be compiled.
    """
    try:
        compiler = jvm.janino_compiler()
        compiler.setParentClassLoader(log.getClass().getClassLoader())
        compiler.cook(_SOURCE)
        [constructor] = compiler.getClassLoader().loadClass(_NAME).getConstructors()
    except Exception:
        _logger.info("Checkpoints of Delta's log cannot be deferred", exc_info=True)
        return None
    return constructor


def warm_up(jvm: Jvm) -> None:
    """Start Delta's one-time work for a first commit; a commit that comes sooner waits for it.

    Delta derives the columns of its log from its own classes by Scala's reflection: over half a
    second of processor time, in the fence of every start. Jackson then looks into the classes of
    what is written to the log and of the statistics. Nothing is written here.

    Args:
        jvm: the JVM of Spark.
    """

    def prepare() -> None:
        with suppress(Exception):  # the commit fails in the same way, and reports it
            jvm.delta("actions.Action").logSchema()
            info = jvm.delta("actions.CommitInfo").empty(jvm.option())
            info.json()
            statistics = info.getClass().getClassLoader().loadClass(_STATISTICS)
            jvm.delta("util.JsonUtils").mapper().writerFor(statistics)

    Thread(target=prepare, name="twophase-delta-first-commit", daemon=True).start()
