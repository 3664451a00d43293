"""A table's transaction log through Delta's own classes."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

from twophase.sinks.delta.commit_session import CommitSession
from twophase.sinks.delta.deferring_transaction import DeferringTransactions
from twophase.sinks.delta.jvm import Jvm, class_name, items
from twophase.sinks.delta.layout import TableShape
from twophase.sinks.delta.log_files import LogFiles
from twophase.sinks.delta.log_segment import LogFile, LogSegment
from twophase.sinks.delta.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger("twophase.sinks.delta")

# Delta's own hook for the names of data files. A property of the writing thread reaches its tasks,
# so that two sinks that write side by side in one session do not interfere. Phase 1 checks the
# names that come back.
_NAME_PREFIX = "spark.databricks.delta.testOnly.dataFileNamePrefix"
_LOG_FOLDER = "_delta_log"
_FAR_BEHIND = 100
_POLL_S = 0.005
_COMMIT_THREAD = "twophase-delta-commit"


class Snapshot:
    """A table at one version.

    Args:
        jvm: the JVM of Spark.
        java: Delta's snapshot.
        log: of the table.
    """

    def __init__(self, jvm: Jvm, java: Any, log: Log) -> None:
        self._jvm = jvm
        self._java = java
        self._log = log

    @property
    def version(self) -> int:
        """-1 if there is no table."""
        return int(self._java.version())

    @property
    def table(self) -> str:
        """The table's id; a recreated table has a new one."""
        return str(self._java.metadata().id())

    @cached_property
    def shape(self) -> TableShape:
        """The shape that a data file has to fit."""
        return TableShape.read(self._java.protocol().json(), self._java.metadata().json())

    @cached_property
    def schema(self) -> str:
        """The columns, in Spark's JSON format."""
        return str(self._java.metadata().schemaString())

    @property
    def retention_ms(self) -> int | None:
        """The time after which the table forgets application ids; None: never."""
        found = self._jvm.delta("DeltaLog").minSetTransactionRetentionInterval(
            self._java.metadata()
        )
        return int(found.get()) if found.isDefined() else None

    @property
    def is_append_only(self) -> bool:
        """True if Delta lets nobody remove a file with its rows."""
        return bool(
            self._jvm.delta("DeltaConfigs").IS_APPEND_ONLY().fromMetaData(self._java.metadata())
        )

    @property
    def names_folders_by_value(self) -> bool:
        """True if a data file is in a folder named after its partition, not in a random one."""
        mapped = self.shape.properties.get("delta.columnMapping.mode", "none") != "none"
        randomised = (
            self._jvm.delta("DeltaConfigs")
            .RANDOMIZE_FILE_PREFIXES()
            .fromMetaData(self._java.metadata())
        )
        return not (mapped or randomised)

    @cached_property
    def transactions(self) -> dict[str, int]:
        """The version of every application id, from the log files of this snapshot.

        If they are not as this reader knows them, Delta answers, by Spark jobs that read the state
        of the whole table.
        """
        try:
            return self._log.files.transactions(self._segment(), self._forgotten_until_ms())
        except Exception as error:  # noqa: BLE001 Delta's own answer, or error, replaces it
            _logger.info(
                "Delta is asked for the application ids of the table: %s: %s",
                type(error).__name__,
                error,
            )
            return _versions(self._java.setTransactions())

    def counted_bytes(self) -> int | None:
        """Return the bytes of the log that Delta reads if the next commit counts files, or None."""
        if (self.version + 1) % self._log.checkpoint_interval(self._java.metadata()):
            return None
        return int(self._java.checkpointSizeInBytes()) + sum(
            file.size for file in self._segment().commits
        )

    @property
    def commits_since_checkpoint(self) -> int:
        """The number of versions since the last checkpoint of the log."""
        return self.version - int(self._java.logSegment().checkpointProvider().version())

    def _forgotten_until_ms(self) -> int | None:
        found = self._java.minSetTransactionRetentionTimestamp()
        return int(found.get()) if found.isDefined() else None

    def _segment(self) -> LogSegment:
        java = self._java.logSegment()
        checkpoint = java.checkpointProvider()
        return LogSegment(
            self.version,
            int(checkpoint.version()),
            tuple(map(self._listed, items(checkpoint.topLevelFiles()))),
            tuple(map(self._listed, items(java.deltas()))),
        )

    @cached_property
    def noted_transactions(self) -> dict[str, int]:
        """The same from the note that Delta leaves beside a commit, if there is one; no job.

        Every writer of commits writes that note, so it is no proof by itself; `transactions` is.
        """
        checksum = self._java.checksumOpt()
        noted = checksum.get().setTransactions() if checksum.isDefined() else self._jvm.option()
        return _versions(noted.get()) if noted.isDefined() else self.transactions

    def _listed(self, status: Any) -> LogFile:
        name = self._log.storage.relative(status.getPath())
        return LogFile(name, int(status.getLen()), int(status.getModificationTime()))


