"""Loads the optional Kafka clients, only in the processes that use them."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from twophase.errors import PreflightError
from twophase.internals.workers import freeze_gc
from twophase.kafka_client.access import AccessError, RefusedError, remedy_of
from twophase.kafka_client.oauth_tokens import token_refused
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import FetchEngine, KafkaOptions

if TYPE_CHECKING:
    from twophase.sources.kafka.cluster import Cluster
    from twophase.sources.kafka.guard import ReadGuard
    from twophase.sources.kafka.planner import OffsetPlanner

    Fetch = Callable[[KafkaOptions, OffsetRange, Wanted, ReadGuard], Iterator[Block]]

_PACKAGE = "twophase.sources.kafka"
_MOST_CLUSTERS = 8

_clusters: OrderedDict[KafkaOptions, Cluster] = OrderedDict()
_clusters_lock = threading.Lock()


def cluster_of(options: KafkaOptions) -> Cluster:
    """Return this process's connection for these options, kept open: opening takes 110 ms.

    Each has a thread. Beyond a few, the least recently used one is closed; callers that still
    have it can go on.

    Raises:
        PreflightError: kafka-python is not installed.
    """
    unused: list[Cluster] = []
    with _clusters_lock:
        if options not in _clusters:
            _clusters[options] = _load("cluster", "kafka", "kafka-python", "kafka").Cluster(
                options, options.isolation_level
            )
        _clusters.move_to_end(options)
        if len(_clusters) > _MOST_CLUSTERS:
            unused.append(_clusters.popitem(last=False)[1])
        found = _clusters[options]
    for cluster in unused:  # others need not wait for it: it may still be opening
        cluster.close()
    return found


def close_cluster(options: KafkaOptions) -> None:
    """Close this process's connection for these options, if there is one; it can be used again."""
    with _clusters_lock:
        cluster = _clusters.get(options)
    if cluster is not None:
        cluster.close()


def close_clusters() -> None:
    """Close all connections of this process."""
    with _clusters_lock:
        unused = [*_clusters.values()]
        _clusters.clear()
    for cluster in unused:
        cluster.close()


def planner_of(options: KafkaOptions) -> OffsetPlanner:
    """Return the planner of a query, in the process that Spark keeps for it.

    Raises:
        PreflightError: kafka-python is not installed.
    """
    cluster = cluster_of(options)
    return cast(
        "OffsetPlanner",
        _load("planner", "kafka", "kafka-python", "kafka").OffsetPlanner(options, cluster),
    )


def read_range(
    options: KafkaOptions, item: OffsetRange, wanted: Wanted, *, again: bool
) -> Iterator[Block]:
    """Read a whole range, and verify at its end that it was the range that the batch means.

    Args:
        options: the options of the source.
        item: the range.
        wanted: the parts of the records to read.
        again: verify before the read too, because the range was planned by another process.

    Raises:
        SourceLossError: records of the range are gone or have changed.
        SourceUnavailableError: the read makes no progress.
        AccessError: a broker refuses the client.
        PreflightError: the engine is not installed.
    """
    guard_module = _load("guard", "kafka", "kafka-python", "kafka")
    cluster = cluster_of(options)
    guard: ReadGuard = guard_module.ReadGuard(options, cluster, item)
    if again:
        guard.check()
    else:
        cluster.open_ahead()  # for the look at the end
    freeze_gc()  # before the records arrive: collections would take a quarter of a read's time
    for block in _fetched(options, item, wanted, guard):
        yield block
        guard.moved()  # the time that the consumer of the rows took is not a stall of the read
    guard.finished()


def _fetched(
    options: KafkaOptions, item: OffsetRange, wanted: Wanted, guard: ReadGuard
) -> Iterator[Block]:
    """Yield the records of a range, with another client if a broker refuses it: with the secrets as
    they are then, and another token.
    """
    fetch, renewed = _engine(options.fetch_engine), False
    while True:
        try:
            for block in fetch(options, item, wanted, guard):
                item, renewed = replace(item, start=block.offsets[-1] + 1), False
                yield block
            return
        except RefusedError as error:
            token_refused(options)
            if renewed:
                raise AccessError(
                    f"Kafka denies the read of {item}: {error}.", remedy=remedy_of(str(error))
                ) from error
            renewed = True


def check_range(options: KafkaOptions, item: OffsetRange) -> None:
    """Verify, on the driver, that a range that was planned by another process is still there.

    Raises:
        SourceLossError: records of the range are gone or have changed.
        PreflightError: kafka-python is not installed.
    """
    guard: ReadGuard = _load("guard", "kafka", "kafka-python", "kafka").ReadGuard(
        options, cluster_of(options), item
    )
    guard.check()


def _engine(chosen: FetchEngine) -> Fetch:
    fast = chosen is FetchEngine.LIBRDKAFKA or (
        chosen is FetchEngine.AUTO and importlib.util.find_spec("confluent_kafka") is not None
    )
    if fast:
        module = _load("fetch_librdkafka", "confluent_kafka", "confluent-kafka", "fast")
    else:
        module = _load("fetch_kafka_python", "kafka", "kafka-python", "kafka")
    return cast("Fetch", module.fetch)


def _load(module: str, needs: str, distribution: str, extra: str) -> Any:
    if importlib.util.find_spec(needs) is None:
        raise PreflightError(
            f"The source twophase-kafka needs {distribution}, "
            "which is not installed in this process.",
            remedy=f"pip install 'twophase[{extra}]' on the driver and on every executor.",
        )
    return importlib.import_module(f"{_PACKAGE}.{module}")
