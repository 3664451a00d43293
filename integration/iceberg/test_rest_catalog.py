"""What only a REST catalog does: logins, TLS, headers, and the gateways before it."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from harness.certificate_authority import Authority
from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import RestPlace
from harness.rest_gateway import Forward, Gateway, Reply, error, gateway
from harness.rights import secret_file
from tests.sinks.iceberg.others import (
    FIELDS,
    advice_while_down,
    change,
    commit,
    ids_of,
    rows,
    snapshots_of,
)
from tests.sinks.iceberg.test_branches import AUDIT, drop, head, set_to
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import (
    ConfigError,
    PreflightError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.ids import Attempt
from twophase.testing.services.iceberg_rest import IcebergRestService

pytestmark = [pytest.mark.part("files"), pytest.mark.server]

SECRET = "open-sesame"


@pytest.fixture
def harness(before: Gateway, rest_server: IcebergRestService, warehouses: Path) -> IcebergHarness:
    """Its sink goes through the gateway, its readers do not."""
    return through(before, rest_server, warehouses)


def through(
    before: Gateway, server: IcebergRestService, warehouses: Path, **more: Any
) -> IcebergHarness:
    place = RestPlace(server.uri, warehouses / "rest", catalog_uri=before.uri, **more)
    return IcebergHarness(place, FIELDS)


def lost(body: bytes, forward: Forward) -> Reply | None:
    """The commit reaches the catalog, and its reply gets lost."""
    forward(body)
    return None


def twice(body: bytes, forward: Forward) -> Reply:
    """As a gateway that sends a request again whose first reply it has missed."""
    forward(body)
    return forward(body)


def blind(body: bytes, forward: Forward) -> Reply:
    """As a catalog that does not compare what a commit requires."""
    return forward(json.dumps({**json.loads(body), "requirements": []}).encode())


def refused(status: int) -> Any:
    return lambda body, forward: error(status, "Refused", f"status {status}")


# -- a commit --------------------------------------------------------------------------------------


def test_a_commit_whose_reply_is_lost_is_found_by_its_proof(
    harness: IcebergHarness, before: Gateway
) -> None:
    sink = harness.opened()
    piece = harness.write(sink, rows(0, 1))
    before.on_commit = lost
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]
    assert len(snapshots_of(harness.table())) == 1


def test_a_commit_that_arrives_twice_keeps_its_files(
    harness: IcebergHarness, before: Gateway
) -> None:
    """The second is refused, and the files of the first are what the table has."""
    sink = harness.opened()
    before.on_commit = twice
    [outcome] = sink.commit([CommitRequest(harness.write(sink, rows(0, 1)))])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [0, 1]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 419, 422, 429, 500, 502, 503, 504])
def test_a_commit_that_is_refused_is_tried_later_and_leaves_no_manifest_if_it_was_not_made(
    harness: IcebergHarness, before: Gateway, status: int
) -> None:
    sink = harness.opened()
    piece = harness.write(sink, rows(0))
    known = {*harness.folder.rglob("*.avro")}
    before.on_commit = refused(status)
    [outcome] = sink.commit([CommitRequest(piece)])
    assert isinstance(outcome, RetryLater)
    assert f"status {status}" in outcome.reason
    assert ({*harness.folder.rglob("*.avro")} == known) == (status < 500)
    before.on_commit = None
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0]


@pytest.mark.parametrize("does", [lost, twice])
def test_a_fence_whose_reply_is_lost_is_raised_once(
    harness: IcebergHarness, before: Gateway, does: Any
) -> None:
    harness.opened().close()
    made = len(harness.table().metadata.snapshots)
    calls: list[bytes] = []

    def once(body: bytes, forward: Forward) -> Reply | None:
        calls.append(body)  # the first is the look at whether the catalog compares
        return does(body, forward) if len(calls) == 2 else forward(body)

    before.on_commit = once
    sink = harness.opened(Attempt(2, 0))
    assert sink.history().generation == 2
    assert len(harness.table().metadata.snapshots) == made + 1


def test_a_catalog_that_does_not_compare_is_refused(
    harness: IcebergHarness, before: Gateway
) -> None:
    harness.opened().close()
    before.on_commit = blind
    known = harness.contents()
    for call in (harness.new_sink().check_connection, harness.opened):
        with pytest.raises(PreflightError, match="takes a commit although branch main") as caught:
            call()
        assert "use a server that checks assert-ref-snapshot-id" in caught.value.remedy
    assert harness.contents() != known  # the server has written metadata without a change
    assert ids_of(harness) == []
    before.on_commit = None
    harness.opened().close()


def test_a_fence_of_a_branch_that_was_dropped_is_refused_until_it_is_set_back(
    harness: IcebergHarness,
) -> None:
    harness.options = {"branch": AUDIT}
    sink = harness.opened()
    commit(harness, sink, rows(0))
    at = head(harness)
    change(harness, drop)
    with pytest.raises(TargetChangedError, match="has no branch 'audit' any more") as caught:
        sink.fence(Attempt(2, 0))
    assert "CREATE OR REPLACE BRANCH `audit`" in caught.value.remedy
    change(harness, set_to(at))
    sink = harness.opened(Attempt(2, 0))
    piece = harness.write(sink, rows(1), 1, Attempt(2, 0))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0, 1]


# -- logins ----------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return secret_file(tmp_path / "secret", f"{SECRET}\n")


def test_a_token_is_sent_and_a_wrong_one_is_named_and_not_shown(
    before: Gateway, rest_server: IcebergRestService, warehouses: Path, secret: Path
) -> None:
    before.tokens = [SECRET]
    harness = through(before, rest_server, warehouses, token_file=str(secret))
    sink = harness.opened()
    commit(harness, sink, rows(0))
    secret.write_text("ali-baba")
    for call in (harness.new_sink().check_connection, harness.opened):
        with pytest.raises(PreflightError, match="refuses the login") as caught:
            call()
        assert "token_file" in caught.value.remedy
        assert "ali-baba" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(TargetUnreachableError, match="refuses the login") as later:
        sink.history()
    assert "ali-baba" not in str(later.value)
    before.tokens = ["another"]
    secret.write_text("another")
    assert sink.history().committed
    harness.new_sink().check_connection()
    harness.opened().close()


def test_a_token_that_ends_while_a_piece_waits_is_renewed_for_its_commit(
    before: Gateway, rest_server: IcebergRestService, warehouses: Path, tmp_path: Path
) -> None:
    before.tokens, before.credential = ["first"], f"etl:{SECRET}"
    account = tmp_path / "account"
    account.write_text(before.credential)
    harness = through(before, rest_server, warehouses, credential_file=str(account))
    sink = harness.opened()
    piece = harness.write(sink, rows(0))
    before.tokens = ["second"]
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    before.credential = "etl:changed"
    for call in (harness.new_sink().check_connection, harness.opened):
        with pytest.raises(PreflightError, match="refuses the login: OAuthError") as caught:
            call()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    account.write_text(before.credential)
    harness.opened().close()


def test_the_secret_is_in_no_log_no_text_and_no_file(
    before: Gateway,
    rest_server: IcebergRestService,
    warehouses: Path,
    secret: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    before.tokens = [SECRET]
    harness = through(before, rest_server, warehouses, token_file=str(secret))
    sink = harness.opened()
    piece = harness.write(sink, rows(0))
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    declared = harness.new_sink()
    shown = [caplog.text, repr(declared), repr(sink), repr(sink.table.load()), sink.target()]
    assert not [text for text in (*shown, repr(piece)) if SECRET in text]
    sent = [pickle.dumps(declared), pickle.dumps(sink.writers())]
    stored = [path.read_bytes() for path in harness.folder.rglob("*") if path.is_file()]
    assert not [data for data in (*sent, *stored) if SECRET.encode() in data]


def test_a_token_that_cannot_be_read_is_named(
    harness: IcebergHarness, before: Gateway, secret: Path
) -> None:
    before.tokens = [SECRET]
    with pytest.raises(ConfigError, match="named by token_file, cannot be read") as caught:
        harness.opened(token_file=str(secret.parent))
    assert caught.value.remedy == "give a file with the token that the driver may read."
    harness.opened(token_file=str(secret)).close()


def test_headers_are_sent(harness: IcebergHarness, before: Gateway) -> None:
    harness.opened(headers="X-Tenant: shop, X-Team: data").close()
    assert before.headers["x-tenant"] == "shop"
    assert before.headers["x-team"] == "data"
    assert "authorization" not in before.headers


@pytest.mark.parametrize(
    ("status", "kind", "named"),
    [
        (403, PreflightError, "forbids it"),
        (500, TargetUnreachableError, "does not answer as it should"),
        (503, TargetUnreachableError, "does not answer as it should"),
    ],
)
def test_an_account_that_may_not_write_is_told_at_the_start_from_a_server_that_is_down(
    harness: IcebergHarness, before: Gateway, status: int, kind: type[TwoPhaseError], named: str
) -> None:
    harness.opened().close()
    before.on_commit = refused(status)
    for call in (harness.new_sink().check_connection, harness.opened):
        with pytest.raises(kind, match=named) as caught:
            call()
        assert ("grant the account" in caught.value.remedy) == (status == 403)
    before.on_commit = None
    harness.opened().close()


def test_a_server_that_is_down_is_named_until_it_runs(
    rest_server: IcebergRestService, warehouses: Path
) -> None:
    harness = IcebergHarness(RestPlace(rest_server.uri, warehouses / "rest"), FIELDS)
    advice = advice_while_down(harness, rest_server, "does not answer as it")
    assert advice == "check that the server runs, and read its log."


# -- the address -----------------------------------------------------------------------------------


def test_a_server_of_another_kind_is_named(harness: IcebergHarness, before: Gateway) -> None:
    with pytest.raises(PreflightError, match="does not speak Iceberg's REST protocol") as caught:
        harness.opened(catalog_uri=f"{before.uri}/nothing")
    assert "without /v1" in caught.value.remedy
    harness.opened(catalog_uri=before.uri).close()


def test_a_certificate_that_nobody_knows_is_named_and_with_its_authority_it_is_trusted(
    rest_server: IcebergRestService, warehouses: Path, tmp_path: Path
) -> None:
    authority = Authority.new("test authority")
    authority.write(tmp_path / "ca.pem")
    authority.sign_server(tmp_path / "server.pem", "127.0.0.1")
    with gateway(rest_server.uri, tmp_path / "server.pem") as secure:
        harness = through(secure, rest_server, warehouses)
        with pytest.raises(PreflightError, match="has no certificate that is trusted") as caught:
            harness.opened()
        assert "tls_ca" in caught.value.remedy
        with pytest.raises(PreflightError, match=r"cannot be called.*correct tls_ca"):
            harness.opened(tls_ca=str(tmp_path / "nothing"))
        sink = harness.opened(tls_ca=str(tmp_path / "ca.pem"))
        assert sink.commit([CommitRequest(harness.write(sink, rows(0)))]) == [Committed()]
    assert ids_of(harness) == [0]