def _versions(entries: Any) -> dict[str, int]:
    return {str(entry.appId()): int(entry.version()) for entry in items(entries)}


class Transaction:
    """An optimistic transaction on the latest snapshot, checked against others' commits since.

    Args:
        jvm: the JVM of Spark.
        java: Delta's transaction.
        log: of the table.
    """

    def __init__(self, jvm: Jvm, java: Any, log: Log) -> None:
        self.jvm = jvm
        self._java = java
        self._log = log
        self.snapshot = Snapshot(jvm, java.snapshot(), log)
        self.nonce = uuid.uuid4().hex

    @cached_property
    def _counted(self) -> int | None:
        """How much of the log Delta reads within the commit, to count files; None: nothing."""
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
        deferring = self._log.deferring_transactions.begin(self._java.snapshot())
        if deferring is not None:
            self._java, self._counted = deferring, None

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
                while (text := self._log.commit_text(candidate)) is not None:
                    if self.nonce in text:
                        return candidate
                    candidate += 1
        return outcome.result()

    def _session(self) -> AbstractContextManager[None]:
        """The session in which it commits: another one than the job's, if Delta counts files."""
        counted = self._counted
        return nullcontext() if counted is None else self._log.commit_session.active(counted)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _settle(outcome: Future[int], act: Callable[[], int]) -> None:
    try:
        outcome.set_result(act())
    except BaseException as error:  # noqa: BLE001 raised by the thread that waits, if it still does
        outcome.set_exception(error)


class Log:
    """The log of the table in one folder.

    Args:
        jvm: the JVM of Spark.
        folder: the table's folder.
    """

    def __init__(self, jvm: Jvm, folder: str) -> None:
        self.jvm = jvm
        self._java = jvm.delta("DeltaLog").forTable(jvm.java_session, folder)
        self.storage = Storage(
            jvm, str(self._java.dataPath().toString()), self._java.newDeltaHadoopConf()
        )
        self.files = LogFiles(self.storage)

    @cached_property
    def commit_session(self) -> CommitSession:
        """The session for commits, created on first use: to Spark it has its own listeners."""
        return CommitSession(self.jvm)

    @cached_property
    def deferring_transactions(self) -> DeferringTransactions:
        """Transactions that are not due for a checkpoint, compiled on first use."""
        return DeferringTransactions(self.jvm, self._java)

    @property
    def store(self) -> str:
        """The class that writes commits to this table's storage."""
        store = self._java.store()
        if class_name(store).endswith(".DelegatingLogStore"):
            store = store.getDelegate(self._java.logPath())
        if class_name(store).endswith(".LogStoreAdaptor"):
            store = store.logStoreImpl()
        return class_name(store)

    def snapshot(self) -> Snapshot:
        """Return the table's current snapshot."""
        return Snapshot(
            self.jvm, self._java.update(False, self.jvm.option(), self.jvm.option()), self
        )

    def transactions_at(self, version: int) -> dict[str, int] | None:
        """Return the version of every application id in an older version of the table.

        None if the log does not have that version any more.
        """
        nothing = self.jvm.option()
        try:
            java = self._java.getSnapshotAt(version, nothing, nothing, False)
            return Snapshot(self.jvm, java, self).transactions
        except Exception as error:  # noqa: BLE001 whatever it is, nothing is proven
            _logger.info("Version %d of %s is unknown: %s", version, self.storage.root, error)
            return None

    def transaction(self) -> Transaction:
        """Begin a transaction on the latest snapshot."""
        java = self._java.startTransaction(self.jvm.option(), self.jvm.option())
        return Transaction(self.jvm, java, self)

    def checkpoint_interval(self, metadata: Any) -> int:
        """Return the number of versions between two checkpoints of the log, by the metadata."""
        return int(self._java.checkpointInterval(metadata))

    def commit_text(self, version: int) -> str | None:
        """Return the actions of one commit, one a line; None if the log does not have it."""
        data = self.storage.read(f"{_LOG_FOLDER}/{version:020d}.json")
        return None if data is None else data.decode()

    def shows(self, version: int, transaction: Transaction) -> bool:
        """Return whether a commit is the one that a transaction wrote; if so, it is also durable.

        On a local disk two processes can write the same version, and the second silently
        replaces the first.
        """
        if transaction.nonce not in (self.commit_text(version) or ""):
            return False
        self.sync(version)
        return True

    def sync(self, version: int) -> None:
        """Sync a commit to a local disk."""
        self.storage.sync([f"{_LOG_FOLDER}/{version:020d}.json"])
