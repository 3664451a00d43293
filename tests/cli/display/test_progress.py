"""Progress is a fold of events and of Spark's reports; views only show it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.segment import Segment

from twophase.cli.display.console import JobConsole
from twophase.cli.display.views import (
    LiveView,
    PlainView,
    ProgressMode,
    SilentView,
    View,
    make_view,
)
from twophase.engine.progress import STOPPING, Progress, ProgressTracker
from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointTriggered,
    CommitRetried,
    Event,
    JobRestarting,
    JobStopped,
    OrphansAborted,
    QueryProgressed,
    RecoveryFinished,
    RecoveryStarted,
    SinkAcknowledged,
    SinksChained,
)
from twophase.ids import Attempt

A = Attempt(1, 1)
RECOVERED = [RecoveryStarted("orders", 1), RecoveryFinished("orders", 1, 1, 2, 0.02)]


def taken(number: int, rows: int = 10, **by_sink: int) -> list[Event]:
    rows = sum(by_sink.values()) if by_sink else rows
    return [
        CheckpointTriggered("orders", number, A),
        CheckpointDecided("orders", number, A, rows, 0.8, by_sink),
        CheckpointCommitted("orders", number, rows, ("",), 0.84, 0.021, by_sink),
    ]


def after(*events: Event) -> Progress:
    tracker = ProgressTracker()
    for event in events:
        tracker(event)
    return tracker.progress


def test_checkpoints_and_rows_are_counted() -> None:
    now = after(*RECOVERED, *taken(0), *taken(1, 5))
    assert (now.state, now.committed, now.rows, now.current, now.pending) == (
        "running",
        2,
        15,
        None,
        frozenset(),
    )
    assert now.last is not None
    assert now.last.checkpoint == 1


def test_a_checkpoint_is_pending_between_decision_and_commit() -> None:
    now = after(*RECOVERED, *taken(0)[:2])
    assert (now.current, now.pending) == (0, frozenset({0}))
    assert (
        after(*RECOVERED, *taken(0)[:2], CheckpointReplayed("orders", 0, False)).pending
        == frozenset()
    )
    assert after(*RECOVERED, *taken(0)[:2], *RECOVERED).pending == frozenset()


def test_the_newest_error_is_kept() -> None:
    declined = CheckpointDeclined("orders", 0, A, "CHECKPOINT_DECLINED", "no space", True)
    assert (after(declined).declined, after(declined).last_error) == (1, "no space")
    assert (
        after(declined, CommitRetried("orders", 0, "facts", "down", 1, 0.0, 0.2)).last_error
        == "sink 'facts': down"
    )
    restarted = after(declined, JobRestarting("orders", "boom", 1, 0.0))
    assert (restarted.state, restarted.restarts, restarted.last_error) == ("restarting", 1, "boom")


def test_a_checkpoint_that_the_stop_of_the_job_ended_is_no_failure_and_said_to_be_written_by_the_next_start() -> (  # noqa: E501
    None
):
    stopped = CheckpointDeclined(
        "orders", 3, A, "CHECKPOINT_COORDINATOR_SHUTDOWN", "[SPARK_JOB_CANCELLED] Job 7", False
    )
    now = after(*RECOVERED, CheckpointTriggered("orders", 3, A), stopped)
    assert (now.current, now.declined, now.last_error) == (None, 0, "")
    text = text_of(PlainView, stopped)
    assert "checkpoint 3 (1.1) was not decided before the stop" in text
    assert "none of its rows are visible, and the next start writes them" in text
    assert "CANCELLED" not in text


@pytest.mark.parametrize(("cause", "state"), [("", "stopped"), ("boom", "failed")])
def test_the_end_is_clean_or_not(cause: str, state: str) -> None:
    assert after(*RECOVERED, JobStopped("orders", cause)).state == state


def test_a_job_that_is_stopping_does_not_look_running_again() -> None:
    tracker = ProgressTracker()
    tracker.set_state(STOPPING)
    tracker(RECOVERED[1])
    assert tracker.progress.state == STOPPING


def text_of(view_of: Any, *events: Event, error: Exception | None = None) -> str:
    file = io.StringIO()
    view = view_of("orders", Console(file=file, width=100))
    try:
        with view:
            for event in events:
                view(event)
            view(QueryProgressed("orders", 1000, 12.5, 1310))
            if error is not None:
                raise error
    except RuntimeError:
        pass
    return file.getvalue()


def test_one_line_says_which_sinks_chain_and_why_the_others_do_not() -> None:
    whys = {"lake": "it is written from the driver", "sums": "column 'sum [x]' is computed"}
    some = "not chained: lake (it is written from the driver), sums (column 'sum [x]' is computed)"
    for event, expected in (
        (SinksChained("orders", ("facts", "files"), {}), "chained to the source: facts, files"),
        (SinksChained("orders", ("facts",), whys), f"chained to the source: facts; {some}"),
        (SinksChained("orders", (), whys), some),
    ):
        [line] = text_of(PlainView, event).splitlines()[:-1]
        assert line[20:] == f"orders: {expected}"


def test_the_plain_view_prints_a_line_for_each_checkpoint() -> None:
    lines = re.sub(
        r"after [\d.]+ m?s", "after 1 ms", text_of(PlainView, *RECOVERED, *taken(0, 1000))
    )
    assert [line[20:] for line in lines.splitlines()] == [
        "orders: generation 1 recovered in 20 ms: 1 checkpoint committed again, 2 orphans aborted",
        "orders: checkpoint 0 committed: 1,000 rows in 0.84 s (protocol 21 ms)",
        (
            "orders: running after 1 ms: 1 checkpoint, 1,000 records in, 1,000 rows committed, "
            "0 restarts"
        ),
    ]


@pytest.mark.parametrize(
    ("by_sink", "line", "end"),
    [
        ({"facts": 1000}, "1,000 rows in 0.84 s", "2,000 rows committed,"),
        (
            {"facts": 12_000, "lake": 12_000, "hive": 12_000},
            "12,000 rows into each of 3 sinks in 0.84 s",
            "24,000 rows committed into each of 3 sinks,",
        ),
        (
            {"facts": 1, "lake": 1200, "hive": 0},
            "1 row into facts, 1,200 into lake, 0 into hive in 0.84 s",
            "2 rows committed into facts, 2,400 into lake, 0 into hive,",
        ),
        (
            {"facts": 0, "lake": 0},
            "0 rows into each of 2 sinks in 0.84 s",
            "0 rows committed into each of 2 sinks,",
        ),
        (
            {"a\x1b[31m": 1, "lake": 2},
            "1 row into a [31m, 2 into lake in",
            "2 rows committed into a [31m, 4 into lake",
        ),
    ],
)
def test_rows_are_shown_by_sink_and_never_as_a_sum_over_sinks(
    by_sink: dict[str, int], line: str, end: str
) -> None:
    first, *_, last = text_of(PlainView, *taken(0, **by_sink), *taken(1, **by_sink)).splitlines()
    assert f"checkpoint 0 committed: {line}" in first
    assert end in last


def test_an_event_without_rows_by_sink_is_shown_by_its_sum() -> None:
    """Of who makes events by himself, as a test of an observer does."""
    event = CheckpointCommitted("orders", 0, 15, ("",), 0.84, 0.021)
    assert "committed: 15 rows in 0.84 s" in text_of(PlainView, event)
    assert hash(event) == hash(
        CheckpointCommitted("orders", 0, 15, ("",), 0.84, 0.021, {"facts": 15})
    )


def test_the_plain_view_prints_what_an_operator_should_know() -> None:
    events = [
        CheckpointDeclined("orders", 3, A, "CHECKPOINT_EXPIRED", "too \x1b[31mslow\n[red]", True),
        CommitRetried("orders", 3, "facts", "down", 1, 3.0, 0.2),
        OrphansAborted("orders", "facts", ("a",)),
        CheckpointReplayed("orders", 3, False),
        JobRestarting("orders", "boom", 1, 2.0),
    ]
    text = text_of(PlainView, *events)
    assert (
        "checkpoint 3 (1.1) declined, trying again: CHECKPOINT_EXPIRED: too [31mslow [red]" in text
    )
    assert "checkpoint 3 has waited 3.00 s for sink 'facts', next try in 0.20 s: down" in text
    assert "1 orphan aborted in sink 'facts'" in text
    assert "checkpoint 3 replayed: it was already decided, so no sink wrote" in text
    assert "restart 1 in 2.00 s: boom" in text


def test_a_run_that_fails_before_the_job_began_looks_failed() -> None:
    assert "failed after" in text_of(PlainView, error=RuntimeError("Spark does not start"))


def test_the_live_view_shows_rows_by_sink() -> None:
    text = text_of(LiveView, *RECOVERED, *taken(0, facts=1000, lake=1000))
    assert "1,000 rows into each of 2 sinks" in re.sub(r"[\s│]+", " ", text[text.rindex("╭") :])


def test_the_live_view_shows_the_job_in_a_panel() -> None:
    text = text_of(
        LiveView,
        *RECOVERED,
        *taken(0, 1000),
        *taken(1)[:2],
        JobRestarting("orders", "boom", 1, 2.0),
    )
    last = text[text.rindex("╭") :]
    for part in (
        "orders  restarting",
        "1,000   12 a second",
        "1,310 records",
        "took 0.84 s (protocol 21 ms)   1,000 rows",
    ):
        assert part in last
    assert "pending commits  1   checkpoint 1 " in last
    assert "last error       boom" in last
    assert "restart 1 in 2.00 s: boom" in text[: text.rindex("╭")]


def test_the_panel_says_what_a_start_waits_for() -> None:
    began = [*RECOVERED, CheckpointTriggered("orders", 0, A)]
    written = [*began, SinkAcknowledged("orders", 0, A, "facts", 2, 10, 0.5)]
    assert "earlier checkpoints are being committed or aborted" in text_of(LiveView, RECOVERED[0])
    assert "Spark is planning the first micro-batch" in text_of(LiveView, *RECOVERED)
    assert "0   pre-commit, Spark's Python workers are starting" in text_of(LiveView, *began)
    assert "workers are starting" not in text_of(LiveView, *written)
    assert "planning" not in text_of(LiveView, *RECOVERED, *taken(0))


@pytest.mark.parametrize("width", [60, 200])
def test_the_panel_leaves_room_for_the_echo_of_ctrl_c(width: int) -> None:
    """If `^C` behind the last line wrapped, the panel would be drawn a line too low, and
    its top would stay.
    """
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    view = LiveView("orders", console)
    lines = console.render_lines(view.panel(), pad=False)
    assert len(lines) > 5
    assert all(Segment.get_line_length(line) + len("^C") < width for line in lines)


class Gone(io.StringIO):
    """A pipe whose reader has gone."""

    def __init__(self) -> None:
        super().__init__()
        self._reading, self._writing = os.pipe()
        os.close(self._reading)

    def fileno(self) -> int:
        return self._writing

    def write(self, text: str) -> int:
        return os.write(self._writing, text.encode())


@pytest.mark.parametrize("kind", [PlainView, LiveView])
def test_a_console_that_nobody_reads_falls_silent_and_ends_nothing(
    kind: Callable[[str, Console], View],
) -> None:
    console = JobConsole(file=Gone(), force_terminal=kind is LiveView, width=80)
    with kind("orders", console) as view:
        for event in [*RECOVERED, JobRestarting("orders", "boom", 1, 2.0), *taken(0)]:
            view(event)
    assert console.quiet
    assert view.tracker.progress.committed == 1


@pytest.mark.parametrize(
    ("mode", "terminal", "kind"),
    [
        (ProgressMode.AUTO, True, LiveView),
        (ProgressMode.AUTO, False, PlainView),
        (ProgressMode.LIVE, False, LiveView),
        (ProgressMode.PLAIN, True, PlainView),
        (ProgressMode.NONE, True, SilentView),
    ],
)
def test_auto_is_live_on_a_terminal(mode: ProgressMode, terminal: bool, kind: type[View]) -> None:
    assert (
        type(make_view(mode, "orders", Console(file=io.StringIO(), force_terminal=terminal)))
        is kind
    )
