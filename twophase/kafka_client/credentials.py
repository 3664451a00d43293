"""The secrets that the options name by environment variable or file: passwords and PEM files.

They are read only here, and again for each connection: they may be replaced while a job runs.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from twophase.errors import ConfigError
from twophase.internals.redaction import shown_file, shown_variable
from twophase.kafka_client.options import ConnectionOptions

_MAX_BYTES = 64 * 1024
_REPLACING_S, _AGAIN_S = 2.0, 0.1
_CA, _CERTIFICATE, _KEY = (f"kafka.ssl.{name}.location" for name in ("ca", "certificate", "key"))
_PASSWORD, _KEY_PASSWORD = "kafka.sasl.password", "kafka.ssl.key.password"
_PUT = "put the file on the driver and on every executor, readable for Spark's user only."


class SecretError(ConfigError):
    """A secret cannot be read, or is none. Under a running job the operator may be replacing it."""


class UnreadableFileError(SecretError):
    """It is in a file."""


def sasl_password(options: ConnectionOptions) -> str | None:
    """Return the password of SASL, or the secret of OAuth's client; None if the options name none.

    Raises:
        SecretError: it cannot be read.
    """
    return _secret(options, _PASSWORD, options.sasl_password_env, options.sasl_password_file)


def key_password(options: ConnectionOptions) -> str | None:
    """Return the password of the client's TLS key; None if the options name none.

    Raises:
        SecretError: it cannot be read.
    """
    return _secret(
        options, _KEY_PASSWORD, options.ssl_key_password_env, options.ssl_key_password_file
    )


def tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    """Return what a new connection needs for TLS, from the files as they are now.

    Raises:
        SecretError: a file cannot be read, or is not what it should be.
    """
    context = _of_files(options)
    if options.ssl_ca is None:
        context.load_default_certs()
    return context


def check_secrets(options: ConnectionOptions) -> None:
    """Read all secrets that the options name, here and now.

    Files that are being replaced, perhaps one after the other, are read again for a moment.

    Raises:
        SecretError: as the functions above.
    """
    deadline = time.monotonic() + _REPLACING_S
    while True:
        try:
            return _check(options)
        except UnreadableFileError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_AGAIN_S)


def _check(options: ConnectionOptions) -> None:
    if options.sasl:
        sasl_password(options)
    if options.tls:
        _of_files(options)


def _of_files(options: ConnectionOptions) -> ssl.SSLContext:
    """Return what the PEM files make: loading the system's authorities takes 50 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for key, path in _files(options):
        _read(options, key, path)
    if options.ssl_ca is not None:
        try:
            context.load_verify_locations(options.ssl_ca)
        except (OSError, ValueError):  # of ssl too
            _unfit(options, _CA, options.ssl_ca, "has no certificate in PEM")
    if options.ssl_certificate is not None:
        _load_certificate(context, options)
    return context


def fingerprint(options: ConnectionOptions) -> str:
    """Return a text that changes with the secrets; a secret that cannot be read counts as none."""
    digest = hashlib.sha256()
    for read in (sasl_password, key_password):
        try:
            digest.update(repr(read(options)).encode())
        except SecretError:
            digest.update(b"-")
    for key, path in _files(options):
        try:
            digest.update(hashlib.sha256(_read(options, key, path)).digest())
        except SecretError:
            digest.update(b"-")
    return digest.hexdigest()


def _files(options: ConnectionOptions) -> Iterator[tuple[str, str]]:
    """Yield option and path of each PEM file."""
    paths = (options.ssl_ca, options.ssl_certificate, options.ssl_key)
    for key, path in zip((_CA, _CERTIFICATE, _KEY), paths, strict=True):
        if path is not None:
            yield key, path


def _load_certificate(context: ssl.SSLContext, options: ConnectionOptions) -> None:
    password = key_password(options)

    def given() -> str:
        # without it OpenSSL would ask at the terminal
        if password is None:
            raise ValueError("encrypted")
        return password

    certificate, key = str(options.ssl_certificate), str(options.ssl_key)
    try:
        context.load_cert_chain(certificate, key, given)
    except (OSError, ValueError):  # of ssl too
        encrypted = b"ENCRYPTED" in _read(options, _KEY, key)
        if encrypted and password is None:
            _unfit(
                options,
                _KEY,
                key,
                "is encrypted",
                remedy=f"name its password: {_KEY_PASSWORD}.env or .file.",
            )
        _unfit(
            options,
            _CERTIFICATE,
            certificate,
            f"does not go with {_KEY}, {key!r}{' and its password' * encrypted}",
            remedy="give the certificate and the key of one pair, both as PEM.",
        )


def _secret(
    options: ConnectionOptions, key: str, variable: str | None, path: str | None
) -> str | None:
    if variable is not None:
        if value := os.environ.get(variable):
            return value
        raise SecretError(
            f"{options.whose}: option {key + '.env'!r} names the environment variable "
            f"{shown_variable(variable)}, which is {'not set' if value is None else 'empty'}.",
            remedy="set it for the driver and, with spark.executorEnv, for the executors.",
        )
    if path is not None:
        try:
            value = _read(options, key + ".file", path).decode().rstrip("\r\n")
        except ValueError:
            _unfit(options, key + ".file", path, "is not text in UTF-8")
        return value or _unfit(options, key + ".file", path, "is empty")
    return None


def _read(options: ConnectionOptions, key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES if key.endswith(".file") else -1)
    except (OSError, ValueError) as error:
        _unfit(options, key, path, f"cannot be read: {type(error).__name__}", remedy=_PUT)


def _unfit(
    options: ConnectionOptions,
    key: str,
    path: str,
    why: str,
    *,
    remedy: str = "put the right file there.",
) -> NoReturn:
    shown = shown_file(path) if key.endswith(".file") else repr(path)
    raise UnreadableFileError(
        f"{options.whose}: option {key!r} names {shown}, which {why}.", remedy=remedy
    ) from None
