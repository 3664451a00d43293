"""Each way in which the Kafka sink may log in: a wrong secret is refused at the start by name, is
in no message, and the right one opens the sink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.selection import representatives
from harness.token_endpoint import CLIENT, token_endpoint
from integration.kafka.secure_broker import PASSWORD, SCRAM, USER, SecureKafka
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.errors import PreflightError
from twophase.kafka_client import oauth_tokens
from twophase.testing.contract.base import ContractBase

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

WRONG = "canary-wrong"
KEY_PASSWORD = "canary-key"
SECRETS = re.compile("canary|BEGIN|eyJ")
"""A password, a PEM file, a token."""
SHORT = {"request.timeout": "10 s"}
PATIENT: dict[str, Any] = {"request.timeout": "30 s"}


@dataclass(frozen=True)
class Login:
    """Attributes: options: of the connection; spoil, mend: replace the secret by a wrong one, and
    by the right one; says: of what the error of a wrong one speaks; remedy: what it says to check.
    """

    options: dict[str, str]
    spoil: Callable[[], object]
    mend: Callable[[], object]
    says: str
    remedy: str


def by_password(mechanism: str, servers: str, broker: SecureKafka, folder: Path) -> Login:
    path = folder / "password"
    path.write_text(PASSWORD)
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.ca),
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.username": USER,
        "kafka.sasl.password.file": str(path),
    }
    return Login(
        options,
        lambda: path.write_text(WRONG),
        lambda: path.write_text(PASSWORD),
        "[Aa]uthentication",
        "check user, password and ACLs",
    )


def by_certificate(broker: SecureKafka, folder: Path) -> Login:
    certificate, key, password = (folder / name for name in ("certificate", "key", "password"))
    password.write_text(KEY_PASSWORD)
    options = {
        "kafka.bootstrap.servers": broker.mutual,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(broker.ca),
        "kafka.ssl.certificate.location": str(certificate),
        "kafka.ssl.key.location": str(key),
        "kafka.ssl.key.password.file": str(password),
    }
    right, wrong = broker.authority, broker.other_authority
    right.sign(certificate, key, KEY_PASSWORD)
    return Login(
        options,
        lambda: wrong.sign(certificate, key, KEY_PASSWORD),
        lambda: right.sign(certificate, key, KEY_PASSWORD),
        "TLS|SSL|ssl|alert",
        "the broker asks for a client certificate, and accepts none or not this one",
    )


@pytest.fixture(
    params=representatives(
        ["PLAIN", *SCRAM, "OAUTHBEARER", "certificate"], {"SCRAM-SHA-512", "certificate"}
    )
)
def login(
    broker: SecureKafka,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Login]:
    if request.param == "certificate":
        yield by_certificate(broker, tmp_path)
    elif request.param == "OAUTHBEARER":
        monkeypatch.setattr(oauth_tokens, "_AGAIN_S", 0)
        with token_endpoint() as endpoint:
            (tmp_path / "secret").write_text(PASSWORD)
            options = {
                "kafka.bootstrap.servers": broker.tokens,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.username": CLIENT,
                "kafka.sasl.password.file": str(tmp_path / "secret"),
                "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
            }

            def answer(status: int, **answer: str) -> None:
                endpoint.status, endpoint.answer = status, answer or None
                for tokens in oauth_tokens._tokens.values():
                    tokens.refused()

            yield Login(
                options,
                lambda: answer(401, error="invalid_client", error_description=WRONG),
                lambda: answer(200),
                "refuses a token for client 'etl': 401, invalid_client",
                r"check the client's id \(kafka.sasl.username\), its secret",
            )
    else:
        servers = broker.scram if request.param in SCRAM else broker.sasl
        yield by_password(request.param, servers, broker, tmp_path)


class TestEachLogin(ContractBase):
    @pytest.fixture
    def harness(self, plain: Topics, login: Login) -> KafkaHarness:
        return KafkaHarness(plain, **(login.options | SHORT))

    def test_a_wrong_secret_is_refused_at_the_start_and_the_remedy_helps(
        self, harness: KafkaHarness, login: Login
    ) -> None:
        login.spoil()
        with pytest.raises(PreflightError) as caught:
            harness.opened(**PATIENT)
        assert re.search(login.says, caught.value.what)
        assert re.search(login.remedy, caught.value.remedy)
        assert not SECRETS.search(str(caught.value))
        login.mend()
        harness.opened().close()
