"""Texts that a server would take for another text: labels, sets of labels, UUIDs, addresses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.errors import RejectedRowsError
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES, LOAD_DATA
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column

ESCAPES = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}
tricky = st.text(st.sampled_from("ab1 ,'\\\n\r\0\t\"`n0r\u00e9\u6f22%"), max_size=5)


def plan_of(data_type: str, labels: list[str] | None = None, **changes: str) -> ColumnPlan:
    """The plan of a column whose labels are as both servers show them."""
    shown = (f"'{''.join(ESCAPES.get(one, one) for one in label)}'" for label in labels or [])
    definition = f"{data_type}({','.join(shown)})" if labels else data_type
    known = {"collation": "utf8mb4_bin", **changes}
    plan = plan_column(pa.field("f", pa.string()), Column("c", data_type, definition, **known))  # type: ignore[arg-type]
    assert isinstance(plan, ColumnPlan)
    return plan


def sent(plan: ColumnPlan, text: str, insert: bool = False) -> str:
    batch = pa.record_batch({"f": pa.array([None, text], pa.string()).slice(1)})
    form = INSERT_VALUES if insert else LOAD_DATA
    before, _, after = form.row
    written = bytes(encode(batch, [plan], form).data).decode()
    return written.removeprefix(before).removesuffix(after)


def is_refused(plan: ColumnPlan, text: str) -> bool:
    batch = pa.record_batch({"f": pa.array([None, text, text], pa.string())})
    try:
        encode(batch, [plan], LOAD_DATA)
    except RejectedRowsError as error:
        return error.what.startswith(f"Row 2 of a batch of 3: column 'c' cannot store {text!r}")
    return False


@given(labels=st.lists(tricky, min_size=1, unique=True), other=tricky, insert=st.booleans())
def test_a_label_is_sent_as_its_number_and_nothing_else_is_sent(labels, other, insert):
    plan = plan_of("enum", labels)
    assert [sent(plan, label, insert) for label in labels] == [
        str(number) for number, _ in enumerate(labels, 1)
    ]
    assert is_refused(plan, other) == (other not in labels)


letters = tricky.map(lambda text: text.replace(",", ""))


@given(
    labels=st.lists(letters.filter(bool), min_size=1, max_size=64, unique=True),
    data=st.data(),
    insert=st.booleans(),
)
def test_a_set_is_sent_as_its_number_if_it_reads_back_as_it_is(labels, data, insert):
    plan = plan_of("set", labels)
    chosen = data.draw(st.lists(st.sampled_from(labels), max_size=6))
    numbers = [labels.index(label) for label in chosen]
    if numbers == sorted(set(numbers)):
        assert sent(plan, ",".join(chosen), insert) == str(sum(2**number for number in numbers))
    else:
        assert is_refused(plan, ",".join(chosen))
    other = data.draw(letters)
    assert is_refused(plan, other) == (other != "" and other not in labels)


@pytest.mark.parametrize("text", ["1", "0", "PAID", "paid ", " paid", "pai", "", "paid,new", "?"])
def test_what_a_server_would_take_for_a_label_is_refused(text):
    assert is_refused(plan_of("enum", ["new", "paid", "x,y"]), text)


@pytest.mark.parametrize("text", ["NEW", "new ", "paid,new", "new,new", "new, paid", "new,", "3"])
def test_what_a_server_would_take_for_a_set_of_labels_is_refused(text):
    assert is_refused(plan_of("set", ["new", "paid", "x"]), text)


def test_a_label_that_may_be_another_one_is_refused():
    """The servers show characters beyond U+FFFF as question marks."""
    assert is_refused(plan_of("enum", ["new", "?"]), "?")
    assert is_refused(plan_of("set", ["new", "?"], collation="utf16_bin"), "new,?")
    assert sent(plan_of("enum", ["new", "?"], collation="latin1_swedish_ci"), "?") == "2"


UUIDS = "123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"
NO_UUIDS = ["", "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000",
            f"{UUIDS[0]}\n", f" {UUIDS[0]}", f"{{{UUIDS[0]}}}", UUIDS[0][:-1]]  # fmt: skip
INET4 = "0.0.0.0", "10.0.0.1", "255.255.255.255"
NO_INET4 = ["", "1.2.3", "01.2.3.4", "256.1.1.1", "1.2.3.4\n", " 1.2.3.4", "::1"]
# as MariaDB 10.11 gives them back
INET6 = ("::", "::1", "::102", "::0.1.0.2", "::1.2.3.4", "::ffff:1.2.3.4", "::ffff:0.0.0.0", "1::",
         "::ffff:0:102:304", "1::2:3:4:5:6:7", "1:2:3:4:5:6:7::", "::1:2:3:4:5:6:7", "0:0:1::",
         "1:0:0:2::3", "1::2:3:0:0:4", "2001:db8::1", "10:0:20::", "1:2:3:4:5:6:7:8")  # fmt: skip
NO_INET6 = ["", "1.2.3.4", "::1:2", "2001:DB8::1", "2001:0db8::1", "1:0:2:3:4:5:6:7",
            "::ffff:0:0", "::ffff:102:304", "1::2::3", "64:ff9b::1.2.3.4", "::1\n", "\0",
            "fe80::1%eth0"]  # fmt: skip


@pytest.mark.parametrize(
    ("data_type", "kept", "others"),
    [("uuid", UUIDS, NO_UUIDS), ("inet4", INET4, NO_INET4), ("inet6", INET6, NO_INET6)],
)
def test_only_the_spelling_that_is_given_back_is_sent(data_type, kept, others):
    plan = plan_of(data_type)
    assert [sent(plan, text) for text in kept] == list(kept)
    assert [sent(plan, text, insert=True) for text in kept] == [f"'{text}'" for text in kept]
    assert [text for text in others if not is_refused(plan, text)] == []
