"""A reader of the tables while all else goes wrong: what it may see at any moment.

1. What was visible stays visible.
2. Of each partition exactly the first records are visible, each once: a checkpoint's records of a
   partition are one piece, and checkpoints commit in order.
3. What is in a committed checkpoint is visible, in every table.
4. What is visible is in a decided checkpoint (I1).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import pymysql

from integration.soak.scenario import Ends, SoakScenario, ends_of
from twophase.cli.checkpoint_list import read_checkpoints

_PAUSE_S = 0.1
_PAUSES = 3
"""How many times as long as a look takes is waited, so that large tables do not keep
their servers busy.
"""
_READ_TIMEOUT_S = 10


@dataclass(frozen=True)
class Part:
    """What is visible of one partition.

    Attributes:
        rows: how many.
        first: the least offset.
        last: the greatest offset.
        offsets: their sum.
    """

    rows: int
    first: int
    last: int
    offsets: int

    @property
    def is_whole(self) -> bool:
        """Whether these are the first records, each once."""
        return self == Part(self.rows, 0, self.rows - 1, self.rows * (self.rows - 1) // 2)


NOTHING = Part(0, 0, -1, 0)


def violations(
    before: Mapping[int, Part], seen: Mapping[int, Part], committed: Ends, decided: Ends
) -> list[str]:
    """What a reader must not see.

    Args:
        before: what was visible in this table.
        seen: what is visible.
        committed: the end of what was committed before the look.
        decided: the end of the decided rows after the look.
    """
    found = []
    for number in sorted({*before, *seen, *committed}):
        part = seen.get(number, NOTHING)
        rows, known, least = part.rows, before.get(number, NOTHING).rows, committed.get(number, 0)
        if rows < known:
            found.append(f"partition {number}: {known} rows were visible, now {rows}")
        if not part.is_whole:
            found.append(f"partition {number}: not each of the first records once: {part}")
        if rows < least:
            found.append(f"partition {number}: {least} rows are committed, {rows} are visible")
        if rows > decided.get(number, 0):
            found.append(
                f"partition {number}: {decided.get(number, 0)} rows are decided, {rows} are visible"
            )
    return found


class SoakReader:
    """A thread that looks again and again. A server that does not answer is asked again.

    As a context manager it starts on entry and stops on exit.

    Args:
        scenario: the job; it has committed a checkpoint already.

    Attributes:
        looks: at a table, so far.
    """

    def __init__(self, scenario: SoakScenario) -> None:
        self.looks = 0
        self._scenario = scenario
        self._seen: dict[str, Mapping[int, Part]] = {sink: {} for sink in scenario.servers}
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what the reader must not have seen, or what made it end."""
        if self._failure is not None:
            raise AssertionError(f"the reader: {self._failure}") from self._failure

    def look(self, sink: str) -> None:
        """Look at one table once.

        Raises:
            AssertionError: it shows what it must not show.
            pymysql.Error: the server does not answer.
        """
        committed = self._ends("committed")
        seen = self._visible(sink)
        found = violations(self._seen[sink], seen, committed, self._ends("decided"))
        assert not found, f"{sink}: {'; '.join(found)}"
        self._seen[sink] = seen
        self.looks += 1

    def _run(self) -> None:
        pause_s = _PAUSE_S
        try:
            while not self._stopping.wait(pause_s):
                began_s = time.monotonic()
                for sink in self._scenario.servers:
                    with suppress(pymysql.Error):
                        self.look(sink)
                pause_s = max(_PAUSE_S, _PAUSES * (time.monotonic() - began_s))
        except BaseException as error:  # noqa: BLE001 raised by `check` in the main thread
            self._failure = error

    def _visible(self, sink: str) -> dict[int, Part]:
        server = self._scenario.servers[sink]
        connection = pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=self._scenario.databases[sink],
            connect_timeout=_READ_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT kafka_partition, COUNT(*), MIN(kafka_offset), MAX(kafka_offset), "
                "SUM(kafka_offset) FROM orders"
                " GROUP BY kafka_partition"
            )
            return {int(number): Part(*map(int, part)) for number, *part in cursor.fetchall()}

    def _ends(self, state: str) -> Ends:
        """The end of the newest checkpoint that is committed, or at least decided."""
        entries = read_checkpoints(self._scenario.settings["location"]).entries
        bodies = [
            entry.body
            for entry in entries
            if entry.body and (state == "decided" or entry.decision.committed)
        ]
        return ends_of(bodies[-1].offsets.end)
