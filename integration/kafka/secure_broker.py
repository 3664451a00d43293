"""A broker that also listens with TLS and passwords, with a certificate authority of its own, and
for tokens of OAuth without signature. Everyone may do everything to what has no ACL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialUpsertion
from typing_extensions import override

from harness.certificate_authority import Authority
from twophase.testing.services.kafka_program import KafkaProgram, class_archive_options
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.ports import LOOPBACK, free_ports
from twophase.testing.services.process import Launch

USER = "app"
PASSWORD = "canary-d41d8c"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class SecureKafka:
    """Attributes: plain, sasl: bootstrap servers; ca: the authority's certificate; other_ca:
    one nobody trusts; tokens: where it asks for a token; mutual: where it asks for a client
    certificate; scram: where a password is never sent; authority, other_authority: they sign
    client certificates.
    """

    plain: str
    sasl: str
    wrong_name: str
    ca: Path
    other_ca: Path
    tokens: str
    mutual: str
    scram: str
    authority: Authority
    other_authority: Authority


class _SecureProgram(KafkaProgram):
    def __init__(self, folder: Path) -> None:
        super().__init__({}, lambda: ["-Xmx512m", *class_archive_options()])
        self._folder = folder
        self.secure, self.wrong_name, self.tokens, self.mutual, self.scram = free_ports(5)

    @override
    def launch(self, data: Path) -> Launch:
        client, controller = self.ports
        listeners = {
            "PLAINTEXT": client,
            "SECURE": self.secure,
            "WRONG": self.wrong_name,
            "TOKENS": self.tokens,
            "MUTUAL": self.mutual,
            "SCRAM": self.scram,
        }
        listed = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items())
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        secure: dict[str, str] = {}
        for name, file in (("secure", "broker.pem"), ("wrong", "wrong.pem")):
            prefix = f"listener.name.{name}"
            secure |= {
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": str(self._folder / file),
                f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
                f"{prefix}.plain.sasl.jaas.config": f'{login} required user_{USER}="{PASSWORD}";',
            }
        secure |= {
            "listener.name.mutual.ssl.keystore.type": "PEM",
            "listener.name.mutual.ssl.keystore.location": str(self._folder / "broker.pem"),
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": str(self._folder / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        prefix = "listener.name.scram"
        secure |= {
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(self._folder / "broker.pem"),
            f"{prefix}.sasl.enabled.mechanisms": ",".join(SCRAM),
        }
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        for mechanism in SCRAM:
            secure[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{scram} required;"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        secure |= {
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": (
                f'{bearer} required unsecuredLoginStringClaim_sub="broker";'
            ),
            # a connection whose token has expired ends
            "listener.name.tokens.oauthbearer.connections.max.reauth.ms": "3600000",
        }
        self._settings = secure | {
            "listeners": f"{listed},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": listed,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,WRONG:SASL_SSL,"
                "TOKENS:SASL_PLAINTEXT,MUTUAL:SSL,SCRAM:SASL_SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        }
        return super().launch(data)


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Run the broker."""
    authority, other = Authority.new("test authority"), Authority.new("another authority")
    authority.write(folder / "ca.pem")
    other.write(folder / "other.pem")
    authority.sign_server(folder / "broker.pem", LOOPBACK)
    authority.sign_server(folder / "wrong.pem", "10.9.8.7")
    program = _SecureProgram(folder)
    server = LocalServer(program, detached=False, startup_timeout_s=60)
    server.start()
    try:
        _let_in(program.bootstrap_servers)
        yield SecureKafka(
            plain=program.bootstrap_servers,
            sasl=f"{LOOPBACK}:{program.secure}",
            wrong_name=f"{LOOPBACK}:{program.wrong_name}",
            ca=folder / "ca.pem",
            other_ca=folder / "other.pem",
            tokens=f"{LOOPBACK}:{program.tokens}",
            mutual=f"{LOOPBACK}:{program.mutual}",
            scram=f"{LOOPBACK}:{program.scram}",
            authority=authority,
            other_authority=other,
        )
    finally:
        server.stop()


def _let_in(servers: str) -> None:
    """Give the account a password for each mechanism of SCRAM."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        for mechanism in SCRAM:
            wanted = UserScramCredentialUpsertion(USER, mechanism, PASSWORD)
            [refusal] = admin.alter_user_scram_credentials([wanted]).values()
            assert refusal is None, refusal
