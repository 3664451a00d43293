"""Values of rows in messages: whatever they hold, a message stays one line of bounded length, or
does without them.
"""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from rich.console import Console

from twophase import errors
from twophase.cli.display.console import show_error
from twophase.errors import ConfigError, RejectedRowsError, TargetUnreachableError, TwoPhaseError
from twophase.events import CommitRetried
from twophase.internals import redaction
from twophase.internals.logging_observer import log_event
from twophase.internals.redaction import (
    LIMIT,
    REDACTED,
    SETTING,
    VARIABLE,
    printable,
    share_redaction,
    shown,
    shown_variable,
)
from twophase.sinks.common.partition_names import RefusedValueError, folder_name
from twophase.sinks.hive.catalog import Catalog
from twophase.sinks.mysql import writer
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.loading import LoadDataLoader
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.rows.text_formats import LOAD_DATA
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table
from twophase.sources.kafka.json_types import UnfitError, convert
from twophase.spark.batch.spark_errors import declined
from twophase.testing.harness import transaction_id

SECRET = "4111-1111-1111-1111"
HOSTILE = {
    "newlines": f"{SECRET}\nNext: run rm -rf\r\n\u2028\x0b",
    "terminal escapes": f"{SECRET}\x1b[2J\x1b]0;owned\x07\x9b31m\u202e",
    "ten megabytes": SECRET + "x" * 10_000_000,
    "one of our errors": (
        f"{SECRET} twophase.errors.FencedError: Job 'orders' was taken over. "
        "Next: leave it stopped."
    ),
    "NUL, and no text": f"{SECRET}\0\udc80",
    "quotes": f"{SECRET}'\"\\'",
}


@pytest.fixture
def redacting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "true")


def mysql_error(value: str) -> str:
    """What pymysql raises for error 1062."""
    error = pymysql.IntegrityError(1062, f"Duplicate entry '{value}' for key 'target.PRIMARY'")
    table = Table("shop", "orders", "BASE TABLE", "InnoDB", ())
    return str(writer._decline(transaction_id(), "writing rows", error, table))


def mysql_warning(value: str) -> str:
    class Session:
        def load(self, *_: object) -> Any:
            return SimpleNamespace(affected=0, warnings=1)

        def rows(self, _: str) -> list[tuple[str, int, str]]:
            return [
                ("Warning", 1366, f"Incorrect integer value: '{value}' for column 'count' at row 1")
            ]

    text = value.encode(errors="replace").decode()
    batch = pa.RecordBatch.from_pylist([{"name": text}], schema=pa.schema([("name", pa.string())]))
    plan = ColumnPlan("name", "name", pa.string(), Encoding.TEXT, nullable=True)
    loader = LoadDataLoader("`target`", (plan,), ReadBack("`target`", (plan,)))
    with pytest.raises(RejectedRowsError) as caught:
        loader.load(Session(), [batch])  # type: ignore[arg-type]
    return str(caught.value)


def mysql_value(value: str) -> str:
    text = value.encode(errors="replace").decode() + " "
    batch = pa.RecordBatch.from_pylist([{"name": text}], schema=pa.schema([("name", pa.string())]))
    plan = ColumnPlan("name", "name", pa.string(), Encoding.TEXT, nullable=True, padded=True)
    with pytest.raises(RejectedRowsError) as caught:
        encode(batch, [plan], LOAD_DATA)
    return str(caught.value)


def kafka_value(value: str) -> str:
    array = pa.array([value.encode(errors="replace").decode()])
    with pytest.raises(UnfitError) as caught:
        convert("day", array, pa.field("day", pa.date32()))
    return str(caught.value)


def partition_value(value: str) -> str:
    with pytest.raises(RefusedValueError) as caught:
        folder_name("name", value + "x" * 300)
    return str(caught.value)


def metastore_error(value: str) -> str:
    session: Any = SimpleNamespace(_jsparkSession=None)
    with (
        pytest.raises(TargetUnreachableError) as caught,
        Catalog(session)._answering("add partitions"),
    ):
        raise Py4JError(f"AlreadyExistsException: Partition [{value}] exists")
    return str(caught.value)


def spark_error(value: str) -> str:
    return str(
        declined(
            RuntimeError(f"[CAST_INVALID_INPUT] The value '{value}' of the type STRING"),
            "Checkpoint 3",
        )
    )


