"""Durable bytes: what is written is read, and nothing else is (invariant I9)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.conftest import REFUSED, bit_flips, truncations
from twophase.errors import CorruptRecordError, NewerFormatError
from twophase.internals import record
from twophase.internals.json_values import canonical_json
from twophase.internals.record import kind_of
from twophase.state.files import codec

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.dictionaries(st.text(), VALUES, max_size=5)
BODY = {"n": 7, "name": "Grüße", "nested": {"list": [1, None, True]}}


def framed(payload: bytes, kind: str = "FENCE") -> bytes:
    """`payload` under a header that fits it, as a forger would write it."""
    return f"twophase/1 {kind} {len(payload)} {record.digest(payload)}\n".encode() + payload


@given(BODIES)
def test_what_is_encoded_is_decoded(body: dict[str, Any]) -> None:
    assert codec.decode("FENCE", codec.encode("FENCE", body), "here", dict) == body


@given(BODIES)
def test_one_body_has_one_encoding_whatever_the_order_of_its_keys(body: dict[str, Any]) -> None:
    assert codec.encode("FENCE", dict(reversed(body.items()))) == codec.encode("FENCE", body)


def test_the_format_of_version_1_does_not_change() -> None:
    assert codec.encode("FENCE", {"b": "ä", "a": [1.5, None]}) == (
        b"twophase/1 FENCE 29 5d45642a90aeaa5d36f8c7df4adf1240075a31ae5dc4eb6d1e087d5c08c245ea\n"
        b'{"a":[1.5,null],"b":"\\u00e4"}'
    )


@pytest.mark.parametrize("damage", [truncations, bit_flips])
def test_no_truncation_and_no_changed_bit_is_accepted(damage: Any) -> None:
    for damaged in damage(codec.encode("FENCE", BODY)):
        with pytest.raises(REFUSED):
            codec.decode("FENCE", damaged, "here", dict)


@given(st.binary(min_size=1, max_size=20))
def test_nothing_may_follow_a_record(rest: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec.decode("FENCE", codec.encode("FENCE", BODY) + rest, "here", dict)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptRecordError, NewerFormatError)):
        codec.decode("", data, "here", dict)
    assert isinstance(kind_of(data), str)


@given(st.binary(max_size=100))
def test_arbitrary_content_under_a_fitting_header_is_a_json_object_or_refused(
    payload: bytes,
) -> None:
    try:
        expected = json.loads(payload)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert codec.decode("FENCE", framed(payload), "here", dict) == expected
        return
    with pytest.raises(CorruptRecordError, match=r"its content is not (JSON|a JSON object)"):
        codec.decode("FENCE", framed(payload), "here", dict)


def test_a_record_of_another_kind_is_refused() -> None:
    data = codec.encode("FENCE", BODY)
    with pytest.raises(CorruptRecordError, match="it is a 'FENCE' record where 'DECIDED' belongs"):
        codec.decode("DECIDED", data, "here", dict)
    assert codec.decode("", data, "here", dict) == BODY


@pytest.mark.parametrize(
    "header",
    [
        "twophase/0 FENCE {length} {digest}\n",
        "twophase/02 FENCE {length} {digest}\n",
        "twophase/2FENCE {length} {digest}\n",
        "twophase/1 FENCE 0{length} {digest}\n",
        "twophase/1 FENCE +{length} {digest}\n",
        "twophase/1 FENCE -1 {digest}\n",
        "twophase/1 FENCE 1073741824 {digest}\n",
        "twophase/1 FENCE 99999999999999999999999999 {digest}\n",
        "twophase/1  FENCE {length} {digest}\n",
        "twophase/1 FENCE {length} {digest} \n",
        "twophase/1 FENCE {length} {upper}\n",
        "twophase/1 FENCE {length} {digest}\r\n",
        "twophase/1 {long} {length} {digest}\n",
        "twophase/1 FENCE {length}\n",
        "\n",
        "",
    ],
)
def test_only_the_exact_header_is_accepted(header: str) -> None:
    payload = canonical_json(BODY)
    digest = record.digest(payload)
    text = header.format(length=len(payload), digest=digest, upper=digest.upper(), long="F" * 200)
    assert codec.decode("FENCE", framed(payload), "here", dict) == BODY
    with pytest.raises(CorruptRecordError):
        codec.decode("FENCE", text.encode() + payload, "here", dict)


class Bomb:
    """Code that runs if anybody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a pickle was loaded')",)


@pytest.mark.parametrize(
    "payload",
    [
        pickle.dumps(Bomb()),
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 1_000_000,
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b"[1,2]",
        b"null",
        b"",
        b'{"a":1} {"b":2}',
        b'{"a":"\xff"}',
    ],
    ids=[
        "pickle",
        "deep object",
        "deep list",
        "long number",
        "list",
        "null",
        "empty",
        "two values",
        "no UTF-8",
    ],
)
def test_hostile_content_under_a_fitting_header_is_refused_in_bounded_time(payload: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec.decode("FENCE", framed(payload), "here", dict)


def test_a_million_keys_are_read_in_bounded_time() -> None:
    payload = b"{" + b",".join(b'"%d":0' % number for number in range(1_000_000)) + b"}"
    assert len(codec.decode("FENCE", framed(payload), "here", dict)) == 1_000_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.encode("FENCE", {"value": value})


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object()])
def test_values_that_json_does_not_have_are_not_written(value: object) -> None:
    with pytest.raises(TypeError):
        codec.encode("FENCE", {"value": value})


def test_the_error_names_the_file_and_says_that_nothing_was_changed_and_what_to_do() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        codec.decode("FENCE", b"", "log/0000000003", dict)
    assert str(caught.value) == (
        "The durable file log/0000000003 is damaged: it does not begin with a twophase/1 header. "
        "Nothing was written or deleted. Next: restore this file from a backup of the job's "
        "folder. If there is none, run twophase repair adopt-from-target JOB.yaml; for a damaged "
        "record of the log, move the folder log away first (mv log log.damaged)."
    )


def test_the_kind_is_what_the_header_claims() -> None:
    assert kind_of(codec.encode("DECIDED", {})) == "DECIDED"
    assert kind_of(b"anything") == ""


def test_the_text_is_ascii_so_that_no_editor_changes_it() -> None:
    assert (
        json.loads(canonical_json("\u2028 ä \U0001f600").decode("ascii")) == "\u2028 ä \U0001f600"
    )
