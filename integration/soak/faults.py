"""The nemesis of the soak: what can happen to a job's driver, its workers and its servers,
and how it is mended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from integration.soak.scenario import SoakDriver, SoakScenario
from twophase.errors import FencedError, TargetUnreachableError
from twophase.testing.services import KafkaService
from twophase.testing.services.deadline import Deadline
from twophase.testing.services.service import Service
from twophase.testing.sessions import kill

_POLL_S = 0.05
_TIMEOUT_S = 600
"""A job that several faults have struck at once, on a busy machine, may stand still for long
without a fault of its own.
"""
_FREEZE_DRIVER_S = (0.5, 3.0)
_TROUBLE = ("CheckpointDeclined", "CommitRetried", "JobRestarting")


@dataclass
class Scene:
    """A job that runs, and all that can be hurt.

    Attributes:
        scenario: the job.
        noise: where random choices come from.
        watch: raises if something else has gone wrong; called in every wait.
        driver: the driver that has the job now.
        refused: drivers that ended before they had begun, because a server did not answer.
    """

    scenario: SoakScenario
    noise: random.Random
    watch: Callable[[], None]
    driver: SoakDriver = field(init=False)
    refused: int = 0
    _drivers: list[SoakDriver] = field(default_factory=list)

    def start_driver(self) -> None:
        """Start a driver, which takes the job over."""
        self.driver = self.scenario.start()
        self._drivers.append(self.driver)

    def stop(self) -> None:
        """Kill what runs."""
        for driver in self._drivers:
            if driver.running:
                driver.kill()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the job goes on."""
        deadline = Deadline(_TIMEOUT_S)
        while not condition():
            self.watch()
            self._supervise(what)
            assert not deadline.over, (
                f"timed out waiting for {what}:\n{self.driver.log.read_text()[-6000:]}"
            )
            time.sleep(_POLL_S)

    def _supervise(self, waiting_for: str) -> None:
        """A driver that could not start because a server was away is started again; once
        started it has to live.
        """
        if self.driver.running:
            return
        ended = self.driver.wait()
        refused = (
            ended.code == TargetUnreachableError.exit_code
            and "\nTargetUnreachableError: " in ended.output
        )
        if not refused or self.driver.has_recovered():
            raise AssertionError(
                f"the driver ended with {ended.code} while waiting for {waiting_for}:\n"
                f"{ended.output}"
            )
        self.refused += 1
        self.start_driver()

    def wait_for_trouble(self, server: str) -> None:
        """Wait until the job has noticed that a server does not answer."""
        since, refused = time.monotonic(), self.refused

        def noticed() -> bool:
            return self.refused > refused or bool(self.scenario.journals.since(since, _TROUBLE))

        self.wait_for(noticed, f"the job to notice that {server} is frozen")


Fault = Callable[[Scene], None]
"""Strikes and mends."""


def faults(scenario: SoakScenario, kafka: KafkaService) -> dict[str, Fault]:
    """All that can happen to a job, by name."""
    services: dict[str, Service] = {"Kafka": kafka}
    services |= {name_of(server): server for server in scenario.servers.values()}
    found: dict[str, Fault] = {
        "SIGKILL driver": _kill_driver,
        "SIGKILL Python worker": _kill_worker,
    }
    found |= {f"SIGKILL {name}": _killing(service) for name, service in services.items()}
    found |= {"SIGSTOP driver": _freeze_driver}
    found |= {f"SIGSTOP {name}": _freezing(name, service) for name, service in services.items()}
    return found | {"second driver": _take_over}


def name_of(server: Service) -> str:
    """MySQL or MariaDB."""
    return type(server).__name__.removesuffix("Service").replace("Sql", "SQL").replace("Db", "DB")


def _killing(service: Service) -> Fault:
    def strike(scene: Scene) -> None:
        service.kill()
        service.restart()

    return strike


def _freezing(name: str, service: Service) -> Fault:
    def strike(scene: Scene) -> None:
        service.suspend()
        try:
            scene.wait_for_trouble(name)
        finally:
            service.resume()

    return strike


def _kill_driver(scene: Scene) -> None:
    scene.driver.kill()
    scene.start_driver()


def _kill_worker(scene: Scene) -> None:
    workers: list[psutil.Process] = []

    def running() -> bool:
        workers[:] = scene.driver.python_workers()
        return bool(workers)

    scene.wait_for(running, "a Python worker to run")
    kill([scene.noise.choice(workers)])


def _freeze_driver(scene: Scene) -> None:
    scene.driver.freeze()
    try:
        time.sleep(scene.noise.uniform(*_FREEZE_DRIVER_S))
    finally:
        scene.driver.thaw()


def _take_over(scene: Scene) -> None:
    """A second driver is started; the first has to find out by itself."""
    first = scene.driver
    scene.start_driver()
    scene.wait_for(lambda: not first.running, "the first driver to find out that it is fenced")
    ended = first.wait()
    assert ended.code == FencedError.exit_code, (
        f"the first driver ended with {ended.code}:\n{ended.output}"
    )
