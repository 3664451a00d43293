"""What is no value of an option is refused by name, and secrets are not quoted for it: over the
options of jobs, sources and sinks, so that a new option is tested too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.options.test_yaml_words import GROUPS, kinds_of
from twophase.errors import ConfigError
from twophase.internals.clock import SystemClock
from twophase.internals.redaction import shown_file
from twophase.options.parsing import LONGEST_S, Options
from twophase.options.references import secret_of
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.mysql.options import MySqlOptions

JAVAS_LONGEST = "9223372036854775807 ms"
EMPTY_IS_A_VALUE = {"restore.id"}
OF_SOCKETS = {"connect_timeout", "io_timeout", "request.timeout"}
"""Their longest time is that of a C int of milliseconds, 24 days."""
MYSQL = {"url": "mysql://a@b/c", "table": "t"}


def bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def of_kinds(*wanted: object) -> Iterator[Any]:
    """Each option of some kind: its group, and its key."""
    for group in GROUPS:
        for name, field in group.model_fields.items():
            kinds = [bare(kind) for kind in kinds_of(group, name)]
            if any(one in kinds for one in wanted):
                yield pytest.param(group, field.alias or name, id=f"{group.__name__}-{name}")


def refused(group: type[Options], options: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        group.parse(options, "here")
    return str(caught.value)


@pytest.mark.parametrize(("group", "key"), list(of_kinds(int, float)))
@pytest.mark.parametrize("word", [True, False])
def test_a_boolean_is_no_number(group: type[Options], key: str, word: bool) -> None:
    said = refused(group, {key: word})
    assert f"option {key!r} is {word}: " in said
    assert "not true or false" in said


@pytest.mark.parametrize(("group", "key"), list(of_kinds(str, tuple[str, ...])))
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_no_name_and_no_path(group: type[Options], key: str, text: str) -> None:
    if key not in EMPTY_IS_A_VALUE:
        assert f"option {key!r} " in refused(group, {key: text})


@pytest.mark.parametrize(("group", "key"), list(of_kinds(float)))
def test_the_longest_time_of_java_is_for_ever_or_refused(group: type[Options], key: str) -> None:
    fields = group.model_fields.items()
    [field] = [field for name, field in fields if key in (name, field.alias)]
    kind: Any = Annotated[field.annotation, "", *field.metadata]
    try:
        seconds = TypeAdapter(kind).validate_python(JAVAS_LONGEST)
    except ValidationError as error:
        seconds = str(error)
    if key == "checkpoint.interval":  # no wait: Spark refuses it at the start
        assert seconds == int(JAVAS_LONGEST.removesuffix(" ms")) / 1000
        return
    assert seconds == LONGEST_S or "less than or equal to" in seconds
    assert key not in OF_SOCKETS or seconds != LONGEST_S


def test_a_wait_for_ever_can_be_waited_for() -> None:
    event = threading.Event()
    threading.Timer(0.05, event.set).start()
    assert SystemClock().wait(event, LONGEST_S)


# -- secrets ---------------------------------------------------------------------------------------


def keys_of_secrets() -> Iterator[Any]:
    for param in of_kinds(str):
        group, key = param.values
        if key.endswith(("env", "_file", ".file")):
            yield pytest.param(group, key, id=param.id)


@pytest.mark.parametrize(("group", "key"), list(keys_of_secrets()))
@pytest.mark.parametrize("secret", [12345678, ["hunter2", ["a"]], {"hunter2": 1}, True])
def test_what_is_written_where_a_secret_is_named_is_not_shown(
    group: type[Options], key: str, secret: Any
) -> None:
    said = refused(group, {key: secret})
    assert f"option {key!r} is" in said
    assert "hunter2" not in said
    assert "12345678" not in said


@pytest.mark.parametrize(
    ("group", "options", "said"),
    [
        (MySqlOptions, {**MYSQL, "io_timeout": "1s"}, "here: io_timeout must be longer"),
        (
            MySqlOptions,
            {**MYSQL, "password_file": "/x"},
            "here: give password_env or password_file, not both.",
        ),
        (
            IcebergOptions,
            {"catalog_uri": "https://c", "table": "a.b", "password_file": "/x"},
            "here: give password_env or password_file, not both.",
        ),
    ],
)
def test_options_that_do_not_go_together_are_named_and_not_shown(
    group: type[Options], options: dict[str, Any], said: str
) -> None:
    message = refused(group, {**options, "password_env": "hunter2"})
    assert message.startswith(said)
    assert "hunter2" not in message


def test_a_section_in_the_place_of_a_text_is_not_shown() -> None:
    message = refused(MySqlOptions, {**MYSQL, "table": {"t": {"password": "hunter2"}}})
    assert message.startswith("here: option 'table' is a mapping: ")


def test_a_secret_in_place_of_its_file_is_not_shown(tmp_path: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        secret_of("password", None, "hunter2")
    assert "hunter2" not in str(caught.value)
    assert "(not shown: write its path)" in str(caught.value)
    assert shown_file("/run/secrets/db") == "'/run/secrets/db'"


def test_an_empty_name_of_a_variable_is_not_the_absence_of_a_secret() -> None:
    with pytest.raises(ConfigError, match="is not set"):
        secret_of("password", "", None)
