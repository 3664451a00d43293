"""A race of a fence against a writer that is stopped at one line of its `pre_commit`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from twophase.errors import FencedError, TwoPhaseError
from twophase.ids import Attempt, Subtask
from twophase.protocol.sink import OpenArrowSink
from twophase.testing.contract.stepping import Lines
from twophase.testing.harness import FIRST, Identity, identity, new_writer, transaction_id

# A fence may wait for something that the writer holds, such as a lock; then the writer goes on
# while the fence waits.
_FENCE_WAITS_S = 0.2
_FENCE_TRIES = 3


class FenceRace:
    """Races of one sink, each in its own generation and checkpoint.

    Args:
        sink: open, and fenced for the first attempt.
        batch: the rows that are written.
    """

    def __init__(self, sink: OpenArrowSink, batch: pa.RecordBatch) -> None:
        self._sink = sink
        self._batch = batch
        self._generation = FIRST.generation

    def count_lines(self) -> int:
        """Return how many lines `pre_commit` runs when nothing interferes."""
        pieces: list[Identity] = []
        count = self._write(lambda _: None, pieces)
        assert count, "the writer's pre_commit is no Python code that can be stopped at a line"
        assert pieces == [identity(piece) for piece in self._sink.in_doubt()]
        self._sink.abort(self._sink.in_doubt())
        return count

    def run(self, line: int) -> list[Identity]:
        """Raise the fence with a writer stopped before `line`; return pieces its scan missed."""
        made: list[Identity] = []
        standing, go_on = threading.Event(), threading.Event()

        def stand(at: int) -> None:
            if at == line:
                standing.set()
                go_on.wait()

        def write() -> None:
            try:
                with suppress(Exception):  # a closed writer may raise anything
                    self._write(stand, made)
            finally:
                standing.set()

        writer = threading.Thread(target=write)
        writer.start()
        standing.wait()
        timer = threading.Timer(_FENCE_WAITS_S, go_on.set)
        timer.start()
        try:
            self._generation += 1
            found = self._close_below(Attempt(self._generation, 1))
        finally:
            timer.cancel()
            go_on.set()
            writer.join()
        left = self._sink.in_doubt()
        self._sink.abort(left)
        return sorted({*made, *map(identity, left)} - found)

    def _close_below(self, attempt: Attempt) -> set[Identity]:
        """Return the pieces found while the fence was raised, and by the scan after it."""
        found: set[Identity] = set()
        for _ in range(_FENCE_TRIES):
            try:
                self._sink.fence(attempt)
            except FencedError:
                raise
            except TwoPhaseError:
                # a piece that appeared meanwhile blocks the fence, and has to be removed first
                pieces = self._sink.in_doubt()
                found |= {identity(piece) for piece in pieces}
                self._sink.abort(pieces)
            else:
                return found | {identity(piece) for piece in self._sink.in_doubt()}
        raise AssertionError(f"the fence could not be raised in {_FENCE_TRIES} tries")

    def _write(self, at_line: Callable[[int], None], made: list[Identity]) -> int:
        attempt = Attempt(self._generation, 1)
        writer = new_writer(
            self._sink, transaction_id(self._generation, attempt), Subtask(0, self._generation)
        )
        try:
            writer.write(self._batch)
            with Lines(writer, "pre_commit", at_line) as lines:
                piece = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        if piece is not None:
            made.append(identity(piece))
        return lines.count
