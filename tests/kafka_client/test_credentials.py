"""Secrets as they are on the disk: being replaced, empty, of no pair; and what it costs."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from harness.certificate_authority import Authority, FolderAuthority
from twophase.kafka_client import connection, credentials
from twophase.kafka_client.credentials import SecretError, check_secrets
from twophase.sources.kafka.options import KafkaOptions

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
TLS = BASE | {"kafka.security.protocol": "SSL"}
PASSWORD = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "app",
}


def with_pair(folder: Path) -> tuple[KafkaOptions, Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = {
        "kafka.ssl.certificate.location": str(certificate),
        "kafka.ssl.key.location": str(key),
    }
    return KafkaOptions.parse(TLS | names), certificate, key


def test_a_pair_that_is_replaced_file_by_file_is_waited_for(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    before, after = (authority.server_file("app").read_bytes() for _ in range(2))
    options, certificate, key = with_pair(tmp_path)
    certificate.write_bytes(after)
    key.write_bytes(before)
    follows = threading.Timer(0.3, key.write_bytes, [after])
    follows.start()
    check_secrets(options)
    follows.join()


def test_a_pair_that_stays_unfit_is_named(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    options, certificate, key = with_pair(tmp_path)
    for file in (certificate, key):
        file.write_bytes(authority.server_file("app").read_bytes())
    with pytest.raises(SecretError, match="does not go with") as caught:
        check_secrets(options)
    assert "the certificate and the key of one pair, both as PEM" in caught.value.remedy
    certificate.write_bytes(key.read_bytes())
    check_secrets(options)


def test_an_encrypted_key_is_read_when_its_password_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, certificate, key = with_pair(tmp_path)
    Authority.new("test authority").sign(certificate, key, "canary-key-1")
    with pytest.raises(SecretError, match="is encrypted") as caught:
        check_secrets(options)
    assert caught.value.remedy == "name its password: kafka.ssl.key.password.env or .file."
    names = {
        "kafka.ssl.certificate.location": str(certificate),
        "kafka.ssl.key.location": str(key),
    }
    (tmp_path / "password").write_text("canary-key-1")
    monkeypatch.setenv("KEY_PASSWORD", "canary-key-1")
    for by, named in (("env", "KEY_PASSWORD"), ("file", str(tmp_path / "password"))):
        check_secrets(KafkaOptions.parse(TLS | names | {f"kafka.ssl.key.password.{by}": named}))


@pytest.mark.parametrize(
    ("content", "said", "remedy"),
    [
        (None, "cannot be read: FileNotFoundError", "put the file on the driver"),
        (b"", "has no certificate in PEM", "put the right file there"),
        (b"\x30\x82\x01", "has no certificate in PEM", "put the right file there"),
    ],
    ids=["none", "empty", "not PEM"],
)
def test_a_file_of_authorities_that_cannot_be_read_is_read_when_it_is_there(
    tmp_path: Path, content: bytes | None, said: str, remedy: str
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_bytes(content)
    options = KafkaOptions.parse(TLS | {"kafka.ssl.ca.location": str(file)})
    with pytest.raises(SecretError, match=f"{file}', which {said}") as caught:
        check_secrets(options)
    assert caught.value.remedy.startswith(remedy)
    file.write_bytes(FolderAuthority(tmp_path).file.read_bytes())
    check_secrets(options)


@pytest.mark.parametrize("by", ["file", "env"])
def test_an_empty_password_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    (tmp_path / "password").write_text("\n")
    monkeypatch.setenv("EMPTY_PASSWORD", "")
    named = {"file": str(tmp_path / "password"), "env": "EMPTY_PASSWORD"}[by]
    options = KafkaOptions.parse(BASE | PASSWORD | {f"kafka.sasl.password.{by}": named})
    for read in (check_secrets, connection.for_librdkafka):
        with pytest.raises(SecretError, match=f"{named}', which is empty"):
            read(options)
    (tmp_path / "password").write_text("canary-password-1\n")
    monkeypatch.setenv("EMPTY_PASSWORD", "canary-password-1")
    for read in (check_secrets, connection.for_librdkafka):
        read(options)


def test_the_system_s_authorities_are_not_loaded_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = list[str]()
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda _: loaded.append("all"))
    options = KafkaOptions.parse(TLS)
    connection.for_librdkafka(options)
    connection.for_kafka_python(options)
    assert loaded == []
    credentials.tls_context(options)
    assert loaded == ["all"]


def test_a_handshake_that_fails_leaves_no_timer(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    options = KafkaOptions.parse(
        TLS | {"kafka.ssl.ca.location": str(FolderAuthority(tmp_path / "other").file)}
    )
    ours, theirs = socket.socketpair()
    context = FolderAuthority(tmp_path).server("broker")

    def serve() -> None:
        with theirs, pytest.raises(ssl.SSLError):
            context.wrap_socket(theirs, server_side=True)

    server = threading.Thread(target=serve)
    server.start()
    wrapped = connection._Tls(options).wrap_socket(
        ours, server_hostname="broker", do_handshake_on_connect=False
    )
    assert isinstance(wrapped, connection._TlsSocket)
    with pytest.raises(ssl.SSLCertVerificationError):
        wrapped.do_handshake()
    assert wrapped._limit is not None
    wrapped._limit.join(5)
    assert not wrapped._limit.is_alive()
    wrapped.close()
    server.join()
