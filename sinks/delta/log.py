"""A table's transaction log through Delta's own classes."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from twophase.sinks.delta.jvm import Jvm, class_name, items
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.log_segment import LogFile, LogFiles, LogSegment
from twophase.sinks.delta.storage import Storage

_logger = logging.getLogger("twophase.sinks.delta")

_LOG_FOLDER = "_delta_log"


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
    def layout(self) -> TableLayout:
        """The layout that a data file has to fit."""
        return TableLayout.read(self._java.protocol().json(), self._java.metadata().json())

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
        """True if Delta refuses to remove a file with its rows."""
        return bool(
            self._jvm.delta("DeltaConfigs").IS_APPEND_ONLY().fromMetaData(self._java.metadata())
        )

    @property
    def names_folders_by_value(self) -> bool:
        """True if a data file is in a folder named after its partition, not in a random one."""
        mapped = self.layout.properties.get("delta.columnMapping.mode", "none") != "none"
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
    def checksum_transactions(self) -> dict[str, int]:
        """The same from the checksum file of the version, if there is one; no job.

        Every writer of commits writes that file, so it proves nothing; `transactions` does.
        """
        checksum = self._java.checksumOpt()
        noted = checksum.get().setTransactions() if checksum.isDefined() else self._jvm.option()
        return _versions(noted.get()) if noted.isDefined() else self.transactions

    def _listed(self, status: Any) -> LogFile:
        name = self._log.storage.relative(status.getPath())
        return LogFile(name, int(status.getLen()), int(status.getModificationTime()))


def _versions(entries: Any) -> dict[str, int]:
    return {str(entry.appId()): int(entry.version()) for entry in items(entries)}


class Log:
    """The log of the table in one folder.

    Args:
        jvm: the JVM of Spark.
        folder: the table's folder.
    """

    def __init__(self, jvm: Jvm, folder: str) -> None:
        self.jvm = jvm
        self.java: Any = jvm.delta("DeltaLog").forTable(jvm.java_session, folder)
        self.storage = Storage(
            jvm, str(self.java.dataPath().toString()), self.java.newDeltaHadoopConf()
        )
        self.files = LogFiles(self.storage)

    @property
    def store(self) -> str:
        """The class that writes commits to this table's storage."""
        store = self.java.store()
        if class_name(store).endswith(".DelegatingLogStore"):
            store = store.getDelegate(self.java.logPath())
        if class_name(store).endswith(".LogStoreAdaptor"):
            store = store.logStoreImpl()
        return class_name(store)

    def snapshot(self) -> Snapshot:
        """Return the table's current snapshot."""
        return Snapshot(
            self.jvm, self.java.update(False, self.jvm.option(), self.jvm.option()), self
        )

    def transactions_at(self, version: int) -> dict[str, int] | None:
        """Return the version of every application id in an older version of the table.

        None if the log does not have that version any more.
        """
        nothing = self.jvm.option()
        try:
            java = self.java.getSnapshotAt(version, nothing, nothing, False)
            return Snapshot(self.jvm, java, self).transactions
        except Exception as error:  # noqa: BLE001 whatever it is, nothing is proven
            _logger.info("Version %d of %s is unknown: %s", version, self.storage.root, error)
            return None

    def start_transaction(self) -> Any:
        """Start a transaction of Delta's on the latest snapshot."""
        return self.java.startTransaction(self.jvm.option(), self.jvm.option())

    def checkpoint_interval(self, metadata: Any) -> int:
        """Return the number of versions between two checkpoints of the log, by the metadata."""
        return int(self.java.checkpointInterval(metadata))

    def commit_text(self, version: int) -> str | None:
        """Return the actions of one commit, one a line; None if the log does not have it."""
        data = self.storage.read(f"{_LOG_FOLDER}/{version:020d}.json")
        return None if data is None else data.decode()

    def shows(self, version: int, nonce: str) -> bool:
        """Return whether a commit is the one with a nonce; if so, it is also durable.

        On a local disk two processes can write the same version, and the second silently
        replaces the first.
        """
        if nonce not in (self.commit_text(version) or ""):
            return False
        self.sync(version)
        return True

    def sync(self, version: int) -> None:
        """Sync a commit to a local disk."""
        self.storage.sync([f"{_LOG_FOLDER}/{version:020d}.json"])
