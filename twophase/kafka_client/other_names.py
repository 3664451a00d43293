"""Option names of Spark's own Kafka source (`kafka`) and of Kafka's Java client, 3.0 to 4.1.

Those that mean the same are accepted for ours. The others are refused, with what to do instead. A
name of Java's client means the same with `kafka.`, as Spark has it, and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
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
_TIMEOUTS = "set `request.timeout=DURATION` or `read.timeout=DURATION`"
_PEM = (
    "give PEM files: kafka.ssl.ca.location, kafka.ssl.certificate.location, kafka.ssl.key.location"
)
_ACCOUNT = (
    "set `kafka.sasl.mechanism=MECHANISM`; `kafka.sasl.username=NAME`, its username or clientId; "
    "and `kafka.sasl.password.env=VARIABLE`, an environment variable with its password or "
    "clientSecret. With OAUTHBEARER set `kafka.sasl.oauthbearer.token.endpoint.url=URL` too, and "
    "`kafka.sasl.oauthbearer.scope=SCOPE`"
)
_NAMED = "name where it is: kafka.sasl.password.env or kafka.sasl.password.file"
_DECODED = "leave it out: keys and values are bytes; value.format sets what becomes of them"

_GROUP = "leave it out: the group is never joined"
_REPEATED = "leave it out: requests are repeated until request.timeout is over"
_SIZED = "leave it out: fetches are sized by themselves; maxRecordsPerTrigger limits a batch"
_CONNECTIONS = "leave it out: the clients look after their connections themselves"
_METRICS = "leave it out: job.status and the events of the job tell of its lag and rates"
_NO_CLASSES = "leave it out: no class of Java runs here"
_OPENSSL = "leave it out: connections use TLS 1.2 or newer, as the clients and brokers agree"
_TOKENS = "leave it out: a token is replaced before it expires"
_BROKERS = "leave it out: the brokers check the token"
_KERBEROS_ALONE = "leave it out: only the mechanism GSSAPI has it"
_ASSERTION = (
    "leave it out, and give the account by client credentials: kafka.sasl.username, "
    "kafka.sasl.password.env and kafka.sasl.oauthbearer.token.endpoint.url; or read through "
    "Spark's own source, format: kafka"
)

_OF_JAVA = {
    "allow.auto.create.topics": "leave it out: topics are never created",
    "auto.commit.interval.ms": "leave it out: offsets are committed after each checkpoint",
    "auto.include.jmx.reporter": _METRICS,
    "check.crcs": "leave it out: checksums are always verified",
    "client.dns.lookup": _CONNECTIONS,
    "client.id": "leave it out: it is always twophase",
    "client.rack": "leave it out: partitions are read from their leaders",
    "connections.max.idle.ms": _CONNECTIONS,
    "default.api.timeout.ms": _TIMEOUTS,
    "enable.metrics.push": _METRICS,
    "exclude.internal.topics": "leave it out: subscribePattern finds none of Kafka's own topics",
    "fetch.max.bytes": _SIZED,
    "fetch.max.wait.ms": _SIZED,
    "fetch.min.bytes": _SIZED,
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "interceptor.classes": _NO_CLASSES,
    "internal.leave.group.on.close": _GROUP,
    "internal.throw.on.fetch.stable.offset.unsupported": "set `isolation.level=LEVEL`",
    "max.partition.fetch.bytes": _SIZED,
    "max.poll.interval.ms": _GROUP,
    "max.poll.records": _SIZED,
    "metadata.max.age.ms": "set `partition.discovery.interval=DURATION`",
    "metadata.recovery.rebootstrap.trigger.ms": _CONNECTIONS,
    "metadata.recovery.strategy": _CONNECTIONS,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partition.assignment.strategy": _GROUP,
    "receive.buffer.bytes": _SIZED,
    "reconnect.backoff.max.ms": _REPEATED,
    "reconnect.backoff.ms": _REPEATED,
    "retry.backoff.max.ms": _REPEATED,
    "retry.backoff.ms": _REPEATED,
    "sasl.client.callback.handler.class": _NO_CLASSES,
    "sasl.kerberos.kinit.cmd": _KERBEROS_ALONE,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS_ALONE,
    "sasl.kerberos.service.name": _KERBEROS_ALONE,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS_ALONE,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS_ALONE,
    "sasl.login.class": _NO_CLASSES,
    "sasl.login.connect.timeout.ms": _TIMEOUTS,
    "sasl.login.read.timeout.ms": _TIMEOUTS,
    "sasl.login.refresh.buffer.seconds": _TOKENS,
    "sasl.login.refresh.min.period.seconds": _TOKENS,
    "sasl.login.refresh.window.factor": _TOKENS,
    "sasl.login.refresh.window.jitter": _TOKENS,
    "sasl.login.retry.backoff.max.ms": _REPEATED,
    "sasl.login.retry.backoff.ms": _REPEATED,
    "sasl.oauthbearer.assertion.algorithm": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.aud": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.exp.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.iss": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.jti.include": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.sub": _ASSERTION,
    "sasl.oauthbearer.assertion.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.passphrase": _ASSERTION,
    "sasl.oauthbearer.assertion.template.file": _ASSERTION,
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS,
    "sasl.oauthbearer.expected.audience": _BROKERS,
    "sasl.oauthbearer.expected.issuer": _BROKERS,
    "sasl.oauthbearer.header.urlencode": "leave it out: the account is sent as it is",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKERS,
    "sasl.oauthbearer.jwt.retriever.class": _ASSERTION,
    "sasl.oauthbearer.jwt.validator.class": _BROKERS,
    "sasl.oauthbearer.scope.claim.name": _BROKERS,
    "sasl.oauthbearer.sub.claim.name": _BROKERS,
    "security.providers": _NO_CLASSES,
    "send.buffer.bytes": _SIZED,
    "share.acknowledgement.mode": _GROUP,
    "socket.connection.setup.timeout.max.ms": _TIMEOUTS,
    "socket.connection.setup.timeout.ms": _TIMEOUTS,
    "ssl.cipher.suites": _OPENSSL,
    "ssl.enabled.protocols": _OPENSSL,
    "ssl.engine.factory.class": _NO_CLASSES,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.keystore.certificate.chain": _PEM,
    "ssl.keystore.key": _PEM,
    "ssl.protocol": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.truststore.certificates": _PEM,
}

REFUSED = {
    **{f"kafka.{name}": remedy for name, remedy in _OF_JAVA.items()},
    "assign": "set `subscribe=TOPICS`, which reads all partitions of them",
    "startingOffsetsByTimestamp": "set `startingOffsets=timestamp:MILLISECONDS`",
    "startingOffsetsByTimestampStrategy": "set `startingOffsets.fallback=earliest` or "
    "`startingOffsets.fallback=latest`",
    "endingOffsets": _ENDS,
    "endingTimestamp": _ENDS,
    "endingOffsetsByTimestamp": _ENDS,
    "failOnDataLoss": "leave it out: lost records always stop the job, by name",
    "minOffsetsPerTrigger": _NO_PACE,
    "maxTriggerDelay": _NO_PACE,
    "includeHeaders": "set `columns=key,value,headers`, or what else of them you need",
    "groupIdPrefix": "set `group.id=NAME`",
    "kafkaConsumer.pollTimeoutMs": _TIMEOUTS,
    "fetchOffset.numRetries": _TIMEOUTS,
    "fetchOffset.retryIntervalMs": _TIMEOUTS,
    "kafka.request.timeout.ms": _TIMEOUTS,
    "kafka.session.timeout.ms": _GROUP,
    "kafka.auto.offset.reset": "set `startingOffsets=earliest` or `startingOffsets=latest`",
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
_PREFIX = "kafka."
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
    known = _known(tuple(ours))
    names = {name: _known_as(name, known) for name in options}
    given = {names[name].lower(): value for name, value in options.items()}
    if what := next(_of_java_alone(given), ""):
        raise ConfigError(f"{where}: {what} needs Kafka's Java client.", remedy=WAY_ON)
    if wrong := [name for name in options if names[name] in REFUSED]:
        _refuse({name: REFUSED[names[name]] for name in wrong}, where)
    return _renamed(options, names, where)


def as_written(options: Mapping[str, Any], ours: list[str]) -> dict[str, tuple[str, Any]]:
    """Return name and value as the user wrote them, by our name."""
    known, found = _known(tuple(ours)), dict[str, tuple[str, Any]]()
    for name, value in options.items():
        theirs = _known_as(name, known)
        found[ALIASES.get(theirs, theirs)] = name, value
    return found


def with_capitals(options: Mapping[str, Any], ours: list[str]) -> dict[str, Any]:
    """Return options of a Python data source, which Spark has in lower case, as we write them."""
    known = _known(tuple(ours))
    return {known.get(name, name): value for name, value in options.items()}


@cache
def _known(ours: tuple[str, ...]) -> Mapping[str, str]:
    """Return each name by its lower case; they are wanted several times for each checkpoint."""
    return {name.lower(): name for name in (*ours, *ALIASES, *REFUSED)}


def _known_as(name: str, known: Mapping[str, str]) -> str:
    """Return a name as we write it, with `kafka.` if it has none; the name itself if unknown."""
    return known.get(name.lower()) or known.get(_PREFIX + name.lower()) or name


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


def _renamed(options: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        key = ALIASES.get(names[name], names[name])
        if key in found:
            raise ConfigError(
                f"{where}: {given[key]!r} and {name!r} set the same option.",
                remedy="keep one of the two.",
            )
        given[key] = name
        found[key] = f"timestamp:{value}" if names[name] == "startingTimestamp" else value
    return found
