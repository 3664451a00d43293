"""The settings that a query of a job starts with, and what contradicts them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.spark.folder import state_backend
from twophase.spark.folder.state_backend import CHANGELOG, PROVIDER

_CLASS = "org.apache.spark.sql.execution.streaming.state"
HASHMAP, ROCKSDB = (f"{_CLASS}.{name}StateStoreProvider" for name in ("HDFSBacked", "RocksDB"))


class Conf:
    """A session's settings, with Spark's default for the one that it registers."""

    def __init__(self, **given: str) -> None:
        self.given = {PROVIDER if key == "provider" else CHANGELOG: given[key] for key in given}

    def get(self, key: str, *default: str | None) -> str | None:
        if default or key in self.given:
            return self.given.get(key, *default)
        return {PROVIDER: HASHMAP}[key]

    def set(self, key: str, value: str) -> None:
        self.given[key] = value

    def unset(self, key: str) -> None:
        self.given.pop(key, None)


class Session:
    def __init__(self, **given: str) -> None:
        self.conf = Conf(**given)


def options(**given: str) -> JobOptions:
    keys = {"backend": "state.backend", "incremental": "state.backend.incremental"}
    job = {keys[name]: value for name, value in given.items()}
    return JobOptions.parse({"checkpointLocation": "/chk", **job}, "job")


def wanted(session: Session, **given: str) -> dict[str, str]:
    return dict(state_backend.wanted_settings("orders", options(**given), session))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"backend": "hashmap"}, {PROVIDER: HASHMAP}),
        ({"backend": "rocksdb"}, {PROVIDER: ROCKSDB, CHANGELOG: "true"}),
        ({"backend": "rocksdb", "incremental": "false"}, {PROVIDER: ROCKSDB, CHANGELOG: "false"}),
    ],
)
def test_the_options_become_spark_s_settings(given: Any, expected: dict[str, str]) -> None:
    assert wanted(Session(), **given) == expected


def test_spark_s_own_settings_win_where_the_job_has_no_option() -> None:
    assert wanted(Session(provider=ROCKSDB, changelog="false")) == {}
    assert wanted(Session(changelog="false"), backend="rocksdb") == {PROVIDER: ROCKSDB}
    assert wanted(Session(provider=ROCKSDB), incremental="true") == {CHANGELOG: "true"}


@pytest.mark.parametrize(
    ("session", "given", "named"),
    [
        (Session(provider=ROCKSDB), {"backend": "hashmap"}, PROVIDER),
        (Session(provider="com.example.Provider"), {"backend": "rocksdb"}, PROVIDER),
        (
            Session(provider=ROCKSDB, changelog="TRUE"),
            {"backend": "rocksdb", "incremental": "false"},
            CHANGELOG,
        ),
    ],
)
def test_a_contradiction_is_refused_by_name_and_gone_without_either(
    session: Session, given: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match="Nothing was written") as caught:
        wanted(session, **given)
    assert named in str(caught.value)
    assert caught.value.remedy == "leave out either the option or Spark's setting."
    assert wanted(Session(), **given)
    option = "backend" if named == PROVIDER else "incremental"
    wanted(session, **{key: given[key] for key in given if key != option})


def test_incremental_state_is_refused_without_rocksdb() -> None:
    with pytest.raises(ConfigError, match=r"state\.backend\.incremental applies to") as caught:
        wanted(Session(), incremental="true")
    assert caught.value.remedy == (
        "set `state.backend=rocksdb`, or leave state.backend.incremental out."
    )
    assert wanted(Session(), incremental="true", backend="rocksdb")
    assert wanted(Session()) == {}


def header(provider: str | None) -> str:
    conf = {} if provider is None else {PROVIDER: provider}
    return json.dumps({"batchWatermarkMs": 0, "conf": conf})


@pytest.mark.parametrize("noted", ["", header(None), header(ROCKSDB)])
def test_a_job_goes_on_with_the_backend_that_it_began_with(noted: str) -> None:
    state_backend.check_noted("orders", options(backend="rocksdb"), noted)


def test_another_backend_than_that_of_the_state_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"hashmap wrote the state.*Nothing was written"
    ) as caught:
        state_backend.check_noted("orders", options(backend="rocksdb"), header(HASHMAP))
    assert caught.value.remedy.startswith("set `state.backend=hashmap`, or leave it out.")
    for given in ({"backend": "hashmap"}, {}):
        state_backend.check_noted("orders", options(**given), header(HASHMAP))
    state_backend.check_noted("orders", options(backend="rocksdb"), "")  # a new checkpointLocation


def test_a_backend_that_no_option_names_needs_none() -> None:
    noted = header("com.example.Provider")
    with pytest.raises(ConfigError, match=r"com\.example\.Provider wrote the state") as caught:
        state_backend.check_noted("orders", options(backend="hashmap"), noted)
    assert caught.value.remedy.startswith("leave state.backend out.")
    state_backend.check_noted("orders", options(), noted)


def test_a_session_has_its_own_settings_again_after_the_start() -> None:
    session: Any = Session(provider=ROCKSDB)
    try:
        with state_backend.applied(session, {PROVIDER: ROCKSDB, CHANGELOG: "true"}):
            assert session.conf.given == {PROVIDER: ROCKSDB, CHANGELOG: "true"}
            raise RuntimeError
    except RuntimeError:
        pass
    assert session.conf.given == {PROVIDER: ROCKSDB}
