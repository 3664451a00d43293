"""Pieces of the Kafka sink are lost, by transactions that time out and records that are deleted;
they are written again or given up, whatever kills the repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.loss_world import CASES, REPAIRS, Lose, LossWorld
from harness.selection import first_of, representatives
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.committable import Committable
from twophase.sinks.kafka.names import name_of
from twophase.sinks.kafka.staging import Place
from twophase.testing.services import KafkaService

pytestmark = [pytest.mark.part("repair"), pytest.mark.server]

SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
TIMEOUT = {"transaction_timeout": "10 s"}


@pytest.fixture(scope="module")
def soon() -> Iterator[Topics]:
    """On a broker that ends transactions as soon as they have timed out."""
    with (
        KafkaService(own=True, settings=SOON) as broker,
        Topics(broker.bootstrap_servers) as made,
    ):
        yield made


def time_out(harness: KafkaHarness, piece: Committable) -> None:
    harness.wait_until_aborted(piece)


def abort(harness: KafkaHarness, piece: Committable) -> None:
    """As somebody may by hand."""
    name = name_of(harness.topic, piece)
    harness.topics.producer(**{"transactional.id": name}).init_transactions(30)


def cut(harness: KafkaHarness, piece: Committable) -> None:
    place = Place.of(piece)
    harness.topics.cut(place.topic, place.end, place.partition)


def delete(harness: KafkaHarness, piece: Committable) -> None:
    """Once for all pieces."""
    topic = Place.of(piece).topic
    if topic in harness.topics.admin.list_topics():
        harness.topics.delete(topic)


HAND, CUT = "its transaction is aborted by hand", "its staged records are deleted"
LOSSES: dict[str, tuple[str, Lose]] = {
    HAND: ("transaction", abort),
    CUT: ("staged", cut),
    "its staging topic is deleted": ("staged", delete),
}


WAITS = "one, the other waits"
EACH = {
    f"{loss}: {repair}: {case}": (loss, repair, case)
    for loss, repair, case in itertools.product(LOSSES, REPAIRS, CASES)
    if (LOSSES[loss][1], case) != (delete, WAITS)  # it has the rows of both pieces
}


@pytest.mark.parametrize(
    "each",
    representatives(
        EACH, [f"{HAND}: accept-loss: {WAITS}", f"{CUT}: rewrite: one, the other is committed"]
    ),
)
def test_a_piece_is_lost_and_repaired(topics: Topics, tmp_path: Path, each: str) -> None:
    loss, repair, case = EACH[each]
    protocol, lose = LOSSES[loss]
    world = LossWorld(tmp_path, KafkaHarness(topics, protocol=protocol))
    world.loses(lose, case)
    world.repair(repair)
    world.goes_on(repair, case)


@pytest.mark.proof
@pytest.mark.parametrize("case", ["all pieces", "one, the other is committed"])
@pytest.mark.parametrize("repair", REPAIRS)
def test_a_transaction_times_out_and_is_repaired(
    soon: Topics, tmp_path: Path, repair: str, case: str
) -> None:
    world = LossWorld(tmp_path, KafkaHarness(soon, **TIMEOUT))
    world.loses(time_out, case)
    world.repair(repair)
    world.goes_on(repair, case)


POINTS = ["R04", "R01", "R02", "C05", "R05", "R03", "C14", "C19"]


@pytest.mark.parametrize(("point", "loss"), first_of(1, itertools.product(POINTS, [HAND, CUT])))
def test_a_rewrite_that_is_killed_is_run_again(
    topics: Topics, tmp_path: Path, point: str, loss: str
) -> None:
    protocol, lose = LOSSES[loss]
    world = LossWorld(tmp_path, KafkaHarness(topics, protocol=protocol))
    world.loses(lose, WAITS)
    world.repair("rewrite", f"{point}=kill")
    world.goes_on("rewrite", WAITS)
