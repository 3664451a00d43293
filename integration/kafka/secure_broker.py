"""A broker that also listens with TLS and passwords, with a certificate authority of its own, and
for tokens of OAuth without signature. Everyone may do everything to what has no ACL.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from twophase.testing.services.kafka_program import KafkaProgram, class_archive_options
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.ports import LOOPBACK, free_ports
from twophase.testing.services.process import Launch

USER = "app"
PASSWORD = "canary-d41d8c"


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def sign(self, certificate: Path, key: Path, password: str) -> None:
        """Write a client's certificate, and its key, encrypted."""
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
        made = _certificate(subject, self.certificate.subject, own.public_key())
        _write(certificate, made.sign(self.key, hashes.SHA256()))
        secret = serialization.BestAvailableEncryption(password.encode())
        key.write_bytes(
            own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        )


@dataclass(frozen=True)
class SecureKafka:
    """Attributes: plain, sasl: bootstrap servers; ca: the authority's certificate; other_ca:
    one nobody trusts; tokens: where it asks for a token; mutual: where it asks for a client
    certificate; authority, other_authority: they sign those.
    """

    plain: str
    sasl: str
    wrong_name: str
    ca: Path
    other_ca: Path
    tokens: str
    mutual: str
    authority: Authority
    other_authority: Authority


class _SecureProgram(KafkaProgram):
    def __init__(self, folder: Path) -> None:
        super().__init__({}, lambda: ["-Xmx512m", *class_archive_options()])
        self._folder = folder
        self.secure, self.wrong_name, self.tokens, self.mutual = free_ports(4)

    @override
    def launch(self, data: Path) -> Launch:
        client, controller = self.ports
        listeners = {
            "PLAINTEXT": client,
            "SECURE": self.secure,
            "WRONG": self.wrong_name,
            "TOKENS": self.tokens,
            "MUTUAL": self.mutual,
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
                "TOKENS:SASL_PLAINTEXT,MUTUAL:SSL"
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
    key, authority = _authority("test authority")
    other_key, other = _authority("another authority")
    _write(folder / "ca.pem", authority)
    _write(folder / "other.pem", other)
    _broker(folder / "broker.pem", LOOPBACK, key, authority)
    _broker(folder / "wrong.pem", "10.9.8.7", key, authority)
    program = _SecureProgram(folder)
    server = LocalServer(program, detached=False, startup_timeout_s=60)
    server.start()
    try:
        yield SecureKafka(
            plain=program.bootstrap_servers,
            sasl=f"{LOOPBACK}:{program.secure}",
            wrong_name=f"{LOOPBACK}:{program.wrong_name}",
            ca=folder / "ca.pem",
            other_ca=folder / "other.pem",
            tokens=f"{LOOPBACK}:{program.tokens}",
            mutual=f"{LOOPBACK}:{program.mutual}",
            authority=Authority(key, authority),
            other_authority=Authority(other_key, other),
        )
    finally:
        server.stop()


def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    made = _certificate(subject, subject, key.public_key()).add_extension(
        constraints, critical=True
    )
    return key, made.sign(key, hashes.SHA256())


def _broker(
    path: Path, address: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = _certificate(subject, authority.subject, key.public_key()).add_extension(
        names, critical=False
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(
        pem + made.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
