"""The Kafka sink: appends records to topics exactly once, in transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twophase.contract.sink import ArrowSink, SinkContext
from twophase.errors import PreflightError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.downtime import check_waits
from twophase.sinks.kafka.ledger import open_ledger
from twophase.sinks.kafka.limits import limits_of
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.open_sink import (
    OpenKafkaSink,
    OpenStagedSink,
    OpenTransactionSink,
)
from twophase.sinks.kafka.options import KafkaSinkOptions, Protocol, RecordFormat
from twophase.sinks.kafka.rows import check_columns
from twophase.sinks.kafka.staging import STAGING_RIGHTS, check_staging, make_staging
from twophase.sinks.kafka.topics import target_topics

_OPEN: Mapping[Protocol, type[OpenKafkaSink]] = {
    Protocol.TRANSACTION: OpenTransactionSink,
    Protocol.STAGED: OpenStagedSink,
}
_DOWNTIME = {
    Protocol.TRANSACTION: "A job that is down for longer than that loses what it has decided and "
    "not committed, unless it has `protocol=staged`.",
    Protocol.STAGED: "The copy of a task's records may not take longer.",
}


class KafkaSink(ArrowSink):
    """Appends to a topic, or to several. Options: `twophase.sinks.kafka.options.KafkaSinkOptions`.

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
            rights = self._rights()
            if open_ledger(brokers, self._options.ledger, create=False) is None:
                del rights[self._options.ledger]
            brokers.check_rights(rights)
        finally:
            brokers.close()

    def open(self, context: SinkContext) -> OpenKafkaSink:
        """See `Sink.open`."""
        options = self._options
        if context.schema is not None:
            check_columns(context.schema, options)
        if context.waits is not None and options.protocol is Protocol.TRANSACTION:
            check_waits(context.waits, options, context.sink)
        owner = Owner(context.job, context.sink, options.topic)
        brokers = Brokers(options)
        try:
            topic_id, cluster = self._check(brokers), brokers.cluster_id()
            creates = context.schema is not None
            ledger = open_ledger(brokers, options.ledger, create=creates)
            if options.protocol is Protocol.STAGED:
                self._open_staging(brokers, owner, context)
            elif creates:
                brokers.check_rights(self._rights(), owner.nobody)
        except BaseException:
            brokers.close()
            raise
        kind = _OPEN[options.protocol]
        return kind(options, owner, brokers, cluster, topic_id, ledger)

    def _check(self, brokers: Brokers) -> str:
        """Check all that does not depend on job and rows; return the id of the sink's topic."""
        options = self._options
        topics = target_topics(brokers, options)
        longest_s = brokers.longest_timeout_s()
        if longest_s is not None and options.transaction_timeout_s > longest_s:
            raise PreflightError(
                f"transaction_timeout is {options.transaction_timeout_s:g} s, and the brokers take "
                f"at most {longest_s:g} s (transaction.max.timeout.ms).",
                remedy=f"set `transaction_timeout={longest_s:g} s` or less, or raise "
                "transaction.max.timeout.ms on all brokers. " + _DOWNTIME[options.protocol],
            )
        return topics[options.topic].topic_id

    def _rights(self) -> dict[str, list[str]]:
        """Return what the account will do to each topic that is not created for one job."""
        options = self._options
        more = ["DESCRIBE_CONFIGS"] if options.protocol is Protocol.STAGED else []
        rights = {name: ["WRITE", *more] for name in options.topics}
        return rights | {options.ledger: ["READ", "WRITE"]}

    def _open_staging(self, brokers: Brokers, owner: Owner, context: SinkContext) -> None:
        """Create the staging topic for rows to come, and check that it keeps them, and that the
        topic will take them.
        """
        options, schema = self._options, context.schema
        name = owner.staging(options.ledger)
        replicas = max(brokers.replicas(*options.topics).values())
        if schema is not None:
            make_staging(brokers, name, max(1, context.parallelism), replicas)
            brokers.check_rights(self._rights() | {name: STAGING_RIGHTS}, owner.nobody)
        check_staging(brokers, name, replicas)
        limits = limits_of(brokers, options)
        if options.format is RecordFormat.RAW and schema and "timestamp" in schema.names:
            for one in limits.values():
                one.check_times()
