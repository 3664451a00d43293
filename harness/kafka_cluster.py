"""A Kafka cluster of three brokers, each of which is a controller too, for tests that kill them.

1. start: all brokers at once, since none of them answers before it has found a second one.
2. kill, restart: single brokers, any number of times, on the same data and ports.
3. replace: a new broker, which is no controller, gets all that one of them has.
4. stop: end all of them and remove their data.

Kafka's own topics have three replicas, and a record of theirs counts as written once two have it;
other topics have one by default, as Kafka's defaults are. A broker that is killed is replaced as
leader once its session is over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.metadata import CoordinatorType
from typing_extensions import override

from twophase.errors import ServiceError
from twophase.kafka_client.client import Admin
from twophase.testing.services.deadline import Deadline
from twophase.testing.services.kafka_install import kafka_template, random_id
from twophase.testing.services.kafka_program import KafkaProgram, class_archive_options
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.ports import LOOPBACK, free_ports
from twophase.testing.services.process import Launch

T = TypeVar("T")
BROKERS = 3
MIN_IN_SYNC = 2
_HEAP_MB = 256
_STARTUP_TIMEOUT_S = 600.0
_WAIT_TIMEOUT_S = 300.0
_POLL_S = 0.05
_REQUEST_TIMEOUT_MS = 10_000
_SETTINGS = {
    "offsets.topic.replication.factor": str(BROKERS),
    "transaction.state.log.replication.factor": str(BROKERS),
    "transaction.state.log.min.isr": str(MIN_IN_SYNC),
    # Transactions have different coordinators.
    "transaction.state.log.num.partitions": str(2 * BROKERS),
    "share.coordinator.state.topic.replication.factor": str(BROKERS),
    "share.coordinator.state.topic.min.isr": str(MIN_IN_SYNC),
    # A busy machine lets brokers wait for the processor: they must not lose their sessions. The
    # interval is how long a heartbeat may take, too.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "initial.broker.registration.timeout.ms": "300000",
    "controller.quorum.fetch.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "6000",
    # Leaders stay where a kill has moved them.
    "auto.leader.rebalance.enable": "false",
}
"""Broker settings of the cluster, beside those of every test broker."""


class _ClusterProgram(KafkaProgram):
    """One broker of a cluster; ready when the cluster lists it.

    Args:
        node: its id.
        cluster_id: of the cluster.
        controller_ports: of all controllers, by node; a broker that has none is no controller.
    """

    port_count = 1

    def __init__(
        self,
        node: int,
        cluster_id: str,
        controller_ports: Mapping[int, int],
    ) -> None:
        voters = ",".join(f"{one}@{LOOPBACK}:{port}" for one, port in controller_ports.items())
        super().__init__(
            {**_SETTINGS, "node.id": str(node), "controller.quorum.voters": voters},
            lambda: [f"-Xmx{_HEAP_MB}m", *class_archive_options()],
        )
        self._node = node
        self._cluster_id = cluster_id
        self._controller_port = controller_ports.get(node)

    @property
    @override
    def label(self) -> str:
        return f"{self.name} broker {self._node}"

    @override
    def prepare(self, data: Path) -> None:
        shutil.copytree(kafka_template(), data / "logs")
        self.format(data)

    def format(self, data: Path) -> None:
        """Give a data folder, copied from the template, to this broker."""
        identity = {
            "version": 1,
            "node.id": self._node,
            "cluster.id": self._cluster_id,
            "directory.id": random_id(),
        }
        text = "".join(f"{key}={value}\n" for key, value in identity.items())
        (data / "logs" / "meta.properties").write_text(text)

    @override
    def launch(self, data: Path) -> Launch:
        client = self.port
        if self._controller_port is None:
            listeners = f"PLAINTEXT://{LOOPBACK}:{client}"
            self._settings = {**self._settings, "process.roles": "broker", "listeners": listeners}
        self.ports = [client, self._controller_port or 0]  # the other brokers know the second one
        return super().launch(data)

    @override
    def probe(self) -> None:
        with closing(_admin(self.bootstrap_servers)) as admin:
            described = admin.describe_cluster()
        if described["cluster_id"] != self._cluster_id:
            raise ServiceError(f"Port {self.port} belongs to another Kafka.")
        if self._node not in _nodes(described):
            raise ServiceError(f"{self.label} is not in service yet.")


class KafkaCluster:
    """Three brokers. As a context manager it starts on entry and stops on exit. Not thread-safe.

    Brokers are numbered from 1, as their node ids are.
    """

    def __init__(self) -> None:
        nodes = range(1, BROKERS + 1)
        self._controller_ports = dict(zip(nodes, free_ports(BROKERS), strict=True))
        self._cluster_id = random_id()
        self._programs: dict[int, _ClusterProgram] = {}
        self._servers: dict[int, LocalServer] = {}
        for node in nodes:
            self._add(node)
        self._down: set[int] = set()

    def _add(self, node: int) -> None:
        program = _ClusterProgram(node, self._cluster_id, self._controller_ports)
        self._programs[node] = program
        self._servers[node] = LocalServer(
            program, detached=False, startup_timeout_s=_STARTUP_TIMEOUT_S
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all brokers; return when each of them lists all, and transactions can begin."""
        kafka_template()  # fetched once, and not by three threads
        try:
            self._at_once(self._servers, lambda node: self._servers[node].start())
            self.coordinator_of("the first one")  # it makes Kafka's log of transactions
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all brokers and remove their data."""
        for node in self.live:
            with suppress(ServiceError):  # it has not been started
                self._servers[node].kill()  # on SIGTERM it would wait for a second controller
        for server in self._servers.values():
            server.stop()
        self._down.clear()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker, those that were replaced too, separated by commas."""
        return ",".join(map(self.address, self._programs))

    def address(self, broker: int) -> str:
        """Return `host:port` of one broker."""
        return self._programs[broker].bootstrap_servers

    @property
    def live(self) -> list[int]:
        """The brokers that are not killed."""
        return [node for node in self._servers if node not in self._down]

    def kill_broker(self, broker: int) -> None:
        """SIGKILL one broker; its data stays for `restart`."""
        self._servers[broker].kill()
        self._down.add(broker)

    def restart(self, *brokers: int) -> None:
        """Start brokers again, all at once; shut down first those that run."""
        self._at_once(brokers, lambda node: self._servers[node].restart())
        self._down -= {*brokers}

    def restart_all_killed(self) -> None:
        """Start all killed brokers again; return when all replicas are in sync."""
        if self._down:
            self.restart(*self._down)
        self.wait_until_whole()

    def replace(self, broker: int) -> int:
        """Give all that a broker has to a new one, and kill it for good; return the new one."""
        new = max(self._servers) + 1
        self._add(new)
        self._servers[new].start()
        with closing(_admin(self.bootstrap_servers)) as admin:
            moved = {
                TopicPartition(topic["name"], one["partition_index"]): [
                    new if node == broker else node for node in one["replica_nodes"]
                ]
                for topic in admin.describe_topics(None)
                for one in topic["partitions"]
                if broker in one["replica_nodes"]
            }
            admin.alter_partition_reassignments(moved)
        self._asked(lambda admin: broker not in _replicas(admin), f"nothing on broker {broker}")
        self.wait_until_whole()
        self.kill_broker(broker)
        self.wait_until_fenced(broker)
        self._down.remove(broker)
        self._servers.pop(broker).stop()
        return new

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the live broker that leads a partition; wait until there is one."""

        def look(admin: Any) -> int | None:
            leader = int(_partition(admin, topic, partition)["leader_id"])
            return leader if leader in self.live else None

        return self._asked(look, f"a leader of {topic}-{partition}")

    def coordinator_of(self, transactional_id: str) -> int:
        """Return the live broker that coordinates a transactional id; wait until there is one."""

        def look(admin: Any) -> int | None:
            kind = CoordinatorType.TRANSACTION
            found: int = admin._manager.run(admin._find_coordinator_id, transactional_id, kind)
            return found if found in self.live else None

        return self._asked(look, f"a coordinator of {transactional_id}")

    def wait_until_led(self, topic: str) -> None:
        """Wait until live brokers lead all partitions of a topic."""

        def look(admin: Any) -> bool:
            leaders = {one["leader_id"] for one in _described(admin, topic)["partitions"]}
            return leaders <= {*self.live}

        self._asked(look, f"leaders of {topic}")

    def wait_until_known(self, topic: str) -> None:
        """Wait until all live brokers know a topic: each has metadata of its own."""
        for node in self.live:
            what = f"broker {node} to know {topic}"
            self._asked(lambda admin: bool(_described(admin, topic)), what, node)

    def wait_until_on(self, topic: str, brokers: Collection[int]) -> None:
        """Wait until all partitions of a topic are on these brokers, in sync, and on no others."""

        def look(admin: Any) -> bool:
            return all(
                {*one["isr_nodes"]} == {*one["replica_nodes"]} == {*brokers}
                for one in _described(admin, topic)["partitions"]
            )

        self._asked(look, f"{topic} on {brokers}")

    def wait_until_fenced(self, broker: int) -> None:
        """Wait until the live brokers do not list a killed one any more."""
        for node in self.live:
            self._asked(
                lambda admin: broker not in _nodes(admin.describe_cluster()),
                f"broker {node} to miss broker {broker}",
                node,
            )

    def wait_until_whole(self) -> None:
        """Wait until each broker lists all, and all replicas of all topics are in sync."""
        for node in self._servers:
            self._asked(_is_whole, f"broker {node} to list replicas in sync", node)

    def _asked(self, look: Callable[[Any], T | None], what: str, broker: int | None = None) -> T:
        """Return what a function makes of a client, asked until it is true.

        Each time a new client is opened: an old one keeps coordinators in its memory.

        Args:
            look: the function.
            what: is waited for.
            broker: which is asked; any live one if it is None.
        """
        deadline = Deadline(_WAIT_TIMEOUT_S)
        trouble: Exception | None = None
        while not deadline.over:
            asked = self.live if broker is None else [broker]
            try:
                with closing(_admin(",".join(map(self.address, asked)))) as admin:
                    if found := look(admin):
                        return found
            except kafka_errors.KafkaError as error:
                trouble = error
            time.sleep(_POLL_S)
        raise ServiceError(f"Waited {_WAIT_TIMEOUT_S:g} s for {what}.") from trouble

    @staticmethod
    def _at_once(brokers: Iterable[int], call: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(BROKERS) as pool:
            for done in [pool.submit(call, node) for node in brokers]:
                done.result()


def _admin(servers: str) -> Admin:
    return Admin(
        bootstrap_servers=servers.split(","),
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        bootstrap_timeout_ms=_REQUEST_TIMEOUT_MS,
    )


def _nodes(described: Mapping[str, Any]) -> set[int]:
    """Return the brokers in service: a killed one stays registered, and is listed as fenced."""
    return {one["broker_id"] for one in described["brokers"] if not one["is_fenced"]}


def _described(admin: Any, topic: str) -> Mapping[str, Any]:
    found: Mapping[str, Any]
    [found] = admin.describe_topics([topic])
    error = kafka_errors.for_code(found["error_code"])
    if error is not kafka_errors.NoError:
        raise error(topic)
    return found


def _partition(admin: Any, topic: str, partition: int) -> Mapping[str, Any]:
    [found] = [
        one for one in _described(admin, topic)["partitions"] if one["partition_index"] == partition
    ]
    return found  # type: ignore[no-any-return]


def _partitions(admin: Any) -> list[Mapping[str, Any]]:
    return [one for topic in admin.describe_topics(None) for one in topic["partitions"]]


def _replicas(admin: Any) -> set[int]:
    """Return the brokers that have replicas of anything."""
    return {node for one in _partitions(admin) for node in one["replica_nodes"]}


def _is_whole(admin: Any) -> bool:
    if len(_nodes(admin.describe_cluster())) < BROKERS:
        return False
    return all({*one["isr_nodes"]} == {*one["replica_nodes"]} for one in _partitions(admin))
