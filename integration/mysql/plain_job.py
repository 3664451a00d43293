"""A whole job over one table of MySQL, on the engine without Spark, and how it ends."""

from __future__ import annotations

import threading

from harness.one_sink_job import NAME, WAIT_S, OneSinkJob
from integration.mysql.sink_harness import MySqlHarness


class MySqlJob(OneSinkJob):
    """See `OneSinkJob`."""

    harness: MySqlHarness

    def leaves_nothing(self) -> bool:
        """Return whether no branch is left on the server, and no thread of the job here."""
        threads = [thread for thread in threading.enumerate() if NAME in thread.name]
        for thread in threads:
            thread.join(WAIT_S)
        return self.harness.branches() == []
