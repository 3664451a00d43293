"""Option names of Spark's own Kafka source (`kafka`) and of Kafka's Java client.

Those that mean the same are accepted for ours. The others are refused, with what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from twophase.errors import ConfigError

ALIASES = {
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
    "minPartitions": "minReadTasks",
    "startingTimestamp": "startingOffsets",
    "kafka.group.id": "group.id",
    "kafka.isolation.level": "isolation.level",
    "kafka.sasl.oauthbearer.client.id": "kafka.sasl.username",
    "kafka.sasl.oauthbearer.client.credentials.client.id": "kafka.sasl.username",
}
"""Ours for each name that is accepted; a `startingTimestamp` is a number of milliseconds."""

_ENDS = "leave it out: a stream has no end; trigger(availableNow=True) ends with what is there"
_NO_PACE = "leave it out: the trigger of the job sets the pace, such as processingTime: 1 minute"
_TIMEOUTS = "set request.timeout or read.timeout"
_PEM = (
    "give PEM files: kafka.ssl.ca.location, kafka.ssl.certificate.location, kafka.ssl.key.location"
)
_ACCOUNT = (
    "set kafka.sasl.mechanism; kafka.sasl.username to its username or clientId; and "
    "kafka.sasl.password.env to the name of an environment variable with its password or "
    "clientSecret. With OAUTHBEARER set kafka.sasl.oauthbearer.token.endpoint.url too, and "
    "kafka.sasl.oauthbearer.scope to its scope"
)
_NAMED = "name where it is: kafka.sasl.password.env or kafka.sasl.password.file"
_DECODED = "leave it out: keys and values are bytes; value.format sets what becomes of them"

REFUSED = {
    "assign": "set subscribe, which reads all partitions of its topics",
    "startingOffsetsByTimestamp": "set startingOffsets to timestamp:MILLISECONDS",
    "startingOffsetsByTimestampStrategy": "set startingOffsets.fallback",
    "endingOffsets": _ENDS,
    "endingTimestamp": _ENDS,
    "endingOffsetsByTimestamp": _ENDS,
    "failOnDataLoss": "leave it out: lost records always stop the job, by name",
    "minOffsetsPerTrigger": _NO_PACE,
    "maxTriggerDelay": _NO_PACE,
    "includeHeaders": "set columns to key,value,headers or what else of them you need",
    "groupIdPrefix": "set group.id",
    "kafkaConsumer.pollTimeoutMs": _TIMEOUTS,
    "fetchOffset.numRetries": _TIMEOUTS,
    "fetchOffset.retryIntervalMs": _TIMEOUTS,
    "kafka.request.timeout.ms": _TIMEOUTS,
    "kafka.session.timeout.ms": "leave it out: the group is never joined",
    "kafka.auto.offset.reset": "set startingOffsets",
    "kafka.enable.auto.commit": "leave it out: offsets are committed after each checkpoint",
    "kafka.key.deserializer": _DECODED,
    "kafka.value.deserializer": _DECODED,
    "kafka.sasl.jaas.config": _ACCOUNT,
    "kafka.sasl.password": _NAMED,
    "kafka.sasl.oauthbearer.client.secret": _NAMED,
    "kafka.sasl.oauthbearer.client.credentials.client.secret": _NAMED,
    "kafka.sasl.login.callback.handler.class": "leave it out: with kafka.sasl.mechanism "
    "OAUTHBEARER tokens come from kafka.sasl.oauthbearer.token.endpoint.url",
    "kafka.ssl.truststore.location": _PEM,
    "kafka.ssl.truststore.password": _PEM,
    "kafka.ssl.truststore.type": _PEM,
    "kafka.ssl.keystore.location": _PEM,
    "kafka.ssl.keystore.password": _PEM,
    "kafka.ssl.keystore.type": _PEM,
    "kafka.ssl.key.password": "name where it is: kafka.ssl.key.password.env or "
    "kafka.ssl.key.password.file",
    "kafka.ssl.endpoint.identification.algorithm": "leave it out: the host name is always verified",
}
"""What to do instead of setting each of these."""

WAY_ON = (
    "read through Spark's own source, format: kafka, with Spark's options for it and without "
    "group.id (docs/kafka.md); or give the job an account with one of the mechanisms "
    "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER."
)
_MECHANISM, _JAAS = "kafka.sasl.mechanism", "kafka.sasl.jaas.config"
_KERBEROS = "kafka.sasl.kerberos."
_OTHER_MECHANISMS = ("GSSAPI", "AWS_MSK_IAM")
_OTHER_LOGIN = re.compile(r"Krb5LoginModule|IAMLoginModule|unsecuredLogin|\btokenauth\b")
_OTHER_CLASSES = (
    "kafka.sasl.login.class",
    "kafka.sasl.login.callback.handler.class",
    "kafka.sasl.client.callback.handler.class",
)
_OWN_HANDLER = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.\w*\.?OAuthBearerLoginCallbackHandler"
)


def with_our_names(options: Mapping[str, Any], ours: list[str], where: str) -> dict[str, Any]:
    """Return the options under our names; one that nobody knows stays as it is.

    Args:
        options: names as the user wrote them, compared without regard to case, as Spark does.
        ours: our names.
        where: what the options belong to, for errors.

    Raises:
        ConfigError: two names set the same option, or some are refused; all of them are named.
    """
    given = {name.lower(): value for name, value in options.items()}
    if what := next(_of_java_alone(given), ""):
        raise ConfigError(f"{where}: {what} needs Kafka's Java client.", remedy=WAY_ON)
    refused = {name.lower(): remedy for name, remedy in REFUSED.items()}
    if wrong := [name for name in options if name.lower() in refused]:
        _refuse({name: refused[name.lower()] for name in wrong}, where)
    return _renamed(options, ours, where)


def _of_java_alone(given: Mapping[str, Any]) -> Iterator[str]:
    """Name what authenticates in a way that only Java's client has, whatever else is given."""
    mechanism = str(given.get(_MECHANISM, "")).strip().upper()
    if mechanism in _OTHER_MECHANISMS:
        yield f"{_MECHANISM}={mechanism}"
    if _OTHER_LOGIN.search(str(given.get(_JAAS, ""))):
        yield f"the login in {_JAAS}"
    for name in _OTHER_CLASSES:
        if name in given and not _OWN_HANDLER.fullmatch(str(given[name]).strip()):
            yield f"the class in {name}"
    if not mechanism and (name := next((one for one in given if one.startswith(_KERBEROS)), "")):
        yield f"GSSAPI, which {name} without {_MECHANISM} means,"


def _refuse(remedies: Mapping[str, str], where: str) -> None:
    one = len(remedies) == 1
    what = ("option", "is") if one else ("options", "are")
    each = [remedy if one else f"{name}: {remedy}" for name, remedy in remedies.items()]
    raise ConfigError(
        f"{where}: {what[0]} {', '.join(map(repr, remedies))} of Spark's Kafka source {what[1]} "
        "not supported.",
        remedy=f"{'; '.join(each)}.",
    )


def _renamed(options: Mapping[str, Any], ours: list[str], where: str) -> dict[str, Any]:
    by_case = {name.lower(): name for name in ours}
    aliases = {name.lower(): name for name in ALIASES}
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        alias = aliases.get(name.lower())
        key = ALIASES[alias] if alias else by_case.get(name.lower(), name)
        if key in found:
            raise ConfigError(
                f"{where}: {given[key]!r} and {name!r} set the same option.",
                remedy="keep one of the two.",
            )
        given[key] = name
        found[key] = f"timestamp:{value}" if alias == "startingTimestamp" else value
    return found
