"""A certificate authority of a test, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM, _PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        """Return a new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = _certificate(subject, subject, key.public_key()).add_extension(
            constraints, critical=True
        )
        return cls(key, made.sign(key, hashes.SHA256()))

    def write(self, path: Path) -> None:
        """Write its own certificate."""
        _write(path, self.certificate)

    def sign_server(self, path: Path, address: str) -> None:
        """Write the certificate of a server at an address, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = _certificate(
            _subject("server"), self.certificate.subject, key.public_key()
        ).add_extension(names, critical=False)
        pem = key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption())
        path.write_bytes(pem + made.sign(self.key, hashes.SHA256()).public_bytes(_PEM))

    def sign(self, certificate: Path, key: Path, password: str) -> None:
        """Write a client's certificate, and its key, encrypted."""
        own = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(_subject("client"), self.certificate.subject, own.public_key())
        _write(certificate, made.sign(self.key, hashes.SHA256()))
        secret = serialization.BestAvailableEncryption(password.encode())
        key.write_bytes(own.private_bytes(_PEM, _PKCS8, secret))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


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
    path.write_bytes(certificate.public_bytes(_PEM))
