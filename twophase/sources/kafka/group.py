"""Group offsets, committed by the driver for others' information; the job never needs them.

The group is not joined, so nothing is rebalanced. A commit fails while the group
has active members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twophase.errors import ConfigError
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.engines import close_cluster, cluster_of, planner_of
from twophase.sources.kafka.offsets import WHERE, SourceOffset
from twophase.sources.kafka.options import KafkaOptions


class GroupOffsets:
    """The offsets of one consumer group.

    Args:
        options: the options of the source, as the user gave them.

    Raises:
        ConfigError: an option is wrong, or there is no `group.id`.
    """

    def __init__(self, options: Mapping[str, Any] | KafkaOptions) -> None:
        self._options = (
            options if isinstance(options, KafkaOptions) else KafkaOptions.parse(options)
        )
        if self._options.group_id is None:
            raise ConfigError(
                f"{WHERE}: there is no group.id, so there are no group offsets.",
                remedy="set `group.id=NAME`.",
            )
        self._group = self._options.group_id

    def commit(self, line: str) -> None:
        """Commit the offsets in an offset line, never backwards, and not those committed already.

        Raises:
            CorruptRecordError: the line is not an offset of this source.
            SourceUnavailableError: not everything was committed; calling again is safe.
            PreflightError: permissions are missing.
        """
        offsets = SourceOffset.parse(line).by_partition()
        cluster = cluster_of(self._options)
        committed = cluster.committed(self._group, list(offsets)) if offsets else {}
        ahead = [entry for key, entry in offsets.items() if entry.offset > committed.get(key, -1)]
        if ahead:
            cluster.commit(self._group, ahead)

    def lower(self, line: str, *, grows: bool = True) -> None:
        """Lower the group's offsets to those in an offset line, where they are ahead of it.

        A partition that was found after the line is read from its first record on.

        Args:
            line: where the job begins after a rewind.
            grows: whether the source also reads partitions that are added later.

        Raises:
            TwoPhaseError: as `commit`.
        """
        wanted = planner_of(self._options).beginning(SourceOffset.parse(line), grows=grows)
        cluster = cluster_of(self._options)
        committed = cluster.committed(self._group, [entry.key for entry in wanted])
        ahead = [entry for entry in wanted if entry.offset < committed.get(entry.key, -1)]
        if ahead:
            cluster.commit(self._group, ahead)

    def committed(self, line: str) -> dict[Partition, int]:
        """Return the committed offsets of the partitions in an offset line, where there are any."""
        return cluster_of(self._options).committed(
            self._group, list(SourceOffset.parse(line).by_partition())
        )

    def close(self) -> None:
        """Close the connection."""
        close_cluster(self._options)
