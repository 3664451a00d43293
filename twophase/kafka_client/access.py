"""What brokers refuse, before a job has begun and afterwards, and what their errors mean.

Before, somebody has to mend the options, and the job does not start. Afterwards it has worked once:
somebody may be replacing a password or a certificate right now, and the job tries again.

A broker that answers with an error is there: to have somebody look whether it runs would lead them
astray.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import shorten

from kafka import errors as kafka_errors

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
    "set `kafka.ssl.certificate.location=FILE`, a certificate in PEM that has not expired, of an "
    "authority in the broker's truststore, and `kafka.ssl.key.location=FILE`, its key"
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
            "set `kafka.ssl.ca.location=FILE`, a PEM file with the authority of the brokers' "
            "certificates; these must name the hosts of kafka.bootstrap.servers and of "
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


_MOST_CHARACTERS = 400
_NO_LEADER = -1
_NO_ANSWER = (kafka_errors.RequestTimedOutError, kafka_errors.NetworkExceptionError)
"""Of kafka-python itself, though they have a broker's number."""


@dataclass(frozen=True)
class Meaning:
    """What errors of some kinds mean.

    Attributes:
        kinds: of kafka-python.
        means: a clause; empty if their text says it.
        remedy: what to do.
    """

    kinds: tuple[type[kafka_errors.KafkaError], ...]
    means: str
    remedy: str


_MEANINGS = (
    Meaning(
        kinds=(
            kafka_errors.CoordinatorNotAvailableError,
            kafka_errors.CoordinatorLoadInProgressError,
            kafka_errors.NotCoordinatorError,
        ),
        means="no broker coordinates these transactions or this group now",
        remedy="start the brokers that have Kafka's own topics `__transaction_state` and "
        "`__consumer_offsets` (kafka-topics.sh --describe names them). Fewer brokers than "
        "transaction.state.log.replication.factor and offsets.topic.replication.factor say do not "
        "even create them. If they run, wait: they are loading or moving them. Then start the job "
        "again.",
    ),
    Meaning(
        kinds=(
            kafka_errors.UnknownBrokerIdError,
            kafka_errors.LeaderNotAvailableError,
            kafka_errors.NotLeaderForPartitionError,
            kafka_errors.ReplicaNotAvailableError,
            kafka_errors.OffsetNotAvailableError,
        ),
        means="a partition has no leader now",
        remedy="start the brokers that have its replicas (kafka-topics.sh --describe names them); "
        "then start the job again.",
    ),
    Meaning(
        kinds=(
            kafka_errors.NotEnoughReplicasError,
            kafka_errors.NotEnoughReplicasAfterAppendError,
        ),
        means="fewer replicas are in sync than min.insync.replicas",
        remedy="start the brokers that have the other replicas (kafka-topics.sh --describe names "
        "them); then start the job again.",
    ),
    Meaning(
        kinds=(kafka_errors.KafkaStorageError, kafka_errors.LogDirNotFoundError),
        means="a broker cannot use its disk",
        remedy="free or replace the disk of the folder in log.dirs that the broker's log names; "
        "then start the job again.",
    ),
    Meaning(
        kinds=(
            kafka_errors.InvalidReplicationFactorError,
            kafka_errors.InvalidReplicationAssignmentError,
        ),
        means="there are fewer brokers than replicas",
        remedy="start the other brokers, or create the topic with as many replicas as there are "
        "brokers (kafka-topics.sh --create); then start the job again.",
    ),
    Meaning(
        kinds=(kafka_errors.PolicyViolationError, kafka_errors.InvalidConfigurationError),
        means="the cluster does not allow it",
        remedy="create the topic with what the cluster allows (kafka-topics.sh --create); then "
        "start the job again.",
    ),
    Meaning(
        kinds=(
            kafka_errors.UnsupportedVersionError,
            kafka_errors.UnrecognizedBrokerVersion,
            kafka_errors.UnsupportedForMessageFormatError,
        ),
        means="the brokers are too old for it",
        remedy="use brokers of Apache Kafka 2.8 or newer to read from, 3.0 or newer to write to.",
    ),
)
_OTHER = Meaning(
    kinds=(kafka_errors.KafkaError,),
    means="",
    remedy="correct what this error names, of which the brokers' logs may say more; then start the "
    "job again.",
)


def has_no_leader(error: kafka_errors.KafkaError) -> bool:
    """Return whether kafka-python has asked the leader of a partition that has none."""
    return isinstance(error, kafka_errors.UnknownBrokerIdError) and error.args == (_NO_LEADER,)


def is_answer(error: kafka_errors.KafkaError) -> bool:
    """Return whether a broker has answered with an error, or there is no leader to ask."""
    answers = kafka_errors.BrokerResponseError, kafka_errors.UnrecognizedBrokerVersion
    told = isinstance(error, answers) and not isinstance(error, _NO_ANSWER)
    return told or has_no_leader(error)


def meaning(error: kafka_errors.KafkaError) -> tuple[str, str]:
    """Return what an answer means, as a clause, and what to do about it."""
    text = shorten(str(error), _MOST_CHARACTERS, placeholder="...")
    [found, *_] = [one for one in (*_MEANINGS, _OTHER) if isinstance(error, one.kinds)]
    return f"{found.means}: {text}" if found.means else text, found.remedy
