"""Each option of a REST catalog reaches the server, and a wrong one is named with the way on."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import RestPlace
from harness.rest_gateway import Gateway, Reply, error, gateway
from harness.rights import secret_file
from tests.sinks.iceberg.others import FIELDS, commit, ids_of, rows
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, PreflightError, TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.iceberg import rest_client
from twophase.testing.services.iceberg_rest import IcebergRestService

pytestmark = [pytest.mark.part("files"), pytest.mark.server]

SECRET, TOKEN = "open-sesame", "the-first-token"


@pytest.fixture
def harness(before: Gateway, rest_server: IcebergRestService, warehouses: Path) -> IcebergHarness:
    """Its sink goes through the gateway, its readers do not."""
    place = RestPlace(rest_server.uri, warehouses / "rest", catalog_uri=before.uri)
    return IcebergHarness(place, FIELDS)


def file_with(folder: Path, text: str) -> str:
    return str(secret_file(folder / f"secret-{len([*folder.iterdir()])}", f"{text}\n"))


@dataclass
class Option:
    """One option, as a server demands it.

    Attributes:
        right: what the server demands.
        wrong: the same, not as it should be.
        says: what the refusal says.
        remedy: what is in its remedy.
    """

    right: dict[str, Any]
    wrong: dict[str, Any]
    says: str
    remedy: str


Demand = Callable[[Gateway, Path, pytest.MonkeyPatch], Option]
LOGIN = "refuses the login"


def token_env(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.tokens = [TOKEN]
    patch.setenv("LAKE_TOKEN", TOKEN)
    patch.setenv("OTHER_TOKEN", SECRET)
    return Option({"token_env": "LAKE_TOKEN"}, {"token_env": "OTHER_TOKEN"}, LOGIN, "token_env")


def token_file(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.tokens = [TOKEN]
    right, wrong = file_with(folder, TOKEN), file_with(folder, SECRET)
    return Option({"token_file": right}, {"token_file": wrong}, LOGIN, "token_file")


def credential_env(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.tokens, before.credential = [TOKEN], f"etl:{SECRET}"
    patch.setenv("LAKE_ACCOUNT", before.credential)
    patch.setenv("OTHER_ACCOUNT", "etl:barley")
    return Option(
        {"credential_env": "LAKE_ACCOUNT"},
        {"credential_env": "OTHER_ACCOUNT"},
        LOGIN,
        "credential_env",
    )


def credential_file(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.tokens, before.credential = [TOKEN], f"etl:{SECRET}"
    right, wrong = file_with(folder, before.credential), file_with(folder, "etl:barley")
    return Option(
        {"credential_file": right}, {"credential_file": wrong}, LOGIN, "credential_file names"
    )


def scope(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.scope = "PRINCIPAL_ROLE:ALL"
    account = credential_file(before, folder, patch).right
    right, wrong = ({**account, "scope": one} for one in (before.scope, "catalog"))
    return Option(
        right, wrong, f"{LOGIN}: OAuthError: invalid_scope", "oauth2_server_uri and scope"
    )


def oauth2_server_uri(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    account = credential_file(before, folder, patch).right
    before.tokens_at = "/login/token"
    right, wrong = (f"{before.uri}{path}" for path in (before.tokens_at, "/login/nothing"))
    return Option(
        {**account, "oauth2_server_uri": right},
        {**account, "oauth2_server_uri": wrong},
        f"{re.escape(wrong)}, where the driver gets tokens for {re.escape(before.uri)},",
        "oauth2_server_uri",
    )


def warehouse(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.warehouse = "shop"
    return Option(
        {"warehouse": "shop"}, {"warehouse": "shed"}, "no such warehouse", "and warehouse, prefix"
    )


def prefix(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.prefix = "eu/shop"
    return Option({"prefix": "eu/shop"}, {"prefix": "eu"}, "no such prefix", "prefix and headers")


def headers(before: Gateway, folder: Path, patch: pytest.MonkeyPatch) -> Option:
    before.wanted = {"x-tenant": "shop", "x-team": "data"}
    right, wrong = (["X-Team: data", f"X-Tenant: {one}"] for one in ("shop", "shed"))
    return Option({"headers": right}, {"headers": wrong}, "no such tenant", "prefix and headers")


@pytest.mark.parametrize(
    "demand",
    [
        token_env,
        token_file,
        credential_env,
        credential_file,
        scope,
        oauth2_server_uri,
        warehouse,
        prefix,
        headers,
    ],
    ids=lambda demand: demand.__name__,
)
def test_the_server_gets_the_option_and_a_wrong_one_is_named_with_the_way_on(
    harness: IcebergHarness,
    before: Gateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    demand: Demand,
) -> None:
    option = demand(before, tmp_path, monkeypatch)
    with pytest.raises(PreflightError, match=option.says) as caught:
        harness.opened(**option.wrong)
    assert option.remedy in caught.value.remedy
    assert_hidden(caught.value)
    name = demand.__name__
    with pytest.raises(PreflightError):
        harness.opened(**{key: given for key, given in option.right.items() if key != name})
    harness.options = option.right
    sink = harness.opened()
    commit(harness, sink, rows(0))
    assert ids_of(harness) == [0]
    harness.new_sink().check_connection()


def assert_hidden(error: Exception) -> None:
    shown = "".join(traceback.format_exception(error))
    assert not [secret for secret in (SECRET, TOKEN, "barley") if secret in shown]


def test_the_table_of_another_prefix_is_found_once_it_is_corrected(
    harness: IcebergHarness, before: Gateway
) -> None:
    """A server may say of a prefix that it does not know that there is no such table."""
    harness.opened().close()
    before.prefix = "shop"
    for call in (
        harness.new_sink(create=False).check_connection,
        lambda: harness.opened(create=False),
    ):
        with pytest.raises(ConfigError, match="There is no table") as caught:
            call()
        assert "correct table, warehouse or prefix" in caught.value.remedy
    harness.opened(create=False, prefix="shop").close()


# -- a token ---------------------------------------------------------------------------------------


def test_a_token_that_ends_under_a_running_job_is_replaced_in_its_file(
    harness: IcebergHarness, before: Gateway, tmp_path: Path
) -> None:
    before.tokens = [TOKEN]
    secret = Path(file_with(tmp_path, TOKEN))
    harness.options = {"token_file": str(secret)}
    sink = harness.opened()
    request = CommitRequest(harness.write(sink, rows(0)))
    before.tokens = [SECRET]
    for _ in range(2):
        with pytest.raises(TargetUnreachableError, match=LOGIN) as caught:
            sink.commit([request])
        assert "token_file" in caught.value.remedy
        assert_hidden(caught.value)
    secret.write_text(f"{SECRET}\n")
    assert sink.commit([request]) == [Committed()]
    sink.fence(Attempt(1, 1))
    later = CommitRequest(harness.write(sink, rows(1), 1, Attempt(1, 1)))
    assert sink.commit([later]) == [Committed()]
    assert ids_of(harness) == [0, 1]


@pytest.mark.parametrize("found", [None, "", "two\nlines"], ids=["no file", "empty", "half of it"])
def test_while_the_file_of_a_token_is_being_replaced_the_last_one_is_sent(
    harness: IcebergHarness, before: Gateway, tmp_path: Path, found: str | None
) -> None:
    before.tokens = [TOKEN]
    secret = Path(file_with(tmp_path, TOKEN))
    sink = harness.opened(token_file=str(secret))
    secret.unlink()
    if found is not None:
        secret.write_text(found)
    commit(harness, sink, rows(0))
    before.tokens = [SECRET]
    secret.write_text(SECRET)
    commit(harness, sink, rows(1), 1)
    assert ids_of(harness) == [0, 1]


@pytest.mark.parametrize("given", [f"{SECRET}\n\na", f"{SECRET}\u20ac", f"{SECRET}\r\nX-Other: a"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown_and_alone_it_is_sent(
    harness: IcebergHarness, before: Gateway, tmp_path: Path, given: str
) -> None:
    before.tokens = [SECRET]
    secret = Path(file_with(tmp_path, ""))
    secret.write_text(given)
    harness.options = {"token_file": str(secret)}
    for call in (harness.new_sink().check_connection, harness.opened):
        with pytest.raises(ConfigError, match="that token_file names has characters") as caught:
            call()
        assert caught.value.remedy == "leave nothing but the token there, in one line."
        assert_hidden(caught.value)
    secret.write_text(SECRET)
    harness.opened().close()


def test_a_token_that_a_server_repeats_is_not_shown(
    harness: IcebergHarness, before: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the sink is open nor later, whether it was given or got for a credential."""
    option = credential_file(before, tmp_path, monkeypatch)
    before.refuses = 403
    with pytest.raises(PreflightError, match=r"forbids it: .*Bearer <redacted>") as caught:
        harness.opened(**option.right)
    assert "grant the account" in caught.value.remedy
    assert_hidden(caught.value)
    before.refuses = 0
    sink = harness.opened(**option.right)
    before.refuses = 403
    with pytest.raises(TargetUnreachableError, match=r"forbids it: .*Bearer <redacted>") as later:
        sink.history()
    assert_hidden(later.value)


