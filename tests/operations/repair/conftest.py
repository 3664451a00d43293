"""The fixtures of the coordinator's tests: a repair begins where a driver has left a job."""

from __future__ import annotations

from tests.coordinator.conftest import another, broken, driver, folder, targets

__all__ = ["another", "broken", "driver", "folder", "targets"]
