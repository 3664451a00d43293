"""The Kafka sink: appends records to a topic exactly once, in transactions."""

from __future__ import annotations

from typing import Any

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import ConfigError, PreflightError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.downtime import check_waits
from twophase.sinks.kafka.ledger import open_ledger
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.rows import check_columns


class KafkaSink(ArrowSink):
    """Appends to one topic. Options: `twophase.sinks.kafka.options.KafkaSinkOptions`.

    Args:
        options: `kafka.bootstrap.servers`, `topic`, and any other option by its name.
    """

    def __init__(self, **options: Any) -> None:
        self._options = KafkaSinkOptions.parse(options)

    def __repr__(self) -> str:
        return f"KafkaSink({self._options.where!r})"

    def check_connection(self) -> None:
        """See `Sink.check_connection`."""
        brokers = Brokers(self._options)
        try:
            self._check(brokers)
            open_ledger(brokers, self._options.ledger, create=False)
        finally:
            brokers.close()

    def open(self, context: SinkContext) -> OpenKafkaSink:
        """See `Sink.open`."""
        options = self._options
        if context.schema is not None:
            check_columns(context.schema, options)
        if context.waits is not None:
            check_waits(context.waits, options, context.sink)
        owner = Owner(context.job, context.sink, options.topic)
        brokers = Brokers(options)
        try:
            topic, cluster = self._check(brokers), brokers.cluster_id()
            ledger = open_ledger(brokers, options.ledger, create=context.schema is not None)
            if context.schema is not None:
                rights = {options.topic: ["WRITE"], options.ledger: ["READ", "WRITE"]}
                brokers.check_rights(rights, owner.nobody)
        except BaseException:
            brokers.close()
            raise
        return OpenKafkaSink(options, owner, brokers, cluster, topic, ledger)

    def _check(self, brokers: Brokers) -> str:
        """Check all that does not depend on job and rows; return the topic's id."""
        options = self._options
        found = brokers.topic(options.topic)
        if found is None:
            raise ConfigError(
                f"There is no {options.where}.",
                remedy="create it, or correct the option topic.",
            )
        longest_s = brokers.longest_timeout_s()
        if longest_s is not None and options.transaction_timeout_s > longest_s:
            raise PreflightError(
                f"transaction_timeout is {options.transaction_timeout_s:g} s, and the brokers take "
                f"at most {longest_s:g} s (transaction.max.timeout.ms).",
                remedy=f"set `transaction_timeout={longest_s:g} s` or less, or raise "
                "transaction.max.timeout.ms on all brokers. A job that is down for longer than "
                "that loses what it has decided and not committed.",
            )
        return found.topic_id
