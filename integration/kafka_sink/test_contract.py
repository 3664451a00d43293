"""The contract of every sink, on a topic of a real broker, in both protocols."""

from __future__ import annotations

import pytest

from harness.selection import representatives
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness, RoutedHarness
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    SinkKillContract,
    TellsUnfinishedContract,
)

pytestmark = [pytest.mark.part("kafka"), pytest.mark.thin(3)]

STAGED = {"protocol": "staged"}


class TestKafkaSink(
    ArrowSinkContract, KnowsOtherNamesContract, NamesPiecesContract, TellsUnfinishedContract
):
    lines_at_most = 12

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics)


class TestKafkaSinkIsKilled(SinkKillContract):
    points = representatives(SinkKillContract.points, {"C05=kill_driver", "C14=kill"})
    methods = representatives(SinkKillContract.methods, {"commit"})
    lines_at_most = 12
    preload = ("twophase.sinks.kafka.open_sink",)

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics)


class TestStagedKafkaSink(ArrowSinkContract, KnowsOtherNamesContract, NamesPiecesContract):
    lines_at_most = 12

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics, **STAGED)


class TestStagedKafkaSinkIsKilled(SinkKillContract):
    points = representatives(
        [*SinkKillContract.points, "K01=kill", "K02=kill"],
        {"C05=kill_driver", "K02=kill"},
    )
    methods = representatives(SinkKillContract.methods, {"commit"})
    lines_at_most = 12
    preload = ("twophase.sinks.kafka.open_sink",)

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics, **STAGED)


class TestRoutedKafkaSink(TestKafkaSink):
    @pytest.fixture
    def harness(self, topics: Topics) -> RoutedHarness:
        return RoutedHarness(topics)


class TestRoutedStagedKafkaSink(TestStagedKafkaSink):
    @pytest.fixture
    def harness(self, topics: Topics) -> RoutedHarness:
        return RoutedHarness(topics, **STAGED)
