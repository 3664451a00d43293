"""A read that stands still says why, and a read that is done says whether it
was of the right log.
"""

from __future__ import annotations

import pytest

from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.errors import (
    OffsetOutOfRangeError,
    PartitionVanishedError,
    SourceUnavailableError,
    TopicRecreatedError,
)
from twophase.kafka_client.access import AccessError
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions


class Read:
    """A read of t-0 from 10 to 20."""

    def __init__(self, log: Log, epoch: int = 0, timeout: str = "60 s") -> None:
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "read.timeout": timeout}
        options = KafkaOptions.parse(given)
        self.cluster = MemoryCluster({"t": ("id-1", [log])})
        self.clock = Clock()
        item = OffsetRange("kafka", "t", "id-1", 0, 10, 20, epoch)
        self.guard = ReadGuard(options, self.cluster, item, self.clock)  # type: ignore[arg-type]

    def wait(self, seconds: int, position: int = 12) -> None:
        for _ in range(seconds * 10):
            self.clock.now += 0.1
            self.guard.waited(position)


def test_a_read_that_moves_is_left_alone_however_long_it_takes() -> None:
    read = Read(Log(0, 20))
    for _ in range(10):
        read.wait(30)
        read.guard.moved()


def test_a_read_that_stands_still_says_where_and_what_it_waits_for() -> None:
    read = Read(Log(0, 25))
    read.guard.troubled(12, "no leader")
    with pytest.raises(SourceUnavailableError) as caught:
        read.wait(70)
    assert "t-0:10 to 20" in str(caught.value)
    assert "offset 12" in str(caught.value)
    assert "waits for offset 19" in str(caught.value)
    assert "offsets 0 to 25 are available" in str(caught.value)
    assert "no leader" in str(caught.value)
    assert "check the partition's leader and the network; read.timeout" in caught.value.remedy
    Read(Log(0, 25), timeout="90 s").wait(70)
    read.guard.moved()  # there is a leader
    read.wait(50, position=13)


CERTIFICATE = "SSL handshake failed: certificate verify failed: broker certificate"


def test_a_read_that_stands_still_for_tls_says_what_to_do_about_it() -> None:
    read = Read(Log(0, 25))
    read.guard.troubled(12, CERTIFICATE)
    with pytest.raises(SourceUnavailableError) as caught:
        read.wait(70)
    assert "kafka.ssl.ca.location" in caught.value.remedy


def test_a_failure_of_tls_is_told_though_the_driver_s_client_knows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object) -> None:
        raise SourceUnavailableError("Kafka did not answer.")

    read = Read(Log(0, 25))
    monkeypatch.setattr(read.cluster, "confirm_topic", silent)
    with pytest.raises(SourceUnavailableError, match="did not answer"):
        read.guard.troubled(12, "no leader")
    with pytest.raises(AccessError, match="certificate verify failed") as caught:
        read.guard.troubled(12, CERTIFICATE)
    assert "kafka.ssl.ca.location" in caught.value.remedy


def test_the_brokers_are_not_asked_all_the_time() -> None:
    read = Read(Log(0, 25))
    read.wait(50)
    assert read.cluster.asked <= 12


def test_records_deleted_before_the_position_are_found_within_seconds() -> None:
    read = Read(Log(15, 25))
    with pytest.raises(OffsetOutOfRangeError, match="3 records are gone: offsets 12 to 14"):
        read.wait(2)


def test_a_log_that_ends_before_the_range_does_is_found_within_seconds() -> None:
    read = Read(Log(0, 18))
    with pytest.raises(OffsetOutOfRangeError, match="2 records are gone: offsets 18 to 19"):
        read.wait(2)


def test_a_failed_read_is_a_loss_only_if_something_is_lost() -> None:
    with pytest.raises(SourceUnavailableError, match="wrong checksum"):
        Read(Log(0, 25)).guard.failed(12, "wrong checksum")
    with pytest.raises(OffsetOutOfRangeError):
        Read(Log(13, 25)).guard.failed(12, "out of range")


def test_a_batch_that_is_run_again_is_checked_before_it_is_read() -> None:
    Read(Log(0, 25)).guard.check()
    with pytest.raises(OffsetOutOfRangeError, match="4 records are gone: offsets 10 to 13"):
        Read(Log(14, 25)).guard.check()
    with pytest.raises(OffsetOutOfRangeError, match="2 records are gone: offsets 18 to 19"):
        Read(Log(0, 18)).guard.check()
    with pytest.raises(OffsetOutOfRangeError, match="3 records are gone: offsets 17 to 19"):
        Read(Log(0, 25, epoch=3, epoch_ends={0: 17})).guard.check()
    recreated = Read(Log(0, 25))
    recreated.cluster.logs["t"] = ("id-2", [Log(0, 25)])
    with pytest.raises(TopicRecreatedError):
        recreated.guard.check()


def test_a_finished_read_of_the_right_log_passes() -> None:
    Read(Log(0, 25)).guard.finished()
    Read(Log(0, 25, epoch=3, epoch_ends={0: 22})).guard.finished()
    Read(Log(0, 25, epoch=3), epoch=-1).guard.finished()


def test_a_finished_read_of_a_recreated_or_vanished_topic_fails() -> None:
    read = Read(Log(0, 25))
    read.cluster.logs["t"] = ("id-2", [Log(0, 25)])
    with pytest.raises(TopicRecreatedError):
        read.guard.finished()
    del read.cluster.logs["t"]
    with pytest.raises(PartitionVanishedError):
        read.guard.finished()


def test_a_finished_read_of_a_log_that_was_truncated_meanwhile_fails() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="the log was truncated"):
        Read(Log(0, 25, epoch=3, epoch_ends={0: 17})).guard.finished()
