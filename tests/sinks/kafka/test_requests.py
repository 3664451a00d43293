"""Transactional ids that nobody uses, by which the coordinators are asked."""

from __future__ import annotations

from twophase.sinks.kafka.requests import one_in_each_partition


def test_ids_of_nobody_are_in_each_partition_of_kafka_s_log_of_transactions() -> None:
    ids = one_in_each_partition("twophase/orders/job/out/")
    for partitions in (1, 6, 50, len(ids)):
        assert {abs(java_hash(one)) % partitions for one in ids} == {*range(partitions)}


def java_hash(text: str) -> int:
    """As `String.hashCode` computes it."""
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found
