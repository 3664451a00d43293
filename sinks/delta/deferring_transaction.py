"""A transaction of Delta's that is never due for a checkpoint of the log.

With every tenth version Delta counts the table's files within the commit, by Spark jobs, and then
writes a checkpoint of the log. Removing the hook that writes it leaves the counting: only the
transaction's own `isCheckpointNeeded` decides about that. So this is a subclass in Java. Spark's
own compiler for generated code, Janino, compiles it in the driver's JVM.
"""

from __future__ import annotations

import logging
from typing import Any

from twophase.sinks.delta.jvm import Jvm

_logger = logging.getLogger("twophase.sinks.delta")

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


class DeferringTransactions:
    """Begins such transactions in one table.

    Args:
        jvm: the JVM of Spark.
        log: Delta's log of the table.
    """

    def __init__(self, jvm: Jvm, log: Any) -> None:
        self._jvm = jvm
        self._log = log
        self._constructor = self._compile()

    def begin(self, snapshot: Any) -> Any | None:
        """Begin a transaction on a snapshot of Delta's; None if the class could not be compiled."""
        if self._constructor is None:
            return None
        return self._constructor.newInstance(self._jvm.array(self._log, snapshot))

    def _compile(self) -> Any | None:
        """Return the constructor of the class.

        It is not essential: without it a commit takes seconds longer if Delta counts with it.
        """
        try:
            compiler = self._jvm.janino_compiler()
            compiler.setParentClassLoader(self._log.getClass().getClassLoader())
            compiler.cook(_SOURCE)
            [constructor] = compiler.getClassLoader().loadClass(_NAME).getConstructors()
        except Exception:
            _logger.info("Checkpoints of Delta's log cannot be deferred", exc_info=True)
            return None
        return constructor