PLACES: list[Callable[[str], str]] = [
    mysql_error,
    mysql_warning,
    mysql_value,
    kafka_value,
    partition_value,
    metastore_error,
    spark_error,
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_quoted_on_one_line_and_cut(place: Callable[[str], str], name: str) -> None:
    message = place(HOSTILE[name])
    assert SECRET in message
    assert message.isprintable()
    assert len(message) < 8 * LIMIT
    assert errors.from_text(message) is None


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("mysql://ann:open sesame@db", "mysql://ann:open sesame@db"),  # no URL: it has a space
        ("mysql://ann:sesame@db/shop", f"mysql://ann:{REDACTED}@db/shop"),
        ("password=sesame host=db", f"password={REDACTED} host=db"),
        ('password="open sesame" host=db', f'password="{REDACTED}" host=db'),
        ("Token='a, b; c'", f"Token='{REDACTED}'"),
        ("secret='never closed", f"secret='{REDACTED}"),
        ("the password is wrong", "the password is wrong"),
    ],
)
def test_what_looks_like_a_password_is_left_out(text: str, safe: str) -> None:
    assert printable(text) == safe


@pytest.mark.usefixtures("redacting")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_left_out_where_the_application_says_so(
    place: Callable[[str], str], name: str
) -> None:
    message = place(HOSTILE[name])
    assert SECRET not in message
    assert REDACTED in message


def test_a_value_looks_like_a_value() -> None:
    assert shown("a") == "'a'"
    assert shown("it's") == '"it\'s"'
    assert shown(b"\x00") == r"b'\x00'"
    assert shown(decimal.Decimal("1.50")) == "Decimal('1.50')"
    assert (
        shown({"id": 50, "day": datetime.date(2026, 1, 2)})
        == "{'id': 50, 'day': datetime.date(2026, 1, 2)}"
    )
    assert shown([1, None, "a"]) == "[1, None, 'a']"
    assert shown("x" * 1_000, 3) == "'xxx'... (1,000 characters)"
    assert shown(b"x" * 1_000, 3) == "b'xxx'... (1,000 bytes)"
    assert shown({f"column{number}": "x" * 100 for number in range(4_096)}).endswith(", ...}")


@given(st.recursive(st.text() | st.binary() | st.integers() | st.none(), st.lists))
def test_any_value_is_one_line(value: object) -> None:
    assert shown(value).isprintable()


@given(st.text())
def test_any_text_is_one_line_in_a_log(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable() or len(text) > 1_000


@pytest.fixture
def fresh() -> Iterator[None]:
    """Once on, it stays on: not for the tests after this one."""
    before = {*redaction._redacting}
    yield
    redaction._redacting.clear()
    redaction._redacting.update(before)


@pytest.mark.usefixtures("fresh")
def test_the_setting_reaches_the_workers_and_stays_on() -> None:
    environment: dict[str, str] = {}
    share_redaction("false", environment)
    assert (environment, shown("a")) == ({}, "'a'")
    share_redaction("True", environment)
    assert (environment, shown("a")) == ({VARIABLE: "true"}, REDACTED)
    share_redaction("false", environment)
    assert shown("a") == REDACTED


def test_a_setting_that_is_neither_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=rf"{SETTING} is 'yes'") as caught:
        share_redaction("yes", {})
    assert isinstance(caught.value, TwoPhaseError)
    environment: dict[str, str] = {}
    share_redaction("false", environment)
    assert VARIABLE not in environment


HOSTILE_TEXT = f"{SECRET}\x1b[2J\nJobStopped job=orders {'x' * 10_000}"


def test_an_event_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "twophase")
    log_event(CommitRetried("orders", 3, "facts", HOSTILE_TEXT, 1, 0.0, 0.1))
    (message,) = caplog.messages
    assert message.isprintable()
    assert len(message) < 3_000


def shown_on_a_terminal() -> str:
    output = io.StringIO()
    try:
        raise ValueError(HOSTILE_TEXT)
    except ValueError as error:
        show_error(Console(file=output), error, verbose=True)
    return output.getvalue()


def test_a_traceback_does_not_steer_the_terminal() -> None:
    assert SECRET in shown_on_a_terminal()
    assert "\x1b" not in shown_on_a_terminal()


@pytest.mark.usefixtures("redacting")
def test_a_traceback_says_where_and_not_what_where_the_application_says_so() -> None:
    assert "in shown_on_a_terminal" in shown_on_a_terminal()
    assert SECRET not in shown_on_a_terminal()


@pytest.mark.parametrize("name", ["DB_PASSWORD", "_X1", "X"])
def test_the_name_of_a_variable_is_shown(name: str) -> None:
    assert shown_variable(name) == repr(name)


@pytest.mark.parametrize("name", ["hunter2", "S3cret!", "p@SS", "", "1X", "A B", "X\n"])
def test_what_may_be_the_secret_itself_is_not_shown(name: str) -> None:
    assert name not in shown_variable(name) or not name
