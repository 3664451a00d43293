"""Tasks that take turns, and a time that only they move.

Real code blocks where it waits, so every task has a stack of its own (a greenlet). One runs at a
time; it hands its turn on at an input or output of its own, to whom the seed says. There are no
threads: neither the machine's scheduler nor its load has a say.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

Condition = Callable[[], bool]


class Crash(BaseException):
    """The process of the task is dead. No handler may see it as a failure to clean up after:
    nothing it does counts.
    """


class Process:
    """An operating-system process: what runs in it dies with it, at once.

    Attributes:
        name: for the trace.
        parent: the process that it works for.
        dead: whether it was killed or has ended.
        on_death: called once, with how long its peers take to notice; such as the closing
            of its connections.
    """

    def __init__(self, name: str, parent: Process | None = None) -> None:
        self.name = name
        self.parent = parent
        self.dead = False
        self.on_death: list[Callable[[float], None]] = []

    def kill(self, notice_s: float = 0.0) -> None:
        """Kill it. Its tasks find out at their next input or output, and have
        no effect any more.
        """
        if not self.dead:
            self.dead = True
            for action in self.on_death:
                action(notice_s)


class Task:
    """Something that runs in a process, in turns.

    Attributes:
        process: whose it is.
        error: what ended it, if it did not end well.
        result: what it leaves to whoever waits for it.
        done: whether it has ended.
    """

    def __init__(self, process: Process, name: str, work: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.work = work
        self.condition: Condition | None = None
        self.deadline_s: float | None = None
        self.error: BaseException | None = None
        self.result: Any = None
        self.done = False
        self.stack: greenlet


class Scheduler:
    """Runs tasks to their end.

    Args:
        random: makes every choice.
        switching: how likely a task hands its turn on at an input or output.
        max_steps: after so many the run is stopped: it does not end.

    Attributes:
        now_s: the time.
        steps: inputs and outputs so far.
        current: whose turn it is.
        failure: why the run was stopped; empty if it was not.
        trace: who did what, in order.
        on_step: hears of every step before it happens, with its process, and says how long
            that one stands still.
    """

    def __init__(self, random: Random, switching: float, max_steps: int) -> None:
        self.random = random
        self.now_s = 0.0
        self.steps = 0
        self.failure = ""
        self.trace: list[tuple[str, str]] = []
        self.current: Task
        self.on_step: Callable[[Process, str], float] = lambda process, what: 0.0
        self._switching = switching
        self._max_steps = max_steps
        self._tasks: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = 0
        self._home = getcurrent()

    # -- what a task may do ------------------------------------------------------------------------

    def step(self, what: str, latency_s: float) -> None:
        """An input or output is about to happen: time passes, others may have their turn, this
        process may be dead.
        """
        task = self.current
        self._check_alive(task)
        self.steps += 1
        self.trace.append((task.name, what))
        pause_s = self.on_step(task.process, what)
        if pause_s and not task.process.dead:
            self.sleep(pause_s)
        if self.steps > self._max_steps:
            self.stop(f"the run has not ended after {self._max_steps} steps")
            raise Crash
        self._pass(self.now_s + latency_s)
        if len(self._tasks) > 1 and self.random.random() < self._switching:
            self._hand_on()
        self._check_alive(task)

    def _check_alive(self, task: Task) -> None:
        if task.process.dead or self.failure:
            raise Crash

    def wait_until(self, condition: Condition, deadline_s: float | None) -> bool:
        """Wait; return whether the condition holds."""
        task = self.current
        if condition():
            return True
        task.condition, task.deadline_s = condition, deadline_s
        self._hand_on()
        task.condition = task.deadline_s = None
        self._check_alive(task)
        return condition()

    def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        self.wait_until(_never, self.now_s + max(seconds, 0.0))

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Task:
        """Add a task; it has its turn later."""
        task = Task(process, name, work)
        task.stack = greenlet(lambda: self._live(task), parent=self._home)
        self._tasks.append(task)
        return task

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do `action` when it is time, whoever has the turn."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when_s, self._timer_number, action))

    def stop(self, why: str) -> None:
        """Something is wrong: nobody does anything any more."""
        self.failure = self.failure or why

    # -- the turns ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until every task has ended."""
        while (task := self._next()) is not None:
            self.current = task
            task.stack.switch()

    def _live(self, task: Task) -> None:
        """The life of a task; its end gives the turn back to `run`."""
        try:
            self._check_alive(task)  # the process may have died before its first turn
            task.work()
        except BaseException as error:  # noqa: BLE001 whoever waits for the task looks at it
            task.error = error
        task.done = True
        self._tasks.remove(task)

    def _hand_on(self) -> None:
        task, following = self.current, self._next()
        assert following is not None, "the task itself is still there"
        if following is not task:
            self.current = following
            following.stack.switch()

    def _next(self) -> Task | None:
        while self._tasks:
            ready = [task for task in self._tasks if self._is_ready(task)]
            if ready:
                return ready[0] if len(ready) == 1 else self.random.choice(ready)
            moments = [task.deadline_s for task in self._tasks if task.deadline_s is not None]
            moments += [when_s for when_s, _, _ in self._timers[:1]]
            if moments:
                self._pass(max(min(moments), self.now_s))
            else:
                self.stop(
                    f"everybody waits for ever: {', '.join(task.name for task in self._tasks)}"
                )
        return None

    def _is_ready(self, task: Task) -> bool:
        if task.condition is None or task.process.dead or self.failure:
            return True
        return (task.deadline_s is not None and task.deadline_s <= self.now_s) or task.condition()

    def _pass(self, until_s: float) -> None:
        while self._timers and self._timers[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._timers)
            action()
        self.now_s = until_s


def _never() -> bool:
    return False
