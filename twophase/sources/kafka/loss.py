"""Checks that records to read are not gone: pure, each error names the lost range (H31, H32).

Nothing is ever skipped: the job stops, and an operator decides what to give up. The remedies are
those of a job that has not read the records; `needed_again` has those of one that has.
"""

from __future__ import annotations

import shlex

from twophase.errors import (
    ConfigError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.kafka_client.partitions import Topic
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset

_AFRESH = (
    "to go on without them, begin another job, with another name and checkpointLocation, the same "
    "targets, and startingOffsets that name where to go on"
)


def check_topic(source: str, entry: PartitionOffset, topic: Topic | None) -> None:
    """Compare one entry with the metadata of its topic; `topic` is None if there is no such topic.

    Raises:
        PartitionVanishedError: the topic or the partition does not exist.
        TopicRecreatedError: the topic has another id.
    """
    who = _who(source, entry)
    lost = f"All records from offset {entry.offset} on are gone; how many is not known."
    if topic is None:
        raise PartitionVanishedError(
            f"{who}: the topic no longer exists. Offset {entry.offset} is wanted, "
            f"nothing is available. {lost}",
            remedy=f"find out who deleted the topic; {release(entry.topic)}",
        )
    if topic.topic_id != entry.topic_id:
        raise TopicRecreatedError(
            f"{who}: the topic was deleted and created again: "
            f"its id was {entry.topic_id} and is {topic.topic_id}. "
            f"Offset {entry.offset} of the old one is wanted. {lost}",
            remedy="offsets of the old topic mean other records now. To read the new topic from "
            f"its first record, {release(entry.topic)}",
        )
    if entry.partition not in topic.epochs:
        raise PartitionVanishedError(
            f"{who}: the partition no longer exists; the topic has {len(topic.epochs)}. "
            f"Offset {entry.offset} is wanted, but nothing is available. {lost}",
            remedy=f"find out who removed the partition; {release(entry.topic)}",
        )


def check_begin(source: str, entry: PartitionOffset, begin: int, end: int) -> None:
    """Compare the next offset with the first one that still exists.

    Raises:
        OffsetOutOfRangeError: records were deleted.
    """
    if entry.offset >= begin:
        return
    raise OffsetOutOfRangeError(
        f"{_who(source, entry)}: offset {entry.offset} is wanted, "
        f"offsets {begin} to {end} are available. "
        f"{_gone(begin - entry.offset)}: offsets {entry.offset} to {begin - 1} were deleted.",
        remedy=f"raise retention.ms or retention.bytes of the topic; {_AFRESH}.",
    )


def check_end(source: str, entry: PartitionOffset, begin: int, end: int) -> None:
    """Compare the next offset with the end of the log.

    Raises:
        OffsetOutOfRangeError: the log ends before it, because it was truncated after
            the job had read it.
    """
    if entry.offset <= end:
        return
    raise OffsetOutOfRangeError(
        f"{_who(source, entry)}: offset {entry.offset} is wanted, "
        f"offsets {begin} to {end} are available. "
        f"{_gone(entry.offset - end)}: offsets {end} to {entry.offset - 1} were "
        "in the log before and no longer are (unclean leader election, or a restored broker).",
        remedy=f"compare what the sinks have with the topic; {_AFRESH}.",
    )


def check_epoch(source: str, entry: PartitionOffset, epoch_end: int) -> None:
    """Compare the next offset with where the leader says the epoch of the entry ended (KIP-320).

    Raises:
        OffsetOutOfRangeError: the log was truncated below the offset and has grown again.
    """
    if epoch_end < 0 or entry.offset <= epoch_end:
        return
    raise OffsetOutOfRangeError(
        f"{_who(source, entry)}: the log was truncated. Offset {entry.offset} of leader epoch "
        f"{entry.leader_epoch} is wanted, that epoch ends at {epoch_end} by now. "
        f"{_gone(entry.offset - epoch_end)}: offsets {epoch_end} to {entry.offset - 1} "
        "were replaced by others (unclean leader election).",
        remedy=f"compare what the sinks have with the topic; {_AFRESH}.",
    )


def check_subscription(offset: SourceOffset, subscribed: frozenset[str]) -> None:
    """Compare the topics of an offset with those in the options.

    Raises:
        ConfigError: the offset has a topic that is no longer subscribed.
    """
    left = sorted({entry.topic for entry in offset.partitions or ()} - subscribed)
    if left:
        raise ConfigError(
            f"Source {offset.source!r} holds offsets of topic {left[0]!r}, "
            "which is no longer subscribed: its records from there on would be skipped.",
            remedy=f"subscribe it again; or {release(left[0])}",
        )


def needed_again(error: TwoPhaseError) -> TwoPhaseError:
    """Return one of these errors for records that a job has read, and that are to be read again.

    Their rows are in the targets: what leads on from unread records would write them twice. What
    else leads on, whoever asked says.
    """
    remedy = (
        "subscribe the topic again."
        if isinstance(error, ConfigError)
        else "restore the topic as it was, with its id and its offsets, from a backup of the "
        "brokers: nothing else brings these records back."
    )
    return type(error)(error.what, remedy=remedy)


def release(topic: str) -> str:
    """Return the remedy that goes on without a topic."""
    return (
        "to go on without what the job has not read of it: twophase repair release-topic JOB.yaml "
        f"--topic {shlex.quote(topic)}"
    )


def unread(source: str, entry: PartitionOffset, end: int) -> str:
    """Return what a job does not read of a partition that it leaves behind at an offset."""
    listed = f"offsets {entry.offset} to {end - 1}: {end - entry.offset} records are not read"
    return (
        f"{_who(source, entry)}: the topic is no longer subscribed. "
        f"{listed if end > entry.offset else f'It was read to its end, offset {end}'}. If it is "
        f"subscribed again, the job goes on at offset {entry.offset}."
    )


def _gone(records: int) -> str:
    return "1 record is gone" if records == 1 else f"{records} records are gone"


def _who(source: str, entry: PartitionOffset) -> str:
    return f"Source {source!r}: {entry.key} (topic {entry.topic!r}, partition {entry.partition})"
