"""The use of processors and memory by the parts of a benchmark, and by everything
else on the machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

OTHERS = "others"


@dataclass(frozen=True)
class Sample:
    """Processor seconds used up to a moment, by part.

    Attributes:
        at_s: Unix time.
        cpu_s: by part; `others` is whatever else ran on the machine.
    """

    at_s: float
    cpu_s: dict[str, float]


@dataclass
class Meter:
    """Samples processor times and peak memory in a separate thread. A context manager.

    Attributes:
        roots: a process of each part, to which its descendants also belong. A Spark driver's
            children are separate parts: `JVM` and `Python workers`.
        interval_s: between two samples, each of which costs some milliseconds of processor
            time for each root.
        samples: in order.
    """

    roots: Mapping[str, int]
    interval_s: float
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._known: dict[tuple[int, float], tuple[str, float]] = {}
        self.peak_bytes: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def used(self, begin_s: float, end_s: float) -> dict[str, float]:
        """Processor seconds between two moments, by part."""
        first, last = self._near(begin_s), self._near(end_s)
        return {part: used - first.cpu_s.get(part, 0.0) for part, used in last.cpu_s.items()}

    def others_cores(self) -> float:
        """How many cores others kept busy on average, from the first sample to the last."""
        first, last = self.samples[0], self.samples[-1]
        return (last.cpu_s[OTHERS] - first.cpu_s[OTHERS]) / max(last.at_s - first.at_s, 0.001)

    def peak_mb(self, part: str) -> float:
        """The most memory (RSS) that any single process of a part has held, in MB."""
        return self.peak_bytes.get(part, 0) / 1e6

    def _near(self, at_s: float) -> Sample:
        return min(self.samples, key=lambda sample: abs(sample.at_s - at_s))

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            self._sample()

    def _sample(self) -> None:
        for part, pid in self.roots.items():
            try:
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    self._note(part if process.pid == pid else _part_of(part, process), process)
            except psutil.Error:
                continue
        cpu_s: dict[str, float] = {}
        for part, used in self._known.values():
            cpu_s[part] = cpu_s.get(part, 0.0) + used
        busy = psutil.cpu_times()
        own = psutil.Process().cpu_times()
        total = busy.user + busy.nice + busy.system + busy.irq + busy.softirq
        cpu_s[OTHERS] = total - sum(cpu_s.values()) - own.user - own.system
        self.samples.append(Sample(time.time(), cpu_s))

    def _note(self, part: str, process: psutil.Process) -> None:
        """A process keeps its last reading when it is gone."""
        try:
            times = process.cpu_times()
            self._known[process.pid, process.create_time()] = (part, times.user + times.system)
            self.peak_bytes[part] = max(self.peak_bytes.get(part, 0), peak_bytes(process))
        except psutil.Error:
            return


def _part_of(part: str, process: psutil.Process) -> str:
    """Return the part of a driver's child; a shell command that the JVM forks, with its memory for
    a moment, is no worker.
    """
    try:
        return "Python workers" if process.name().startswith("python") else "JVM"
    except psutil.Error:
        return part


def peak_bytes(process: psutil.Process) -> int:
    """Return a process's peak memory if the kernel records it; otherwise its current memory."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")
        )
    except (OSError, StopIteration):
        return int(process.memory_info().rss)


def describe() -> str:
    """Return the machine and its current load, for the foot of every table."""
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, load average {load}"
