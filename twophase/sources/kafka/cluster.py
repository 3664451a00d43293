"""The source's requests to the brokers: those of any client, and offsets by time, group and epoch.

Requests are retried on transient failures until `request.timeout` is over. No group is ever joined.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import IsolationLevel as KafkaIsolation
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.structs import OffsetAndMetadata

from twophase.errors import SourceUnavailableError
from twophase.kafka_client.client import BACKOFF_S, BrokerClient
from twophase.kafka_client.partitions import LogEnd, Partition
from twophase.sources.kafka.loss import check_topic
from twophase.sources.kafka.offsets import PartitionOffset

_POLICY = "cleanup.policy"
_CONFIRM_S = 2.0


class Cluster(BrokerClient):
    """What the source asks the brokers."""

    def cleanup_policies(self, names: Collection[str]) -> dict[str, str]:
        """Return `cleanup.policy` by topic; those whose settings we may not read are left out."""
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, {_POLICY: None}) for name in names]
        found = self.call(
            "settings of topics", lambda admin: admin.describe_configs(wanted, config_filter="all")
        )
        settings = found.get("topic", {})
        return {name: str(one[_POLICY]["value"]) for name, one in settings.items() if one}

    def at_timestamp(
        self, partitions: Collection[Partition], milliseconds: int
    ) -> dict[Partition, int | None]:
        """Return the first offset at or after a time, by partition; None if there is none.

        Records of open transactions count: under `read_committed` brokers tell of none behind the
        last stable offset.
        """
        wanted = dict.fromkeys(partitions, milliseconds)
        found = self._offsets("offsets by time", wanted, KafkaIsolation.READ_UNCOMMITTED)
        return {key: item.offset if item.offset >= 0 else None for key, item in found.items()}

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of a group; partitions without one are left out."""
        wanted = [TopicPartition(*key) for key in partitions]
        found = self.call(
            f"committed offsets of group {group!r}",
            lambda admin: admin.list_group_offsets({group: wanted})[group],
        )
        return {Partition(*key): item.offset for key, item in found.items() if item.offset >= 0}

    def commit(self, group: str, entries: Iterable[PartitionOffset]) -> None:
        """Commit offsets for a group without joining it.

        Raises:
            SourceUnavailableError: a partition was not committed, as after somebody has joined the
                group.
        """
        wanted = {
            TopicPartition(*entry.key): OffsetAndMetadata(entry.offset, "", entry.leader_epoch)
            for entry in entries
        }

        def commit(admin: Any) -> None:
            for key, error in admin.alter_group_offsets(group, wanted).items():
                if error is kafka_errors.UnknownMemberIdError:
                    raise SourceUnavailableError(
                        f"Kafka at {self._options.bootstrap_servers} takes no offsets: group "
                        f"{group!r} has members, which alone commit them.",
                        remedy="let its other consumers leave, or set another group.id.",
                    )
                if error is not kafka_errors.NoError:
                    raise error(f"{Partition(*key)} of group {group!r}")

        self.call(f"commit of group {group!r}", commit)

    def epoch_ends(self, entries: Collection[PartitionOffset]) -> dict[Partition, int]:
        """Return where the leaders say each entry's epoch ended (KIP-320); -1 if unknown."""
        return self.call(
            "ends of leader epochs", lambda admin: admin._manager.run(_epoch_ends, admin, entries)
        )

    def confirm_topic(self, source: str, entry: PartitionOffset) -> None:
        """Check one entry against its topic's metadata; retry before calling anything gone.

        Raises:
            SourceLossError: the topic or partition is gone, or was recreated.
        """
        deadline = time.monotonic() + _CONFIRM_S
        while True:
            topic = self.topics([entry.topic]).get(entry.topic)
            missing = topic is None or (
                topic.topic_id == entry.topic_id and entry.partition not in topic.epochs
            )
            if not missing or time.monotonic() >= deadline:
                check_topic(source, entry, topic)
                return
            time.sleep(BACKOFF_S)


def covering_ends(
    cluster: Cluster, offsets: Mapping[Partition, int], ends: Mapping[Partition, LogEnd]
) -> dict[Partition, LogEnd]:
    """Return the ends of partitions, none below an offset that the log has.

    Under `read_committed` an end is the last stable offset. An open transaction holds it back, also
    below what a reader of uncommitted records has read: only the high watermark tells what is gone.

    Args:
        cluster: is asked for high watermarks, of the partitions whose offset lies behind their end.
        offsets: of records to be read next.
        ends: as the cluster has given them.

    Returns:
        Where an offset lies behind the end, the offset itself; the high watermark if it lies behind
        that too, so that records are gone.
    """
    behind = [key for key, offset in offsets.items() if offset > ends[key].offset]
    highs = cluster.high_watermarks(behind)
    found = dict(ends)
    for key in behind:  # one that was deleted just now has none: the next look reports it
        high = highs[key].offset if key in highs else offsets[key]
        found[key] = replace(ends[key], offset=min(offsets[key], high))
    return found


async def _epoch_ends(admin: Any, entries: Collection[PartitionOffset]) -> dict[Partition, int]:
    # The admin client has no public call for OffsetForLeaderEpoch; this uses its internals.
    leaders = await admin._async_get_leader_for_partitions(
        {TopicPartition(*entry.key) for entry in entries}
    )
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    found: dict[Partition, int] = {}
    for leader, keys in leaders.items():
        topics: dict[str, list[Any]] = {}
        for entry in entries:
            if TopicPartition(*entry.key) in keys:
                item = asked.OffsetForLeaderPartition(
                    partition=entry.partition, leader_epoch=entry.leader_epoch
                )
                topics.setdefault(entry.topic, []).append(item)
        listed = [asked(topic=name, partitions=items) for name, items in topics.items()]
        response = await admin._manager.send(
            OffsetForLeaderEpochRequest(topics=listed), node_id=leader
        )
        for topic in response.topics:
            for item in topic.partitions:
                error = kafka_errors.for_code(item.error_code)
                if error is not kafka_errors.NoError:
                    raise error(f"{topic.topic}-{item.partition}")
                found[Partition(topic.topic, item.partition)] = item.end_offset
    return found
