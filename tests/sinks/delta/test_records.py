"""Records beside the table: what is written is read, and nothing else is (invariant I9)."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state.conftest import bit_flips, truncations
from twophase.errors import NewerFormatError
from twophase.ids import Attempt, TransactionId, new_lineage_id
from twophase.internals.record import DamagedRecordError
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.records import (
    DataFile,
    Intent,
    Manifest,
    data_file,
    decode_intent,
    decode_manifest,
    encode_intent,
    encode_manifest,
)

TRANSACTION = TransactionId("orders", new_lineage_id(), 7, Attempt(2, 3), "lake", "ab" * 32)
INTENT = Intent(TRANSACTION, "0a1b2c3d-0000-4000-8000-000000000000", 41, -1)
LAYOUT = TableLayout(
    ({"name": "id", "type": "long", "nullable": True, "metadata": {}},), (), ("appendOnly",), {}
)


def action(
    path: str = "p=1/twophase-x-part-00000.parquet", rows: int | None = 3, size: int = 9
) -> str:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    return json.dumps(
        {"add": {"path": path, "size": size, "partitionValues": {}, **stats}}, ensure_ascii=False
    )


MANIFEST = Manifest(INTENT, LAYOUT, (action(), action("grün.parquet")))


@settings(deadline=None)
@given(st.lists(st.builds(action, st.text(), st.integers(1, 10**12)), max_size=5))
def test_a_manifest_is_read_back(actions: list[str]) -> None:
    manifest = dataclasses.replace(MANIFEST, actions=tuple(actions))
    assert decode_manifest(encode_manifest(manifest), "here") == manifest


@settings(deadline=None)
@given(st.integers(-1, 2**62), st.integers(-1, 2**62))
def test_an_intent_is_read_back(base: int, after: int) -> None:
    intent = dataclasses.replace(INTENT, base=base, after=after)
    assert decode_intent(encode_intent(intent), "here") == intent


def test_a_manifest_of_no_files_is_one() -> None:
    manifest = dataclasses.replace(MANIFEST, actions=())
    assert decode_manifest(encode_manifest(manifest), "here") == manifest


@pytest.mark.parametrize("damage", [truncations, bit_flips])
def test_every_damaged_record_is_refused(damage) -> None:
    for data, decode in (
        (encode_intent(INTENT), decode_intent),
        (encode_manifest(MANIFEST), decode_manifest),
    ):
        for damaged in damage(data):
            with pytest.raises((DamagedRecordError, NewerFormatError)):
                decode(damaged, "here")


def test_a_newer_record_is_refused_by_its_version() -> None:
    for data, decode in (
        (encode_intent(INTENT), decode_intent),
        (encode_manifest(MANIFEST), decode_manifest),
    ):
        newer = data.replace(b"twophase-delta/1 ", b"twophase-delta/2 more ", 1)
        with pytest.raises(
            NewerFormatError,
            match=r"file s3a://t/x was written by a newer twophase \(format 2; this one",
        ):
            decode(newer, "s3a://t/x")


def test_one_record_is_not_taken_for_the_other() -> None:
    with pytest.raises(DamagedRecordError):
        decode_manifest(encode_intent(INTENT), "here")
    with pytest.raises(DamagedRecordError):
        decode_intent(encode_manifest(MANIFEST), "here")


def test_an_action_may_be_any_text() -> None:
    manifest = dataclasses.replace(MANIFEST, actions=('{}\n{"ä": "\\u2028"}', ""))
    assert decode_manifest(encode_manifest(manifest), "here") == manifest


def test_an_action_says_which_file_it_is() -> None:
    found = data_file(action("p=a%2520b/x.parquet", 3, 9))
    assert found == DataFile("p=a%2520b/x.parquet", 9, 3)
    assert found.local_path == "p=a%20b/x.parquet"


@pytest.mark.parametrize(
    ("text", "named"),
    [(action(rows=None), "no row count"), ('{"remove":{"path":"x"}}', r"\['remove'\]")],
)
def test_an_action_without_rows_or_of_another_kind_is_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        data_file(text)
