"""The kill test that a sink with `CanRewind` inherits: SIGKILL at lines of its `rewind`."""

from __future__ import annotations

import os
import signal
from typing import ClassVar

from twophase.ids import Attempt
from twophase.protocol.sink import ArrowSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.contract.driver_process import run_driver
from twophase.testing.contract.kill_driver import Rewind, rewind
from twophase.testing.contract.stepping import LINES_AT_MOST, spread
from twophase.testing.harness import FIRST, LINEAGE, SinkHarness


class RewindKillContract(ContractBase):
    """Wherever a rewind dies, the next driver finds it undone or ends it.

    Attributes:
        lines_at_most: the number of lines of `rewind` to test; a longer one is sampled in even
            steps.
    """

    lines_at_most: ClassVar[int] = LINES_AT_MOST

    def test_a_kill_at_any_line_of_a_rewind_is_made_good(self, harness: SinkHarness) -> None:
        """The next driver finds the sink ahead, or all of it taken back; it rewinds again."""
        lines = self._rewound(harness)
        assert lines, "rewind is no Python code that can be stopped at a line"
        for line in spread(lines, self.lines_at_most):
            self._rewound(harness.elsewhere(), line)

    def _rewound(self, harness: SinkHarness, line: int = 0) -> int:
        """Kill a rewind before a line, then rewind again; return how many lines there are."""
        sink = self.opened(harness)
        sink.fence(FIRST)
        self.written(harness, sink, [(3, [0, 1]), (4, [2])])
        sink.subsume(LINEAGE, 4)
        self.written(harness, sink, [(5, [3])])
        sink.close()
        found = 0
        for driver in range(1 + bool(line)):
            code, found = run_driver(rewind, self._rewind(harness, driver, line))
            killed = bool(line) and driver == 0
            assert code == (-signal.SIGKILL if killed else 0), f"line {line}: {code}: {found}"
            self._check_rewound(harness, f"killed before line {line} of rewind", done=not killed)
        return int(found)

    @staticmethod
    def _rewind(harness: SinkHarness, driver: int, line: int) -> Rewind:
        sink, attempt = harness.new_sink(), Attempt(2 + driver, 0)
        assert isinstance(sink, ArrowSink)
        line_of = 0 if driver else line
        return Rewind(sink, {LINEAGE: 3}, attempt, line_of, harness.schema, dict(os.environ))

    def _check_rewound(self, harness: SinkHarness, after: str, *, done: bool) -> None:
        sink = self.opened(harness)
        ids, committed = self.ids_visible(harness), sink.history().committed
        sink.close()
        assert done <= (ids == [0, 1]), after
        assert done <= (committed == {LINEAGE: 3}), after
        assert ids[:2] == [0, 1], after
        assert committed[LINEAGE] > 3 or ids == [0, 1], f"{after}: rows are left, and no proof"
