"""Options are checked before anything is opened, and no error shows a password."""

from __future__ import annotations

import pickle
import re

import pytest

from twophase.errors import ConfigError
from twophase.sinks.mysql.options import MySqlOptions, Protocol, Tls
from twophase.sinks.mysql.sink import MySqlSink

CANARY = "canary-password-7e1d"
URL = "mysql://app@db.example:3307/shop"


def parse(**options) -> MySqlOptions:
    return MySqlOptions.parse({"url": URL, "table": "orders", **options}, "sink 'facts'")


def test_the_url_says_where_to_go():
    where = parse(url="mysql://app%40x@db.example/my%20shop").endpoint()
    assert (where.host, where.port, where.user, where.schema) == (
        "db.example",
        3306,
        "app@x",
        "my shop",
    )


def test_options_come_as_text_too():
    options = parse(
        load_rows="1000", lock_wait_timeout="2 s", allow_unsafe_durability="true", protocol="xa"
    )
    assert (options.load_rows, options.lock_wait_timeout_s, options.allow_unsafe_durability) == (
        1000,
        2.0,
        True,
    )
    assert options.protocol is Protocol.XA


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://app:{CANARY}@db/shop",
        f"mysql://app:{CANARY}@db:port/shop",
        f"mysql:/app:{CANARY}@db/shop",
        f"app:{CANARY}@db/shop",
        f"mysql://app:{CANARY}%40@db/shop",
        f"mysql://app:a@{CANARY}@db/shop",
        f"postgres://app:{CANARY}@db/shop",
        f"mysql://app@db/shop?password={CANARY}",
        f"mysql://app@db/shop#{CANARY}",
        f" mysql://app:{CANARY}@db/shop",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(url, monkeypatch):
    with pytest.raises(ConfigError, match="name it by reference: password_env") as caught:
        MySqlSink(url=url, table="orders")
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value.__context__)
    monkeypatch.setenv("DB_PASSWORD", CANARY)
    where = parse(url=form_in(caught.value), password_env="DB_PASSWORD").endpoint()
    assert where.password.reveal() == CANARY


def form_in(error: ConfigError) -> str:
    """The form of a URL that an error shows."""
    [form] = re.findall(r"write (?:it as )?(mysql://[\w@:/]+)", str(error))
    return str(form)


@pytest.mark.parametrize(
    "url", ["mysql://db/shop", "mysql://app@/shop", "mysql://app@db", "mysql://app@db/", "http://app@db/shop",
            "mysql://app@db:0/shop", "mysql://app@db:99999/shop", "mysql://app@db/a/b", "nonsense"]
)  # fmt: skip
def test_a_url_of_another_form_is_refused(url):
    with pytest.raises(ConfigError, match="'url'") as caught:
        parse(url=url)
    assert parse(url=form_in(caught.value)).endpoint().schema == "schema"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("protocol", "staged", "not available yet"),
        ("protocol", "2pc", "xa"),
        ("url", "", "at least 1 character"),
        ("tls", "on", "verify_identity"),
        ("load_rows", 0, "load_rows"),
        ("load_rows", "many", "load_rows"),
        ("lock_wait_timeout", "100 ms", "lock_wait_timeout"),
        ("lock_wait_timeout", "10 min", "io_timeout"),
        ("table", "", "table"),
        ("table", "a\0b", "name"),
        ("table", "t" * 65, "name"),
        ("bookkeeping_schema", "a\0b", "name"),
        ("passwort_env", "X", "password_env"),
    ],
)
def test_a_bad_option_is_named(option, value, said):
    with pytest.raises(ConfigError, match=said):
        parse(**{option: value})


def test_a_password_option_is_unknown_and_not_shown():
    with pytest.raises(ConfigError) as caught:
        parse(password=CANARY)
    assert CANARY not in str(caught.value)


def test_two_references_to_the_password_are_refused():
    with pytest.raises(ConfigError, match="not both"):
        parse(password_env="A", password_file="b")


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({}, Tls.VERIFY_IDENTITY),
        ({"url": "mysql://app@10.0.0.5/shop"}, Tls.VERIFY_IDENTITY),
        ({"url": "mysql://app@localhost.example/shop"}, Tls.VERIFY_IDENTITY),
        ({"url": "mysql://app@localhost/shop"}, Tls.OFF),
        ({"url": "mysql://app@127.0.0.9/shop"}, Tls.OFF),
        ({"url": "mysql://app@[::1]:3306/shop"}, Tls.OFF),
        ({"unix_socket": "/run/mysqld.sock"}, Tls.OFF),
        ({"url": "mysql://app@localhost/shop", "tls": "verify_identity"}, Tls.VERIFY_IDENTITY),
        ({"tls": "off"}, Tls.OFF),
    ],
)
def test_a_server_elsewhere_must_prove_who_it_is_unless_told_otherwise(changes, policy):
    assert parse(**changes).endpoint().tls is policy


class TestPasswords:
    def test_from_the_environment(self, monkeypatch):
        monkeypatch.setenv("DB_PASSWORD", CANARY)
        assert parse(password_env="DB_PASSWORD").endpoint().password.reveal() == CANARY

    def test_from_a_file(self, tmp_path):
        (tmp_path / "p").write_text(f"{CANARY}\n")
        assert parse(password_file=str(tmp_path / "p")).endpoint().password.reveal() == CANARY

    def test_a_reference_that_leads_nowhere_is_named(self, tmp_path, monkeypatch):
        with pytest.raises(ConfigError, match=r"NOT_SET_ANYWHERE.*: set it where"):
            parse(password_env="NOT_SET_ANYWHERE").endpoint()
        monkeypatch.setenv("NOT_SET_ANYWHERE", CANARY)
        assert parse(password_env="NOT_SET_ANYWHERE").endpoint().password.reveal() == CANARY
        file = tmp_path / "missing"
        with pytest.raises(ConfigError, match=r"missing.*: give a file with the password"):
            parse(password_file=str(file)).endpoint()
        file.write_text(CANARY)
        assert parse(password_file=str(file)).endpoint().password.reveal() == CANARY

    def test_the_password_is_shown_by_nothing_and_reaches_the_executors(self, monkeypatch):
        monkeypatch.setenv("DB_PASSWORD", CANARY)
        where = parse(password_env="DB_PASSWORD").endpoint()
        assert CANARY not in f"{where!r} {where} {where.password!r} {where.password}"
        assert pickle.loads(pickle.dumps(where)).password.reveal() == CANARY

    def test_an_unopened_sink_holds_no_password(self, monkeypatch):
        monkeypatch.setenv("DB_PASSWORD", CANARY)
        sink = MySqlSink(url=URL, table="orders", password_env="DB_PASSWORD")
        assert CANARY.encode() not in pickle.dumps(sink)
