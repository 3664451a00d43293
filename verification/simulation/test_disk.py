"""The simulated disk loses what it may lose, keeps what it must keep, and fails as a disk does."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from twophase.state.files import storage
from twophase.state.files.storage import AlreadyExistsError, LocalStorage, UnclearOutcomeError
from verification.simulation.disk import Disk, Folder
from verification.simulation.files import DiskFault, Files
from verification.simulation.paths import SimulatedPath

CUTS = range(200)


class Machine:
    """A disk, and the real storage on it."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = Disk(Random(seed))
        self.fault: tuple[str, DiskFault] | None = None
        self.files = Files(self.disk, lambda what, latency_s: None, self._fault)

    def _fault(self, kind: str) -> DiskFault | None:
        if self.fault is not None and self.fault[0] == kind:
            _, fault = self.fault
            self.fault = None
            return fault
        return None

    def path(self, text: object) -> SimulatedPath:
        return SimulatedPath(self.files, str(text))

    def storage(self) -> LocalStorage:
        return LocalStorage("/data/job")


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


@pytest.fixture
def machine(patch: pytest.MonkeyPatch) -> Machine:
    return on(Machine(), patch)


def on(machine: Machine, patch: pytest.MonkeyPatch) -> Machine:
    patch.setattr(storage, "os", machine.files)
    patch.setattr(storage, "Path", machine.path)
    return machine


def test_what_was_created_survives_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    for seed in CUTS:
        machine = on(Machine(seed), patch)
        machine.storage().create("log/0000000001", b"data")
        machine.disk.cut_power()
        assert machine.storage().read("log/0000000001") == b"data"


def test_a_name_whose_folder_was_not_synced_may_be_gone_or_not(patch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in CUTS:
        machine = on(Machine(seed), patch)
        machine.storage().create("log/first", b"data")
        machine.files.link("/data/job/log/first", "/data/job/log/second", follow_symlinks=False)
        machine.disk.cut_power()
        found.add(tuple(machine.storage().names("log")))
    assert found == {("first",), ("first", "second")}


def test_bytes_that_were_not_synced_may_be_torn(patch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in CUTS:
        machine = on(Machine(seed), patch)
        machine.storage().create("log/first", b"")
        descriptor = machine.files.open("/data/job/log/second", os.O_WRONLY | os.O_CREAT)
        machine.files.write(descriptor, b"data")
        machine.disk.sync(machine.disk.find("/data/job/log"))
        machine.disk.cut_power()
        found.add(machine.storage().read("log/second"))
    assert {b"", b"data", b"da", b"da\0\0"} <= found


def test_after_a_failed_sync_the_next_one_writes_nothing(machine: Machine) -> None:
    machine.storage().create("log/first", b"")
    descriptor = machine.files.open("/data/job/log/second", os.O_WRONLY | os.O_CREAT)
    machine.files.write(descriptor, b"data")
    machine.fault = ("sync", DiskFault(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        machine.files.fsync(descriptor)
    machine.files.fsync(descriptor)
    machine.disk.sync(machine.disk.find("/data/job/log"))
    assert not machine.disk.is_durable("/data/job/log/second")


@pytest.mark.parametrize("done", [True, False])
def test_a_link_without_a_reply_is_unclear_to_the_storage(machine: Machine, done: bool) -> None:
    found = machine.storage()
    machine.fault = ("link", DiskFault(errno.EIO, done))
    with pytest.raises(UnclearOutcomeError):
        found.create("log/0000000001", b"data")
    assert found.names("log") == (["0000000001"] if done else [])


def test_a_short_write_is_completed_by_the_storage(machine: Machine) -> None:
    machine.fault = ("write", DiskFault(0))
    machine.storage().create("log/0000000001", b"0123456789")
    assert machine.storage().read("log/0000000001") == b"0123456789"


def test_a_name_is_created_once(machine: Machine) -> None:
    machine.storage().create("log/0000000001", b"one")
    with pytest.raises(AlreadyExistsError):
        machine.storage().create("log/0000000001", b"two")
    assert machine.storage().read("log/0000000001") == b"one"


def test_a_folder_that_a_dead_driver_has_made_is_synced_before_anything_is_durable_in_it(
    machine: Machine,
) -> None:
    """Found by the simulation: it died between the making of the folder and the
    sync of the one above.
    """
    machine.storage()
    job = machine.disk.find("/data/job")
    assert isinstance(job, Folder)
    job.put("chk", Folder())
    machine.storage().create("chk/a/_metadata", b"data")
    assert machine.disk.is_durable("/data/job/chk/a/_metadata")
    machine.disk.root.synced.clear()
    machine.storage().create("chk/b/_metadata", b"data")
    assert machine.disk.is_durable("/data/job/chk/b/_metadata")
