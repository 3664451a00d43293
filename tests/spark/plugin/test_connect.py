"""What a session of Spark Connect tells of itself, by its settings alone. `integration/connect` has
servers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.plugin.plugin_world import SCHEMA, World
from tests.spark.plugin.test_plugin_refusals import source
from twophase import errors, seal
from twophase.errors import ConfigError, PreflightError
from twophase.internals import redaction
from twophase.spark.folder.folder_formats import KNOWN, OFFSET_LOG
from twophase.spark.plan import shuffles
from twophase.spark.plugin import registration
from twophase.spark.plugin.description import Environment
from twophase.spark.plugin.registration import (
    environment_of,
    expect_profiles,
    is_of_connect,
    register,
)

_DEFAULTS = {
    "spark.master": "local[3]",
    "spark.sql.session.timeZone": "UTC",
    shuffles.FULL_RETRY: "true",
}
_RETRY = shuffles.Fault(shuffles.FULL_RETRY, "true")
_PUSH = shuffles.Fault(shuffles.PUSH, "false")


class Settings(dict[str, str]):
    """`SparkSession.conf` of such a session."""

    def get(self, key: str, *default: Any) -> Any:
        return super().get(key, *default) if default else self[key]


@pytest.fixture(autouse=True)
def _variables_of_this_process_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registration, "_variables", {})
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    redaction._redacting.clear()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Environment(3, False, "UTC")),
        ({"spark.master": "local[4,2]"}, Environment(4, False, "UTC")),
        ({"spark.master": "local"}, Environment(0, False, "UTC")),
        ({"spark.master": "local[*]"}, Environment(0, False, "UTC")),
        ({"spark.master": "yarn"}, Environment(0, False, "UTC")),
        ({"spark.master": ""}, Environment(0, False, "UTC")),
        (
            {"spark.master": "k8s://api", "spark.default.parallelism": "40"},
            Environment(40, False, "UTC"),
        ),
        ({"spark.speculation": "true"}, Environment(3, True, "UTC")),
        ({"spark.speculation": "TRUE"}, Environment(3, True, "UTC")),
        ({"spark.speculation": "false"}, Environment(3, False, "UTC")),
        ({"spark.sql.session.timeZone": "Asia/Tokyo"}, Environment(3, False, "Asia/Tokyo")),
        ({shuffles.FULL_RETRY: "false"}, Environment(3, False, "UTC", _RETRY)),
        ({shuffles.PUSH: "true"}, Environment(3, False, "UTC", _PUSH)),
    ],
)
def test_what_the_settings_tell(settings: dict[str, str], expected: Environment) -> None:
    found = environment_of(Settings(_DEFAULTS | settings))
    assert {**vars(found), "variables": {}} == vars(expected)


@pytest.mark.spark
def test_a_session_has_the_settings_of_its_application_too(spark: SparkSession) -> None:
    found = environment_of(spark.conf)
    assert (found.parallelism, found.timezone) == (2, "UTC")


def test_a_worker_seals_its_errors_with_the_key_of_the_client(world: World) -> None:
    environment = environment_of(Settings(_DEFAULTS))
    os.environ[seal.VARIABLE] = "of another client, whose query this worker has served"
    with pytest.raises(ConfigError) as raised:
        source({}, environment=environment).streamWriter(SCHEMA, overwrite=False)
    del os.environ[seal.VARIABLE]  # the client has only what it has sent
    [sealed] = raised.value.__notes__
    assert str(errors.from_text(sealed)) == str(raised.value)


def test_a_worker_redacts_if_the_session_says_so(world: World) -> None:
    environment = environment_of(Settings(_DEFAULTS | {redaction.SETTING: "true"}))
    redaction._redacting.clear()
    assert redaction.shown("secret") == "'secret'"
    environment.enter()
    assert redaction.shown("secret") == redaction.REDACTED


def test_a_shuffle_that_spark_would_not_detect_is_refused_on_the_server(
    world: World, tmp_path: Path
) -> None:
    options = {
        "name": "orders",
        "checkpointLocation": str(world.folder),
        "path": str(world.target.root),
    }
    off = environment_of(Settings(_DEFAULTS | {shuffles.FULL_RETRY: "false"}))
    with pytest.raises(PreflightError) as raised:
        source(options, environment=off).check(SCHEMA, "append")
    assert raised.value.remedy == f"set `{shuffles.FULL_RETRY}=true`."
    source(options, environment=environment_of(Settings(_DEFAULTS))).check(SCHEMA, "append")


@pytest.mark.parametrize("key", KNOWN)
def test_a_format_of_spark_s_folder_that_is_not_known_is_refused_by_register(key: str) -> None:
    on = "2" if key == OFFSET_LOG else "true"
    with pytest.raises(PreflightError, match=f"{key} is {on}, and Spark would write") as raised:
        environment_of(Settings(_DEFAULTS | {key: on}))
    assert f"set `{key}={KNOWN[key]}`" in raised.value.remedy
    environment_of(Settings(_DEFAULTS | {key: KNOWN[key]}))


def test_only_a_class_of_spark_connect_is_one() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert is_of_connect(session())
    assert is_of_connect(type("Derived", (session,), {})())
    assert not is_of_connect(SimpleNamespace())


@pytest.mark.spark
def test_what_is_no_session_is_refused(spark: SparkSession) -> None:
    reader: Any = spark.readStream
    with pytest.raises(ConfigError, match="DataStreamReader, not a Spark session") as raised:
        register(reader)
    assert raised.value.remedy.startswith("call twophase.register(spark) with the session")
    register(spark)
    read = spark.readStream.format("twophase-kafka").option("subscribe", "orders")
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
        read.load()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


class Client:
    """Answers a command as `SparkConnectClient` does, a profiler having found something."""

    def _execute_and_fetch_as_iterator(self, command: str) -> Iterator[Any]:
        yield {"command": command}
        yield SimpleNamespace(name="__python_accumulator__")
        yield SimpleNamespace(name="counted by the user")


def test_the_report_of_a_profiler_reaches_nobody_who_reads_responses() -> None:
    client = Client()
    expect_profiles(client)
    once = client._execute_and_fetch_as_iterator
    expect_profiles(client)
    assert client._execute_and_fetch_as_iterator is once
    responses = [*once("run")]
    assert responses == [{"command": "run"}, SimpleNamespace(name="counted by the user")]


def test_a_client_without_that_method_is_left_alone() -> None:
    client = SimpleNamespace()
    expect_profiles(client)
    assert vars(client) == {}
