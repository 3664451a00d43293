"""How long a transaction may stay open, and how long it may have to.

Kafka aborts one after `transaction_timeout`, whoever is about to commit it. Its rows are lost if
they were decided.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from twophase.contract.committable import Committable
from twophase.contract.sink import Waits
from twophase.errors import ConfigError
from twophase.sinks.kafka.options import KafkaSinkOptions

_log = logging.getLogger("twophase.sinks.kafka")
_DECISION = "checkpoint.timeout"
_WAYS = "which is at most transaction.max.timeout.ms of the brokers"
_STAGED = "set `protocol=staged`: rows wait in a topic of their own, for any length of time"
UNTIL = "until"
"""The key in the handle of a piece: when Kafka aborts it, in seconds since 1970."""


def check_waits(waits: Waits, options: KafkaSinkOptions, sink: str) -> None:
    """Check that transactions outlast what the job makes them wait; warn where they may not.

    Args:
        waits: of the job.
        options: of the sink.
        sink: its name.

    Raises:
        ConfigError: a setting alone is longer than `transaction_timeout`.
    """
    most_s = options.transaction_timeout_s
    if waits.decision_s >= most_s:
        raise _too_long(_DECISION, waits.decision_s, most_s, "a checkpoint could be decided when")
    for option, pause_s in waits.pauses_s.items():
        if pause_s >= most_s:
            raise _too_long(option, pause_s, most_s, "a decided checkpoint could wait until")
    if waits.behind:
        _log.warning(
            "sink %s: checkpoint.max_concurrent is above 1, so that a decided checkpoint waits "
            "while %s cannot commit an older one, for as long as that lasts. After %g s Kafka has "
            "aborted its transactions (transaction_timeout), and its rows are lost. Set "
            "checkpoint.max_concurrent to 1; or %s.",
            sink,
            " or ".join(waits.behind),
            most_s,
            _STAGED,
        )
    option, pause_s = max(waits.pauses_s.items(), key=lambda one: one[1], default=("", 0.0))
    if waits.decision_s + pause_s >= most_s:
        _log.warning(
            "sink %s: a checkpoint may be decided %g s after its first row (%s), and wait %g s "
            "more (%s): by then Kafka has aborted its transactions (transaction_timeout: %g s), "
            "and its rows are lost. Set %s below %g s, or raise transaction_timeout, %s; or %s.",
            sink,
            waits.decision_s,
            _DECISION,
            pause_s,
            option,
            most_s,
            _DECISION,
            most_s - pause_s,
            _WAYS,
            _STAGED,
        )


def time_left(pieces: Iterable[Committable], now_s: float) -> str:
    """Say when Kafka aborts the first of some pieces; empty if that is not known.

    Args:
        pieces: pre-committed ones.
        now_s: seconds since 1970.
    """
    known = [float(piece.handle[UNTIL]) for piece in pieces if UNTIL in piece.handle]
    if not known:
        return ""
    left_s = min(known) - now_s
    if left_s <= 0:
        return f"Kafka has aborted it {-left_s:.0f} s ago, unless it was committed before"
    return f"Kafka aborts it in {left_s:.0f} s (transaction_timeout), and then its rows are lost"


def _too_long(option: str, given_s: float, most_s: float, what: str) -> ConfigError:
    return ConfigError(
        f"{option} is {given_s:g} s, and Kafka aborts a transaction that is open for {most_s:g} s "
        f"(transaction_timeout): {what} its rows are gone.",
        remedy=f"set {option} below {most_s:g} s, or transaction_timeout above {given_s:g} s, "
        f"{_WAYS}; or {_STAGED}.",
    )
