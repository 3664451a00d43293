"""What brokers refuse, before a job has begun and afterwards.

Before, somebody has to mend the options, and the job does not start. Afterwards it has worked once:
somebody may be replacing a password or a certificate right now, and the job tries again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twophase.errors import PreflightError, SourceUnavailableError
from twophase.kafka_client.credentials import SecretError

RIGHTS_OF_READER = (
    "check user, password and the ACLs: READ and DESCRIBE on the topics, READ on the group."
)
_ALERT = "alert[ _]"
_CLIENT_CERTIFICATE = re.compile(
    _ALERT + r"(number 116|certificate required|bad certificate|unknown ca|certificate unknown|"
    r"certificate expired|certificate revoked|unsupported certificate|access denied)|"
    r"alert number (4[2-9]|116)\b"
)
_NO_HANDSHAKE = re.compile(_ALERT + r"handshake failure|alert number 40\b")
_NOTHING_IN_COMMON = re.compile(
    _ALERT + r"(protocol version|insufficient security)|alert number 7[01]\b|"
    r"unsupported protocol|no protocols available"
)
_BROKER_CERTIFICATE = re.compile(
    r"certificate[ _]verify[ _]failed|certificate is not valid for|broker certificate",
    re.IGNORECASE,
)
_PAIR = (
    "set kafka.ssl.certificate.location and kafka.ssl.key.location to a certificate in PEM "
    "that has not expired, of an authority in the broker's truststore, and its key"
)
_COMMON = (
    "let the broker's listener take TLS 1.2 or 1.3 (ssl.enabled.protocols), with the usual ciphers "
    "(ssl.cipher.suites)"
)


class AccessError(PreflightError):
    """The brokers refuse the client, or are none."""


class RefusedError(Exception):
    """A broker refuses the client of a fetch engine: a new one may have a newer secret or token."""


@contextmanager
def retried_once_begun(*, begun: bool) -> Iterator[None]:
    """Retry what is refused to a job that has begun.

    Raises:
        SourceUnavailableError: the brokers refuse the client of a job that has begun, or a secret
            of it cannot be read.
    """
    try:
        yield
    except (AccessError, SecretError) as error:
        if not begun:
            raise
        raise SourceUnavailableError(
            error.what,
            remedy=f"{error.remedy} The job tries again, and reads passwords and PEM files again.",
        ) from error


def tls_remedy(failure: str) -> str:
    """Return what to do after a failure of TLS; empty if the text is of none that is known."""
    text = failure.lower().replace("_", " ")
    if _CLIENT_CERTIFICATE.search(text):
        return (
            f"the broker asks for a client certificate, and accepts none or not this one: {_PAIR}."
        )
    if _NO_HANDSHAKE.search(text):
        return (
            f"the broker asks for a client certificate: {_PAIR}; or broker and client have no "
            f"version and no cipher of TLS in common: {_COMMON}."
        )
    if _NOTHING_IN_COMMON.search(text):
        return f"broker and client have no version and no cipher of TLS in common: {_COMMON}."
    if _BROKER_CERTIFICATE.search(failure):
        return (
            "set `kafka.ssl.ca.location=FILE` with the authority of the brokers' certificates, in "
            "PEM; they have to name the hosts of kafka.bootstrap.servers and of "
            "advertised.listeners."
        )
    return ""


def remedy_of(refusal: str, rights: str = RIGHTS_OF_READER) -> str:
    """Return what to do after a refusal of the brokers.

    Args:
        refusal: its text.
        rights: what to do if it is none of TLS: which ones the account needs.
    """
    return tls_remedy(refusal) or rights
