"""Topics of a cluster: each has a replica on every broker, and two of them take a record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from typing_extensions import override

from harness.kafka_cluster import BROKERS, MIN_IN_SYNC, KafkaCluster
from integration.kafka.topics import Topics
from twophase.testing.harness import fresh_name
from twophase.testing.services.ports import LOOPBACK, free_ports

MIN_IN_SYNC_OPTION = "min.insync.replicas"


class ClusterTopics(Topics):
    """An admin client and a producer that know all brokers of a cluster.

    Args:
        cluster: the cluster.
        replicas: of each topic that is created.
    """

    def __init__(self, cluster: KafkaCluster, replicas: int = BROKERS) -> None:
        self._cluster = cluster
        self._replicas = replicas
        super().__init__(cluster.bootstrap_servers)

    @override
    def create(
        self, partitions: int = 1, name: str | None = None, settings: dict[str, str] | None = None
    ) -> str:
        topic = name or fresh_name("cluster")
        least = {MIN_IN_SYNC_OPTION: str(min(MIN_IN_SYNC, self._replicas))}
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._replicas,
            topic_configs=least | (settings or {}),
        )
        self._when_connected(lambda: self.admin.create_topics([new]))
        self._cluster.wait_until_known(topic)
        return topic


def settings_of(servers: str, topic: str) -> Mapping[str, str]:
    """Return the settings of a topic."""
    wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
    with closing(KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        found = admin.describe_configs([wanted], config_filter="all")["topic"][topic]
    return {name: one["value"] for name, one in found.items()}


def replicas_of(servers: str, topic: str) -> set[int]:
    """Return how many replicas the partitions of a topic have."""
    with closing(KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        [found] = admin.describe_topics([topic])
    return {len(one["replica_nodes"]) for one in found["partitions"]}


def closed_port() -> str:
    """The address of a port that nobody listens on."""
    [port] = free_ports(1)
    return f"{LOOPBACK}:{port}"
