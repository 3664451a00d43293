"""The tokens of OAUTHBEARER: from an endpoint on this machine, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.certificate_authority import FolderAuthority
from harness.token_endpoint import CLIENT, TokenEndpoint, token_endpoint
from tests.sources.kafka.memory_cluster import Clock
from twophase.errors import ConfigError, PreflightError, SourceUnavailableError
from twophase.kafka_client import connection
from twophase.kafka_client.oauth_tokens import Tokens, token_refused
from twophase.sources.kafka.options import KafkaOptions

CANARY = "canary-5f3759"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SECRET", CANARY)


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


class Client:
    """The tokens of one process, with a clock that stands until it is moved."""

    def __init__(self, url: str, **options: str) -> None:
        self.clock = Clock()
        self.options = KafkaOptions.parse(
            {
                "kafka.bootstrap.servers": "h:1",
                "subscribe": "t",
                "request.timeout": "1 s",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauthbearer.client.id": CLIENT,
                "kafka.sasl.password.env": "KAFKA_SECRET",
                "kafka.sasl.oauthbearer.token.endpoint.url": url,
                **options,
            }
        )
        self.tokens = Tokens(self.options, self.clock)


def test_the_client_s_credentials_and_scope_are_sent(endpoint: TokenEndpoint) -> None:
    client = Client(endpoint.url, **{"kafka.sasl.oauthbearer.scope": "kafka read"})
    client.tokens.token()
    [(form, account)] = endpoint.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    assert account == f"{CLIENT}:{CANARY}"


def test_a_token_is_kept_for_three_quarters_of_its_life(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(endpoint.url)
    first = client.tokens.token()
    assert first.expires_at_s == 3600
    client.clock.now = 2699
    assert client.tokens.token() is first
    client.clock.now = 2700
    monkeypatch.setenv("KAFKA_SECRET", "changed")
    assert client.tokens.token() is not first
    assert [account for _, account in endpoint.asked] == [f"{CLIENT}:{CANARY}", f"{CLIENT}:changed"]


def test_one_that_a_broker_has_refused_is_replaced_every_ten_seconds_at_most(
    endpoint: TokenEndpoint,
) -> None:
    client = Client(endpoint.url)
    for seconds, granted in ((0, 2), (9, 2), (10, 3)):
        client.clock.now = seconds
        client.tokens.token()
        client.tokens.refused()
        client.tokens.token()
        assert endpoint.granted == granted


def test_until_a_token_expires_an_endpoint_that_fails_stops_nothing(
    endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(endpoint.url)
    first = client.tokens.token()
    endpoint.status = 503
    client.clock.now = 3599
    assert client.tokens.token().text == first.text
    assert "not replaced yet" in caplog.text
    client.clock.now = 3600
    with pytest.raises(SourceUnavailableError, match="status 503") as raised:
        client.tokens.token()
    assert "check that the OAuth server runs" in raised.value.remedy
    endpoint.status = 200
    assert client.tokens.token().text != first.text


def test_an_endpoint_that_fails_is_asked_every_ten_seconds_at_most(
    endpoint: TokenEndpoint,
) -> None:
    client = Client(endpoint.url)
    client.tokens.token()
    endpoint.status = 503
    for seconds, asked in ((2700, 2), (2709, 2), (2710, 3), (3595, 4), (3599, 4)):
        client.clock.now = seconds
        client.tokens.token()
        assert endpoint.granted == asked
    endpoint.status = 200
    client.clock.now = 3600
    assert client.tokens.token().expires_at_s == 7200


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (401, {"error": "invalid_client", "error_description": CANARY}, "401, invalid_client"),
        (400, {"error": "invalid_scope"}, "400, invalid_scope"),
        (403, {"error": f"<{CANARY}>"}, "403."),
        (401, {}, "401."),
        (302, {}, "302."),
        (307, {}, "307."),
        (200, {"access_token": CANARY}, "no access_token, or no expires_in"),
        (200, {"access_token": CANARY, "expires_in": "soon"}, "no access_token, or no expires_in"),
    ],
)
def test_what_the_endpoint_refuses_is_said_without_secrets(
    endpoint: TokenEndpoint, status: int, answer: dict[str, str], reason: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with token_endpoint() as other:
        endpoint.redirect = other.url if status // 100 == 3 else ""
        with pytest.raises(PreflightError) as raised:
            Client(endpoint.url).tokens.token()
        assert other.granted == 0, "the account goes to no other host"
    assert reason in str(raised.value)
    assert CANARY not in str(raised.value)
    assert raised.value.__cause__ is None
    with token_endpoint() as right:  # the remedy of an answer without a token
        assert Client(right.url).tokens.token().text


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.oauthbearer.client.id": "somebody"},
        {"kafka.sasl.password.env": "OTHER_SECRET"},
        {"kafka.sasl.oauthbearer.scope": "kafka write"},
        {"kafka.sasl.oauthbearer.token.endpoint.url": ""},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_the_right_client_secret_scope_and_url_get_a_token(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    grant = endpoint.respond

    def respond(body: bytes, account: str) -> dict[str, Any]:
        knows = account == f"{CLIENT}:{CANARY}" and b"scope=kafka+read" in body
        endpoint.status = 200 if knows else 401
        return grant(body, account) if knows else {"error": "invalid_client"}

    monkeypatch.setattr(endpoint, "respond", respond)
    monkeypatch.setenv("OTHER_SECRET", "wrong")
    right = {"kafka.sasl.oauthbearer.scope": "kafka read"}
    with token_endpoint() as moved:
        moved.status, moved.redirect = 301, endpoint.url
        given = {name: value or moved.url for name, value in wrong.items()}
        with pytest.raises(PreflightError) as raised:
            Client(endpoint.url, **right | given).tokens.token()
    assert "check the client's id (kafka.sasl.username), its secret" in raised.value.remedy
    assert Client(endpoint.url, **right).tokens.token().text


def test_the_account_goes_through_no_proxy_in_the_clear(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with token_endpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        Client(endpoint.url).tokens.token()
    assert (endpoint.granted, proxy.granted) == (1, 0)


def test_an_endpoint_that_is_not_there_is_waited_for() -> None:
    with token_endpoint() as gone:
        url = gone.url
    with pytest.raises(SourceUnavailableError, match="SSL_CERT_FILE") as raised:
        Client(url).tokens.token()
    assert raised.value.restartable


def test_an_endpoint_with_an_authority_of_its_own_is_trusted_by_ssl_cert_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = FolderAuthority(tmp_path)
    with token_endpoint(authority.server("127.0.0.1")) as endpoint:
        with pytest.raises(SourceUnavailableError, match="CERTIFICATE_VERIFY_FAILED") as raised:
            Client(endpoint.url).tokens.token()
        assert "or those in SSL_CERT_FILE" in raised.value.remedy
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert Client(endpoint.url).tokens.token().text


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example.com/token",
        "file:///etc/passwd",
        "ftp://idp/token",
        "https://",
        "https://user@idp/token",
        "https://idp/token#x",
        "idp/token",
    ],
)
def test_the_account_is_sent_over_tls_alone(url: str) -> None:
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url"):
        Client(url)


def test_both_clients_get_tokens_and_no_password(endpoint: TokenEndpoint) -> None:
    options = Client(endpoint.url).options
    python, c = connection.for_kafka_python(options), connection.for_librdkafka(options)
    token, expires_at_s = c["oauth_cb"]("")
    assert python["sasl_oauth_token_provider"].token() == token
    assert python["sasl_mechanism"] == c["sasl.mechanism"] == "OAUTHBEARER"
    assert expires_at_s > 0
    assert endpoint.granted == 1, "one token for all connections of a process"
    assert CANARY not in f"{python}{c}"
    assert token_refused(options)
    connection.for_librdkafka(options)
    assert endpoint.granted == 2
