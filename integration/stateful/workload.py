"""What the stateful queries read, and what must come out of them, computed in plain Python
from the same records.

Two topics of two partitions each, one record a second in each topic: that at position i goes to
partition i % 2. From the third batch on some come so late that every query must drop them, but not
later than that: with the watermark of one batch before they would be taken. Watermarks end on half
a second and everything else on a whole one, so that no outcome hangs on whether a
comparison is `<` or `<=`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import Producer

BATCH = 40
"""Records of each topic that a micro-batch admits."""
BATCHES = 5
RECORDS = BATCH * BATCHES
EVENT = "number long, at long, word string, id long, sent long, visit string, amount long"
PAYMENT = "paid_number long, paid_at long"

WINDOW_S = 15
LATE_S = 10.5
JOIN_LATE_S = 20.5
PAID_WITHIN_S = 15
UNIQUE_S = 30.5
VISIT_TIMEOUT_S = 30

_PAID_AFTER = 10
_LATE_FROM = 2 * BATCH
# not 0, where the first watermark is: Spark would take the first record for a late one
_START_S = 1000
_TOO_LATE_S = 10
_RESENT_AFTER = 24
_REUSED_AFTER = 160
_FLUSH_TIMEOUT_S = 60

Row = tuple[Any, ...]


def events() -> Iterator[dict[str, Any]]:
    """The records of `events`, by position."""
    for i in range(RECORDS):
        late = _is_late(i, 13)
        yield {
            "number": i,
            "at": _late_at(i, JOIN_LATE_S) if late else _START_S + i,
            "word": f"word-{i % 5}",
            "visit": f"late-{i}" if late else f"visit-{i // 30}-{i % 4}",
            "amount": i * i % 97,
        } | _identity(i, late)


def payments() -> Iterator[dict[str, Any]]:
    """The records of `payments`, by position. Every third event stays unpaid."""
    for i in range(RECORDS):
        number = i - _PAID_AFTER
        paid = number >= 0 and number % 3 != 0
        at = _late_at(i, JOIN_LATE_S) if _is_late(i, 17) else _START_S + i
        yield {"paid_number": number if paid else -1 - i, "paid_at": at}


def produce(servers: str, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records round robin over two partitions, and wait until the broker has them all."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
    for position, record in enumerate(records):
        producer.produce(topic, json.dumps(record).encode(), partition=position % 2)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records did not reach {topic}")


def expected() -> dict[str, Counter[Row]]:
    """The rows of each query once everything is read, as multisets."""
    return {
        "windowed": _windows(),
        "joined": _joined(),
        "deduplicated": _deduplicated(),
        "visits": _visits(),
    }


def _is_late(i: int, every: int) -> bool:
    return i >= _LATE_FROM and i % every == every - 1


def _late_at(i: int, watermark_s: float) -> int:
    """Spark drops what is older than the watermark of the batch before: that of all batches up to
    two before this one.
    """
    newest_s = _START_S + (i // BATCH - 1) * BATCH - 1
    return int(newest_s - watermark_s - _TOO_LATE_S)


def _identity(i: int, late: bool) -> dict[str, Any]:
    """Most events are sent once. Some are sent again 24 s later, as they were; some ids are
    used again much later.
    """
    if late:
        return {"id": 10_000 + i, "sent": _late_at(i, UNIQUE_S)}
    if i % 4 == 3 and i >= _RESENT_AFTER and not _is_late(i - _RESENT_AFTER, 13):
        return {"id": _first_id(i - _RESENT_AFTER), "sent": _START_S + i - _RESENT_AFTER}
    return {"id": _first_id(i), "sent": _START_S + i}


def _first_id(i: int) -> int:
    return i - _REUSED_AFTER if i >= _REUSED_AFTER and i % 7 == 6 else i


def _in_time() -> list[dict[str, Any]]:
    return [event for event in events() if not event["visit"].startswith("late")]


def _newest(records: Iterable[Mapping[str, Any]], time: str) -> int:
    return int(max(record[time] for record in records))


def _windows() -> Counter[Row]:
    counts = Counter((event["at"] // WINDOW_S * WINDOW_S, event["word"]) for event in _in_time())
    watermark_s = _newest(events(), "at") - LATE_S
    return Counter(
        {
            (start, word, count): 1
            for (start, word), count in counts.items()
            if start + WINDOW_S <= watermark_s
        }
    )


def _joined() -> Counter[Row]:
    in_time = (payment for i, payment in enumerate(payments()) if not _is_late(i, 17))
    paid = {payment["paid_number"]: payment["paid_at"] for payment in in_time}
    watermark_s = min(_newest(events(), "at"), _newest(payments(), "paid_at")) - JOIN_LATE_S
    rows: Counter[Row] = Counter()
    for event in _in_time():
        paid_at = paid.get(event["number"])
        if paid_at is not None or event["at"] + PAID_WITHIN_S <= watermark_s:
            rows[event["number"], paid_at] += 1
    return rows


def _deduplicated() -> Counter[Row]:
    seen: dict[int, int] = {}
    rows: Counter[Row] = Counter()
    for event in _in_time():
        if event["sent"] - seen.get(event["id"], 0) > UNIQUE_S:
            rows[event["id"], event["sent"]] += 1
            seen[event["id"]] = event["sent"]
    return rows


def _visits() -> Counter[Row]:
    visits: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in _in_time():
        visits[event["visit"]].append(event)
    watermark_s = _newest(events(), "at") - LATE_S
    return Counter(
        {
            (visit, len(found), sum(event["amount"] for event in found)): 1
            for visit, found in visits.items()
            if _newest(found, "at") + VISIT_TIMEOUT_S <= watermark_s
        }
    )
