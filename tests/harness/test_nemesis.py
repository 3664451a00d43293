"""Drivers that a test starts and waits for."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nemesis import DriverProcess


class IdleDriver(DriverProcess):
    """A driver that waits for its end: this file, as a program."""

    module = "tests.harness.test_nemesis"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[IdleDriver]:
    started = IdleDriver({}, tmp_path)
    yield started
    if started.running:
        started.kill()


def test_what_the_end_of_a_driver_brings_about_is_waited_for(driver: IdleDriver) -> None:
    """The driver ends while the condition is looked at, after what it looks at."""

    def ended() -> bool:
        if driver.running:
            driver.kill()
            return False
        return True

    driver.wait_for(ended, "its end")


def test_a_driver_that_ends_before_a_condition_holds_is_said(driver: IdleDriver) -> None:
    def never() -> bool:
        if driver.running:
            driver.kill()
        return False

    with pytest.raises(AssertionError, match="the driver ended while waiting for a miracle"):
        driver.wait_for(never, "a miracle")


if __name__ == "__main__":
    signal.pause()