# -- where tokens come from ------------------------------------------------------------------------


def test_a_server_of_tokens_that_hangs_is_named_within_the_deadline(
    harness: IcebergHarness, before: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = credential_file(before, tmp_path, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rest_client, "_READ_S", 0.5)
        where = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        with pytest.raises(TargetUnreachableError, match=f"{where}, where .* Read timed") as caught:
            harness.opened(**option.right, oauth2_server_uri=where)
    assert caught.value.remedy == "check that this server runs, or correct oauth2_server_uri."
    harness.opened(**option.right).close()


@pytest.mark.parametrize(
    "answers",
    [(200, b"<html>Log in</html>"), (200, b'{"access_token": "the-first-token"}'), (404, b"what?")],
    ids=["a page", "half a token", "nothing"],
)
def test_a_server_that_gives_no_token_is_named_and_one_that_does_leads_on(
    harness: IcebergHarness,
    before: Gateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: Reply,
) -> None:
    option = credential_file(before, tmp_path, monkeypatch)
    with gateway(before.uri) as other:
        other.answers = answers
        where = f"{other.uri}/token"
        with pytest.raises(PreflightError, match=f"{where}, where .* gives no token") as caught:
            harness.opened(**option.right, oauth2_server_uri=where)
    assert "correct oauth2_server_uri" in caught.value.remedy
    assert_hidden(caught.value)
    harness.opened(**option.right).close()


def test_a_server_of_tokens_that_is_down_under_a_running_job_is_named_until_it_runs(
    harness: IcebergHarness,
    before: Gateway,
    rest_server: IcebergRestService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    option = credential_file(before, tmp_path, monkeypatch)
    with gateway(rest_server.uri) as login:
        login.tokens, login.credential = before.tokens, before.credential
        sink = harness.opened(**option.right, oauth2_server_uri=f"{login.uri}/v1/oauth/tokens")
        request = CommitRequest(harness.write(sink, rows(0)))
        before.tokens, login.tokens, login.refuses = [SECRET], [SECRET], 503
        with pytest.raises(TargetUnreachableError, match=f"{login.uri}/v1/oauth/tokens, where"):
            sink.commit([request])
        login.refuses = 0
        assert sink.commit([request]) == [Committed()]
    assert ids_of(harness) == [0]


# -- what is before a catalog ----------------------------------------------------------------------


def test_what_a_gateway_does_not_find_is_not_taken_for_a_dropped_table(
    harness: IcebergHarness, before: Gateway
) -> None:
    """It has lost its catalog for a while, and does not say so in Iceberg's words."""
    sink = harness.opened()
    request = CommitRequest(harness.write(sink, rows(0)))
    before.answers = 404, b"default backend - 404"
    with pytest.raises(TargetUnreachableError, match="default backend"):
        sink.commit([request])
    with pytest.raises(PreflightError, match="does not speak Iceberg's REST protocol"):
        harness.new_sink(create=False).check_connection()
    before.answers = error(404, "NoSuchTableException", "there is no such table")
    with pytest.raises(ConfigError, match="There is no table"):
        harness.new_sink(create=False).check_connection()
    before.answers = None
    assert sink.commit([request]) == [Committed()]
    assert ids_of(harness) == [0]
