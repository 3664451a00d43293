"""Certificate authorities of tests, and what they sign: with the extensions that Python 3.13 asks
for (`ssl.VERIFY_X509_STRICT`).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM, _PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


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
        made = _certificate(subject, key.public_key()).issuer_name(subject)
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_SIGNS_CERTIFICATES, True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        ):
            made = made.add_extension(extension, critical=critical)
        return cls(key, made.sign(key, hashes.SHA256()))

    def write(self, path: Path) -> None:
        """Write its own certificate."""
        _write(path, self.certificate)

    def sign_server(
        self, path: Path, name: str, *, first_day: int = -1, last_day: int = 10
    ) -> None:
        """Write the certificate of a server, with its key.

        Args:
            path: of the file.
            name: the server's name or address.
            first_day: on which it is valid; 0 is today.
            last_day: on which it is valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(_subject(name), key.public_key(), first_day, last_day).add_extension(
            x509.SubjectAlternativeName([_name(name)]), critical=False
        )
        pem = key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption())
        path.write_bytes(pem + self._signed(made).public_bytes(_PEM))

    def sign(self, certificate: Path, key: Path, password: str) -> None:
        """Write a client's certificate, and its key, encrypted."""
        own = ec.generate_private_key(ec.SECP256R1())
        _write(certificate, self._signed(_certificate(_subject("client"), own.public_key())))
        secret = serialization.BestAvailableEncryption(password.encode())
        key.write_bytes(own.private_bytes(_PEM, _PKCS8, secret))

    def _signed(self, made: x509.CertificateBuilder) -> x509.Certificate:
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        made = made.issuer_name(self.certificate.subject).add_extension(own, critical=False)
        return made.sign(self.key, hashes.SHA256())


class FolderAuthority:
    """An authority that writes what it signs into a folder.

    Attributes:
        file: its own certificate.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ca.pem"
        self._authority = Authority.new("test authority")
        self._authority.write(self.file)
        self._folder = folder
        self._servers = 0

    def server(self, name: str, *, first_day: int = -1, last_day: int = 10) -> ssl.SSLContext:
        """Return what a server of that name or address needs for TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_file(name, first_day=first_day, last_day=last_day))
        return context

    def server_file(self, name: str, *, first_day: int = -1, last_day: int = 10) -> Path:
        """Return a file with a server's certificate and its key."""
        self._servers += 1
        file = self._folder / f"server-{self._servers}.pem"
        self._authority.sign_server(file, name, first_day=first_day, last_day=last_day)
        return file


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, first_day: int = -1, last_day: int = 10
) -> x509.CertificateBuilder:
    today = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(today + dt.timedelta(days=first_day - 1))
        .not_valid_after(today + dt.timedelta(days=last_day))
    )


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(_PEM))
