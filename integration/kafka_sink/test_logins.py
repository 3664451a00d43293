"""Each way in which the Kafka sink may log in: what one process has written another one commits,
and a wrong secret is refused by name, to the driver and to a task, and is in no message.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.nemesis import ROOT
from harness.selection import representatives
from harness.token_endpoint import CLIENT, token_endpoint
from integration.kafka.secure_broker import PASSWORD, SCRAM, USER, SecureKafka
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.errors import DeclinedError, PreflightError
from twophase.ids import Attempt, Subtask
from twophase.kafka_client import oauth_tokens
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import JOB, transaction_id

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

WRONG = "canary-wrong"
KEY_PASSWORD = "canary-key"
SECRETS = re.compile("canary|BEGIN|eyJ")
"""A password, a PEM file, a token."""
NEXT_DRIVER = Attempt(2, 1)
SHORT = {"request.timeout": "10 s"}
PATIENT: dict[str, Any] = {"request.timeout": "30 s"}
CHILD_S = 300


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

    @pytest.mark.parametrize("protocol", ["transaction", "staged"])
    def test_what_one_process_has_written_another_one_commits(
        self, harness: KafkaHarness, protocol: str
    ) -> None:
        harness.options["protocol"] = protocol
        options = {"topic": harness.topic, "ledger": harness.ledger} | harness.options
        child = subprocess.run(
            [
                *(sys.executable, "-m", "integration.kafka_sink.killed_writer"),
                json.dumps({"options": options, "ids": [1, 2]}),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=CHILD_S,
            check=False,
        )
        assert child.returncode == -signal.SIGKILL, child.stderr
        assert child.stdout.startswith("Committable("), child.stderr
        with closing(harness.opened(NEXT_DRIVER)) as sink:
            [piece] = sink.in_doubt()
            assert self.ids_visible() == []
            assert self.commit(sink, [piece]) == [Committed()]
            assert isinstance(self.commit(sink, [piece])[0], AlreadyCommitted)
            assert sink.in_doubt() == []
        assert self.ids_visible() == [1, 2]
        shown = (child.stdout, child.stderr, piece, harness.contents())
        assert not SECRETS.search(repr(shown))

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

    def test_a_wrong_secret_of_a_task_declines_its_attempt_and_mended_the_next_one_writes(
        self, harness: KafkaHarness, login: Login
    ) -> None:
        """It was replaced on the broker first: the driver has its connections still."""
        with closing(harness.opened(**PATIENT)) as sink:
            writers = sink.writers()
            login.spoil()
            writer = writers(transaction_id(), Subtask(0, 0))
            with pytest.raises(DeclinedError) as caught:
                writer.write(self.batch([1, 2]))
            writer.abort()
            assert JOB in caught.value.what
            assert re.search(login.says, caught.value.what), caught.value.what
            assert not SECRETS.search(str(caught.value))
            login.mend()
            [piece] = self.prepare(sink, [1, 2], transaction_id(1), Subtask(0, 0))
            assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]
