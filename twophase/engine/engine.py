"""The engine: the life of a job, whoever runs its micro-batches.

1. claim      no second query on this folder in this process (hazard H57)
2. open       every sink checks its target, side by side
3. to 6.      recover, lineage, folder, run: a run of the query (engine/run.py)
7. watch      a failed run goes back to step 3 after the delay of the restart strategy
8. stop       undecided checkpoints are aborted, decided ones are committed
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from twophase.contract.listener import CheckpointListener
from twophase.contract.sink import OpenSink, Sink, SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.failure_manager import FailureManager
from twophase.coordinator.commit.fan_out import FanOut, SideBySide
from twophase.engine.host import QueryHost
from twophase.engine.restart import restart_policy
from twophase.engine.run import Run
from twophase.errors import ConfigError, StopJobError, TwoPhaseError
from twophase.events import JobRestarting, JobStopped, Observers, is_called_back
from twophase.internals.redaction import cause_of
from twophase.options.job_options import JobOptions
from twophase.state.files.folder_rights import check_owner
from twophase.state.files.storage import LocalStorage

_log = logging.getLogger("twophase")
_claimed: dict[str, str] = {}
_claims_lock = threading.Lock()


class Engine:
    """Runs one job over a host. Safe to use from several threads.

    Args:
        host: runs the micro-batches.
        job: the job's name.
        sinks: the sinks by name, in the user's order; not opened.
        options: the job's options.
        observers: receive every event.
        listeners: notified of completed, aborted and subsumed checkpoints, in this order.
        fan_out: takes a step in several sinks; by default side by side, in threads of the host.

    Attributes:
        job: as given.
        options: as given.
        observers: as given.
        storage: the job's folder.
        clock: the host's.
        error: what ended the job; None while it runs and after a clean stop.
    """

    def __init__(
        self,
        host: QueryHost[Any],
        job: str,
        sinks: Mapping[str, Sink],
        options: JobOptions,
        observers: Observers,
        *,
        listeners: Sequence[CheckpointListener] = (),
        fan_out: FanOut | None = None,
    ) -> None:
        self.job = job
        self.options = options
        self.observers = observers
        self.storage = LocalStorage(options.checkpoint_location)
        check_owner(self.storage.root)
        self.clock = host.clock
        self.error: BaseException | None = None
        self._host = host
        self._declared = sinks
        self._sinks: dict[str, OpenSink] = {}
        self._listeners = listeners
        self._fan_out = fan_out or SideBySide(partial(host.thread, f"twophase-{job}"))
        self._failures = FailureManager(options.tolerable_failures)
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._is_started = False
        self._saved: threading.Event | None = None
        self._run: Run | None = None
        self._lock = threading.Lock()

    @property
    def is_active(self) -> bool:
        """True while the job runs or waits for a restart."""
        return not self._finished.is_set()

    def still_runs(self) -> bool:
        """Return whether the host may still note a micro-batch as finished."""
        return self._run is not None and self._run.still_runs()

    def start(self) -> None:
        """Steps 1 to 6; called once. A failure of the first run ends the job.

        Raises:
            TwoPhaseError: the job does not start; nothing of it runs.
        """
        self._is_started = True
        try:
            self._claim()
        except BaseException as error:
            self.error = error
            self._finished.set()
            raise
        try:
            self.open_sinks()
            self._new_run().start()
        except BaseException as error:
            self.error = error
            is_told = self._run is not None and self._run.generation is not None
            self._finish(tell=is_told)
            raise
        self._host.thread(f"twophase-{self.job}", self._watch).start()

    def open_sinks(self) -> Mapping[str, OpenSink]:
        """Step 2; return the open sinks. Called by `start`, and by a repair that writes rows, which
        starts no query.

        Raises:
            ConfigError: a sink's options or columns are not right, or two sinks write to one
                target.
            PreflightError: a target cannot keep the protocol's promises.
        """
        self._sinks = open_side_by_side(
            self.job, self._declared, self._sink_context, self._fan_out, self.observers
        )
        return self._sinks

    def _sink_context(self, sink: str) -> SinkContext:
        context = self._host.sink_context(sink)
        if context.waits is None or context.max_concurrent == 1:
            return context
        others = tuple(name for name in self._declared if name != sink)
        return replace(context, waits=replace(context.waits, behind=others))

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended, and the savepoint that it is stopped with is made or has
        failed; return whether it has.

        Args:
            timeout_s: seconds to wait; None waits for ever. Nothing is waited for in a call of an
                observer, listener or function of the job, which the job waits for.

        Raises:
            BaseException: what ended the job, unless it was stopped cleanly.
        """
        timeout_s = self._to_wait(timeout_s)
        until_s = None if timeout_s is None else self.clock.monotonic_s() + timeout_s
        ended = self._finished.wait(timeout_s)
        if ended and self.error is not None:
            raise self.error
        if not ended or self._saved is None:
            return ended
        left_s = None if until_s is None else max(0.0, until_s - self.clock.monotonic_s())
        return self._saved.wait(left_s)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Step 8; return whether the job has ended.

        Args:
            timeout_s: seconds to wait for the end, as for `await_termination`. The job goes on
                stopping. One that has not started is not waited for.
        """
        timeout_s = self._to_wait(timeout_s if self._is_started else 0.0)
        self._stopping.set()
        with self._lock:
            run = self._run
        if run is not None and self.is_active:
            if timeout_s is None:
                run.stop()
            else:  # a host's query may end late, and the host may be gone: no thread of it
                threading.Thread(target=run.stop, daemon=True).start()
        return self._finished.wait(timeout_s)

    def _to_wait(self, timeout_s: float | None) -> float | None:
        return 0.0 if is_called_back(self.job) else timeout_s

    @contextmanager
    def stopped_after_batch(self) -> Iterator[None]:
        """Step 8 for a savepoint: decide the micro-batch under way first.

        `await_termination` returns in other threads only after the block: a program that ends there
        has its savepoint.

        Raises:
            BaseException: what ended the job instead.
        """
        self._saved = saved = threading.Event()
        try:
            self._stopping.set()
            with self._lock:
                run = self._run
            if run is not None and self.is_active:
                run.stop_after_batch()
            self._finished.wait()
            if self.error is not None:
                raise self.error
            yield
        finally:
            saved.set()

    def _claim(self) -> None:
        """Step 1."""
        folder = str(self.storage.root.resolve())
        with _claims_lock:
            if folder in _claimed:
                raise ConfigError(
                    f"Job {self.job!r}: job {_claimed[folder]!r} already runs on {folder} "
                    "in this process.",
                    remedy="stop that one first, or give this job its own checkpointLocation.",
                )
            _claimed[folder] = self.job

    def _new_run(self) -> Run:
        context = JobContext(
            self.job,
            self.storage,
            self._sinks,
            self.options,
            self.observers,
            self.clock,
            listeners=self._listeners,
            fan_out=self._fan_out,
            failures=self._failures,
        )
        with self._lock:
            self._run = Run(self._host, context, self._stopping, self._run)
            return self._run

    def _watch(self) -> None:
        """Steps 7 and 8."""
        try:
            error = self._restart_until_it_ends()
            if isinstance(error, StopJobError):
                self.error = error  # found by the commit queue, while the job was being stopped
        except BaseException as error:  # noqa: BLE001 such as `sys.exit` in an observer
            self.error = self._host.failed(error)
        finally:
            self._finish()

    def _finish(self, *, tell: bool = True) -> None:
        """Step 8. Whoever waits goes on, whatever is raised on the way there."""
        try:
            self._close()
            if tell:
                self.observers(JobStopped(self.job, cause_of(self.error) if self.error else ""))
        except BaseException as error:  # noqa: BLE001 the same
            self.error = self.error or self._host.failed(error)
        finally:
            self._finished.set()

    def _restart_until_it_ends(self) -> BaseException | None:
        """Return what ended the last run; `error` is set if the job fails with it."""
        policy, restarts, clock = restart_policy(self.options), 0, self.clock
        error = self._await(lambda: self._run.wait() if self._run else None)
        while error is not None and not self._stopping.is_set():
            delay_s = policy(clock.monotonic_s()) if _is_restartable(error) else None
            if delay_s is None:
                self.error = error
                break
            restarts += 1
            self.observers(JobRestarting(self.job, cause_of(error), restarts, delay_s))
            if clock.wait(self._stopping, delay_s):
                break
            error = self._await(self._restart)
        return error

    def _restart(self) -> None:
        run = self._new_run()
        run.start()
        run.wait()

    def _await(self, run: Callable[[], None]) -> BaseException | None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 handed to the restart strategy
            return self._failures.judge_run(self._host.failed(error))
        return None

    def _close(self) -> None:
        closing = {f"sink {name}": sink.close for name, sink in self._sinks.items()}
        for what, close in {**closing, "the host": self._host.close}.items():
            try:
                close()
            except Exception as error:  # noqa: BLE001 all is decided; the savepoint is still to come
                _log.warning("job %s: %s could not be closed: %s", self.job, what, error)
        with _claims_lock:
            _claimed.pop(str(self.storage.root.resolve()), None)


def open_side_by_side(
    job: str,
    declared: Mapping[str, Sink],
    describe: Callable[[str], SinkContext],
    fan_out: FanOut,
    observers: Observers,
) -> dict[str, OpenSink]:
    """Open the sinks of a job; raise the first error in the user's order, and leave none open.

    Called for a start, and by the commands that work on a job's sinks without a query.

    Args:
        job: the job's name.
        declared: by name.
        describe: returns the context of a sink.
        fan_out: takes a step in several.
        observers: of the job.

    Raises:
        ConfigError: a sink's options or columns are not right, or two sinks write to one target.
        PreflightError: a target cannot keep the protocol's promises.
    """
    opened: dict[str, OpenSink] = {}

    def open_sink(context: SinkContext, _: Observers) -> None:
        opened[context.sink] = declared[context.sink].open(context)

    steps = {name: partial(open_sink, describe(name)) for name in declared}
    try:
        fan_out(steps, observers)
        found = {name: opened[name] for name in declared}
        _check_targets(job, found)
    except BaseException:
        for sink in opened.values():
            with suppress(Exception):  # the first error counts
                sink.close()
        raise
    return found


def _check_targets(job: str, sinks: Mapping[str, OpenSink]) -> None:
    targets: dict[str, str] = {}
    for name, sink in sinks.items():
        other = targets.setdefault(sink.target(), name)
        if other != name:
            raise ConfigError(
                f"Job {job!r}: sinks {other!r} and {name!r} write to one target, "
                f"{sink.target()}: they would wait for each other's locks.",
                remedy="write both from one sink, with a union before it.",
            )


def _is_restartable(error: BaseException) -> bool:
    """Errors of others (Spark, a driver, a network) may pass; ours say so themselves."""
    return error.restartable if isinstance(error, TwoPhaseError) else True
