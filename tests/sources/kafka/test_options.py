"""The options of the source: a closed list, checked before anything is opened."""

from __future__ import annotations

import pickle
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from twophase.contract.source import SourceLeg
from twophase.errors import ConfigError
from twophase.kafka_client import connection, other_names
from twophase.kafka_client.credentials import check_secrets, tls_context
from twophase.kafka_client.other_names import ALIASES, REFUSED
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka.data_source import KafkaDataSource
from twophase.sources.kafka.group import GroupOffsets
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.source import KafkaSource
from twophase.sources.kafka.starting_offsets import (
    AtTimestamp,
    Committed,
    Earliest,
    Latest,
    Specific,
)
from twophase.sources.spark_kafka import SparkKafkaSource

CANARY = "canary-7f3a"
BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "app",
    "kafka.sasl.password.env": "KAFKA_PASSWORD",
}


def parse(**more: str) -> KafkaOptions:
    return KafkaOptions.parse(BASE | more)


def refused(options: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        KafkaOptions.parse(options)
    return str(caught.value)


def test_defaults_are_the_safe_ones() -> None:
    options = parse()
    assert options.isolation_level == "read_committed"
    assert options.on_bad_record == "fail"
    assert options.starting == Earliest()


def test_keys_are_compared_without_regard_to_case() -> None:
    lowered = {
        key.lower(): value
        for key, value in (BASE | {"startingOffsets": "latest", "group.id": "g"}).items()
    }
    assert KafkaOptions.parse(lowered).starting == Latest()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("earliest", Earliest()),
        ("LATEST", Latest()),
        ("timestamp:1700000000000", AtTimestamp(1700000000000)),
        (
            '{"orders": {"0": 12, "1": -2}, "b": {"0": -1}}',
            Specific(
                (
                    (Partition("b", 0), -1),
                    (Partition("orders", 0), 12),
                    (Partition("orders", 1), -2),
                )
            ),
        ),
    ],
)
def test_starting_offsets(text: str, value: object) -> None:
    assert parse(startingOffsets=text).starting == value


def test_committed_needs_a_group() -> None:
    assert "group.id" in refused(BASE | {"startingOffsets": "committed"})
    assert parse(startingOffsets="committed", **{"group.id": "g"}).starting == Committed()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "timestamp:",
        "timestamp:-5",
        "timestamp:1e3",
        "{}",
        "[]",
        "5",
        '{"orders": 5}',
        '{"orders": {"x": 1}}',
        '{"orders": {"0": -3}}',
        '{"orders": {"0": 1.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": "1"}}',
    ],
)
def test_other_starting_offsets_are_refused(text: str) -> None:
    assert "startingOffsets" in refused(BASE | {"startingOffsets": text})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka.bootstrap.servers", "localhost"),
        ("kafka.bootstrap.servers", "http://a:9092"),
        ("kafka.bootstrap.servers", "a:9092,${env:X}:1"),
        ("subscribe", ""),
        ("subscribe", "a/b"),
        ("subscribe", "../x"),
        ("subscribe", "orders, .."),
        ("subscribe", "."),
        ("value.format", "avro"),
        ("json.on_error", "dead_letter"),
        ("json.on_tombstone", "keep"),
        ("json.skip_bytes", "-1"),
        ("json.skip_bytes", "five"),
        ("maxRecordsPerTrigger", "0"),
        ("maxRecordsPerTrigger", "-5"),
        ("maxRecordsPerTrigger", "many"),
        ("maxRecordsPerPartition", "1.5"),
        ("isolation.level", "serializable"),
        ("fetch.engine", "java"),
        ("request.timeout", "0 s"),
        ("read.timeout", "soon"),
        ("columns", "value,value"),
        ("columns", "payload"),
        ("uid", "a/b"),
        ("group.id", ""),
        ("startingOffsets.fallback", "committed"),
        ("kafka.security.protocol", "TLS"),
        ("kafka.sasl.mechanism", "GSSAPI"),
        ("minReadTasks", "0"),
    ],
)
def test_bad_values_are_refused_by_name(key: str, value: str) -> None:
    message = refused(BASE | SASL | {key: value})
    assert key in message or (key == "uid" and "uid" in message)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("subscrib", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, near: str) -> None:
    message = refused(BASE | {key: CANARY})
    assert f"did you mean {near!r}" in message
    assert CANARY not in message


@pytest.mark.parametrize(
    "key",
    [
        "kafka.sasl.jaas.config",
        "kafka.sasl.oauthbearer.jwks.endpoint.url",
        "kafka.config.providers",
        "kafka.plugin.library.paths",
        "kafka.ssl.endpoint.identification.algorithm",
        "kafka.enable.ssl.certificate.verification",
        "kafka.auto.offset.reset",
        "kafka.interceptor.classes",
        "kafka.bootstrap.servers.extra",
    ],
)
def test_nothing_else_reaches_a_kafka_client(key: str) -> None:
    message = refused(BASE | {key: "x"})
    assert "unknown option" in message or "is not supported. Next: " in message


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("maxOffsetsPerTrigger", "7", {"maxRecordsPerTrigger": "7"}),
        ("minPartitions", "7", {"minReadTasks": "7"}),
        ("startingTimestamp", "1700000000000", {"startingOffsets": "timestamp:1700000000000"}),
        ("kafka.group.id", "etl", {"group.id": "etl"}),
        *(
            (f"kafka.sasl.oauthbearer.{name}", "etl", {"kafka.sasl.username": "etl"})
            for name in ("client.id", "client.credentials.client.id")
        ),
        ("kafka.isolation.level", "read_uncommitted", {"isolation.level": "read_uncommitted"}),
    ],
)
def test_a_name_of_spark_s_source_sets_our_option(
    name: str, value: str, ours: dict[str, str]
) -> None:
    assert ALIASES[name] in ours
    base = {key: one for key, one in (BASE | SASL).items() if key not in ours}
    for spelling in (name, name.lower()):
        assert KafkaOptions.parse(base | {spelling: value}) == KafkaOptions.parse(base | ours)
    assert f"and {name!r} set the same option" in refused({**BASE, **ours, name: value})
    found = KafkaSource().starting_offsets({name: value})
    assert found == ours.get("startingOffsets")


HANDLER, JAAS = "kafka.sasl.login.callback.handler.class", "kafka.sasl.jaas.config"
OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_means_nothing_here_is_refused_with_what_to_do(name: str) -> None:
    value = f"{OAUTH}.OAuthBearerLoginCallbackHandler" if name.endswith(".class") else CANARY
    base = BASE | ({"kafka.sasl.mechanism": "PLAIN"} if ".kerberos." in name else {})
    for spelling in (name, name.lower()):
        message = refused(base | {spelling: value})
        assert f"option {spelling!r} of Spark's Kafka source is not supported. Next: " in message
        assert CANARY not in message
    options = {*KafkaOptions.keys()}
    named = re.findall(r"[a-z]+(?:\.[a-z]+)+|[a-z]+[A-Z]\w+", REFUSED[name])
    words = {"availableNow", "processingTime", "clientId", "clientSecret", "job.status"}
    assert set(named) <= options | words


# org.apache.kafka.clients.consumer.ConsumerConfig.configNames() of 4.1.1, and what 3.x had besides
OF_JAVA = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
bootstrap.servers check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms
default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
group.remote.assignor heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer
max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type value.deserializer
"""
# KafkaSourceProvider of Spark 4.2
OF_SPARK = """
assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp
startingOffsetsByTimestampStrategy endingOffsets endingTimestamp endingOffsetsByTimestamp
failOnDataLoss minPartitions maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger
maxTriggerDelay groupIdPrefix includeHeaders kafkaConsumer.pollTimeoutMs fetchOffset.numRetries
fetchOffset.retryIntervalMs
"""
SAME_NAME = {f"kafka.{name}" for name in OF_JAVA.split()} | {*OF_SPARK.split()}


@pytest.mark.parametrize("bare", [False, True], ids=["kafka.", ""])
@pytest.mark.parametrize("name", sorted(SAME_NAME))
def test_every_name_of_spark_and_of_java_s_client_has_an_answer(name: str, bare: bool) -> None:
    written = name.removeprefix("kafka.") if bare else name
    if name in {*KafkaOptions.keys(), *ALIASES}:
        instead = {name, ALIASES.get(name), "subscribe" if name == "subscribePattern" else None}
        options = {key: value for key, value in VALUES.items() if key not in instead | EITHER}
        value = VALUES.get(name) or VALUES[ALIASES[name]]
        KafkaOptions.parse(options | {written: value})
        return
    message = refused(BASE | {written: CANARY})
    assert written in message
    assert "Next: " in message
    assert "unknown option" not in message
    assert CANARY not in message


PEM = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.ca.location": "/ca.pem",
    "kafka.ssl.certificate.location": "/app.pem",
    "kafka.ssl.key.location": "/app.key",
}
BY_PASSWORD = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "app",
    "kafka.sasl.password.env": "KAFKA_PASSWORD",
}
TOKENS = BY_PASSWORD | {
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "kafka.sasl.oauthbearer.scope": "kafka",
}
FROM_A_FILE = {name: value for name, value in BY_PASSWORD.items() if not name.endswith(".env")}
INSTEAD: dict[str, list[dict[str, str]]] = {
    "give PEM files": [PEM],
    "leave it out, and give the account by client credentials": [TOKENS],
    "leave it out: with kafka.sasl.mechanism OAUTHBEARER": [TOKENS],
    "name where it is: kafka.sasl.password.env": [
        BY_PASSWORD,
        FROM_A_FILE | {"kafka.sasl.password.file": "/password"},
    ],
    "name where it is: kafka.ssl.key.password.env": [
        PEM | {"kafka.ssl.key.password.env": "KEY_PASSWORD"},
        PEM | {"kafka.ssl.key.password.file": "/password"},
    ],
    "set `kafka.sasl.mechanism=": [BY_PASSWORD, TOKENS],
    "set `columns=": [{"columns": "key,value,headers"}],
    "set `group.id=": [{"group.id": "etl"}],
    "set `isolation.level=": [{"isolation.level": "read_committed"}],
    "set `partition.discovery.interval=": [{"partition.discovery.interval": "1 minute"}],
    "set `request.timeout=": [{"request.timeout": "9 s"}, {"read.timeout": "9 s"}],
    "set `startingOffsets.fallback=": [
        {"startingOffsets": '{"orders":{"0":1}}', "startingOffsets.fallback": each}
        for each in ("earliest", "latest")
    ],
    "set `startingOffsets=timestamp": [{"startingOffsets": "timestamp:1700000000000"}],
    "set `startingOffsets=": [{"startingOffsets": "earliest"}, {"startingOffsets": "latest"}],
    "set `subscribe=": [{"subscribe": "orders"}],
    "leave it out": [{}],
}
"""How an answer begins, and what it says to do: each alternative."""


@pytest.mark.parametrize("name", REFUSED)
def test_every_answer_leads_on(name: str) -> None:
    ways = next(way for begins, way in INSTEAD.items() if REFUSED[name].startswith(begins))
    for given in ways:
        assert not given or any(key in REFUSED[name] for key in given)
        KafkaOptions.parse(BASE | given)


EITHER = {"startingTimestamp", "subscribePattern"}
VALUES = {
    **BASE,
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.username": "app",
    "kafka.sasl.password.env": "KAFKA_PASSWORD",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "kafka.sasl.oauthbearer.scope": "kafka",
    "group.id": "etl",
    "isolation.level": "read_committed",
    "startingOffsets": "earliest",
    "startingTimestamp": "5",
    "subscribePattern": "o.*",
    "maxRecordsPerTrigger": "5",
    "maxRecordsPerPartition": "5",
    "minReadTasks": "2",
}


SECURE = {"kafka.security.protocol": "SASL_SSL"}
STORE = {"kafka.ssl.truststore.location": "/trust.jks", "kafka.ssl.truststore.password": CANARY}
OF_JAVA_ALONE = {
    "MSK IAM": {
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        JAAS: "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
    },
    "MSK IAM, a profile": {
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        JAAS: 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="etl";',
    },
    "MSK IAM, tokens": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f"{OAUTH}.OAuthBearerLoginModule required;",
        HANDLER: "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        "kafka.sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
        ),
    },
    "Google": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f"{OAUTH}.OAuthBearerLoginModule required;",
        HANDLER: "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
    },
    "Strimzi": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f'{OAUTH}.OAuthBearerLoginModule required oauth.client.secret="{CANARY}";',
        HANDLER: "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
    },
    "Kerberos": {
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        JAAS: "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
    },
    "Kerberos, IBM": {
        "kafka.sasl.mechanism": "gssapi",
        JAAS: "com.ibm.security.auth.module.Krb5LoginModule required;",
    },
    "Kerberos, the JVM's login file": {"kafka.sasl.kerberos.service.name": "kafka"},
    "Kerberos, the keytab in the options": {
        JAAS: "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    },
    "Kerberos, all in the JVM's login file": {},
    "delegation tokens": {
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        JAAS: "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="id" password="{CANARY}" tokenauth="true";',
    },
    "tokens without a server": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";',
    },
}


@pytest.mark.parametrize("extra", [{}, STORE], ids=["", "store"])
@pytest.mark.parametrize("name", OF_JAVA_ALONE)
def test_what_only_java_s_client_can_do_has_a_way_on(name: str, extra: dict[str, str]) -> None:
    options = SECURE | OF_JAVA_ALONE[name]
    if options != SECURE:
        options |= extra
    for given in (options, {key.lower(): value for key, value in reversed(options.items())}):
        message = refused(BASE | given)
        assert "read through Spark's own source, format: kafka, with Spark's options" in message
        assert CANARY not in message
    SparkKafkaSource().check_options(SourceLeg("kafka", BASE | options))  # the remedy


EVENT_HUBS = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "
ACCOUNT = {"kafka.sasl.username": "app", "kafka.sasl.password.env": "KAFKA_PASSWORD"}
WITH_AN_ACCOUNT = {
    "Event Hubs": {
        "kafka.sasl.mechanism": "PLAIN",
        JAAS: f'{EVENT_HUBS}username="$ConnectionString" password="{CANARY}";',
        "kafka.request.timeout.ms": "60000",
        "kafka.session.timeout.ms": "30000",
        "failOnDataLoss": "true",
    },
    "Confluent": {
        "kafka.sasl.mechanism": "PLAIN",
        JAAS: f"kafkashaded.{EVENT_HUBS}username='key' password='{CANARY}';",
        "kafka.ssl.endpoint.identification.algorithm": "https",
    },
    "SCRAM": {
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        JAAS: f'{SCRAM}username="a" password="{CANARY}";',
        **STORE,
    },
    "PLAIN without its name": {JAAS: f'{EVENT_HUBS}username="a" password="{CANARY}";'},
    "Java's OAUTHBEARER": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f"{OAUTH}.OAuthBearerLoginModule required clientId='a' clientSecret='{CANARY}' "
        "scope='kafka';",
        HANDLER: f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    },
    "Java's OAUTHBEARER, since 4.1": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        JAAS: f"{OAUTH}.OAuthBearerLoginModule required;",
        HANDLER: f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "app",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": CANARY,
    },
}


@pytest.mark.parametrize("name", WITH_AN_ACCOUNT)
def test_an_account_in_the_words_of_java_s_client_is_refused_with_ours(name: str) -> None:
    options = BASE | SECURE | WITH_AN_ACCOUNT[name]
    message = refused(options)
    wrong = re.findall("'([^']+)'", message.partition(" of Spark's")[0])
    assert {*wrong} == {*WITH_AN_ACCOUNT[name]} & {*REFUSED}, "all of them at once"
    assert CANARY not in message
    for key in ("mechanism", *(key.removeprefix("kafka.sasl.") for key in ACCOUNT)):
        assert f"kafka.sasl.{key}" in message
    left = {key: value for key, value in options.items() if key not in wrong}
    left.pop("kafka.sasl.oauthbearer.client.credentials.client.id", None)
    KafkaOptions.parse({"kafka.sasl.mechanism": "PLAIN"} | left | ACCOUNT)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.bootstrap.servers": "a:1"},
        BASE | {"subscribePattern": "o.*"},
        BASE | {"json.on_error": "drop"},
        BASE | {"json.on_tombstone": "fail"},
        BASE | {"json.skip_bytes": "5"},
        BASE | {"kafka.ssl.ca.location": "/ca.pem"},
        BASE | {"kafka.security.protocol": "SSL", "kafka.ssl.key.location": "/key.pem"},
        BASE | {"kafka.sasl.username": "app"},
        BASE | SASL | {"kafka.security.protocol": "SSL"},
        BASE | SASL | {"kafka.sasl.password.file": "/password"},
        {key: value for key, value in (BASE | SASL).items() if key != "kafka.sasl.password.env"},
        {key: value for key, value in (BASE | SASL).items() if key != "kafka.sasl.mechanism"},
        BASE | SASL | {"kafka.sasl.mechanism": "OAUTHBEARER"},
        BASE | SASL | {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token"},
        BASE | SASL | {"kafka.sasl.oauthbearer.scope": "kafka"},
        BASE | {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token"},
    ],
    ids=lambda options: ",".join(options),
)
def test_options_that_do_not_go_together_are_refused(options: Mapping[str, str]) -> None:
    assert "Next: " in refused(options)


def test_a_pattern_must_be_a_regular_expression() -> None:
    assert "subscribePattern" in refused(
        {"kafka.bootstrap.servers": "a:1", "subscribePattern": "o("}
    )


def test_both_clients_get_the_same_security(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    options = KafkaOptions.parse(BASE | SASL)
    python, c = connection.for_kafka_python(options), connection.for_librdkafka(options)
    assert python["security_protocol"] == c["security.protocol"] == "SASL_SSL"
    assert python["sasl_plain_password"].read() == c["sasl.password"] == CANARY
    context = tls_context(options)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert c["ssl.endpoint.identification.algorithm"] == "https"
    assert c["enable.ssl.certificate.verification"] is True


def test_a_password_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{CANARY}\n")
    options = {key: value for key, value in SASL.items() if not key.endswith(".env")}
    parsed = KafkaOptions.parse(BASE | options | {"kafka.sasl.password.file": str(path)})
    assert connection.for_librdkafka(parsed)["sasl.password"] == CANARY


def test_a_missing_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options = KafkaOptions.parse(BASE | SASL | {"kafka.sasl.password.env": "NO_SUCH_VARIABLE"})
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        connection.for_kafka_python(options)
    monkeypatch.setenv("NO_SUCH_VARIABLE", CANARY)
    assert connection.for_kafka_python(options)["sasl_plain_password"].read() == CANARY


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_a_missing_or_unfit_file_is_named(name: str, tmp_path: Path) -> None:
    key, path = f"kafka.ssl.{name}.location", tmp_path / "x.pem"
    given = {"kafka.security.protocol": "SSL", key: str(path)}
    for other in {"certificate", "key"} - {name} if name != "ca" else ():
        (tmp_path / other).write_text("")
        given[f"kafka.ssl.{other}.location"] = str(tmp_path / other)
    options = KafkaOptions.parse(BASE | given)  # `twophase check` goes no further
    leg = SourceLeg("twophase-kafka", BASE | given)
    for problem in ("cannot be read", ""):
        with pytest.raises(ConfigError) as raised:
            check_secrets(options)
        for text in (key, str(path), problem, "Next: "):
            assert text in str(raised.value)
        with pytest.raises(ConfigError):
            KafkaSource().check_secrets(leg)
        path.write_text("no PEM")


def test_options_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    options = KafkaOptions.parse(BASE | SASL)
    connection.for_kafka_python(options)
    assert CANARY not in repr(options) + str(options) + options.model_dump_json()
    assert CANARY.encode() not in pickle.dumps(options)


def test_plaintext_carries_no_security_settings() -> None:
    assert not [
        key for key in connection.for_librdkafka(parse()) if key.startswith(("ssl.", "sasl."))
    ]


def test_options_compare_and_travel_by_value() -> None:
    options = parse(startingOffsets='{"orders": {"0": 1}}')
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(pickle.loads(pickle.dumps(options))) == hash(options)


def test_group_offsets_need_a_group() -> None:
    with pytest.raises(ConfigError, match=r"group\.id") as caught:
        GroupOffsets(BASE)
    assert caught.value.remedy == "set `group.id=NAME`."
    GroupOffsets(BASE | {"group.id": "NAME"})


WRONG = {
    "kafka.bootstrap.servers": "localhost",
    "subscribe": "a/b",
    "subscribePattern": "o(",
    "group.id": "",
    "startingOffsets": "-5",
    "maxRecordsPerTrigger": "many",
    "minReadTasks": "0",
    "isolation.level": "serializable",
    "kafka.security.protocol": "TLS",
    "kafka.sasl.username": "",
}
NAMES = {ours: {ours, ours.removeprefix("kafka.")} for ours in WRONG}
for _alias, _ours in ALIASES.items():
    NAMES[_ours] |= {_alias, _alias.removeprefix("kafka.")}
SPELLINGS = sorted(
    {
        (ours, spelling)
        for ours, names in NAMES.items()
        for name in names
        for spelling in (name, name.lower(), name.upper())
    }
)


@pytest.mark.parametrize(("ours", "name"), SPELLINGS)
def test_a_wrong_value_is_named_as_the_user_wrote_it(ours: str, name: str) -> None:
    options = {key: value for key, value in (BASE | SASL).items() if key != ours}
    message = refused(options | {name: WRONG[ours]})
    assert f"option {name!r} is {WRONG[ours]!r}: " in message


@pytest.mark.parametrize("name", sorted({*ALIASES, *WRONG}))
def test_a_program_s_option_is_named_with_its_capitals(name: str) -> None:
    ours = ALIASES.get(name, name)
    options = {key: value for key, value in (BASE | SASL).items() if key != ours}
    source = KafkaDataSource(CaseInsensitiveDict(options | {name: WRONG[ours]}))
    for parse in (source.schema, lambda: source.streamReader(StructType())):
        with pytest.raises(ConfigError) as caught:
            parse()
        assert f"option {name!r} is {WRONG[ours]!r}: " in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"KAFKA.SASL.USERNAME": "a"}, "kafka.sasl.* options with KAFKA.SECURITY.PROTOCOL="),
        ({"ssl.key.location": "/k"}, "kafka.ssl.certificate.location and ssl.key.location go"),
        ({"STARTINGOFFSETS": "committed"}, "STARTINGOFFSETS=committed needs group.id"),
    ],
)
def test_options_that_do_not_go_together_are_named_as_the_user_wrote_them(
    options: dict[str, str], named: str
) -> None:
    protocol = "SSL" if "ssl.key.location" in options else "PLAINTEXT"
    assert named in refused(BASE | {"KAFKA.SECURITY.PROTOCOL": protocol} | options)


def test_the_names_are_collected_once_for_all_checkpoints() -> None:
    KafkaOptions.parse(BASE)
    collected = other_names._known.cache_info().misses
    KafkaOptions.parse(dict(BASE))
    assert other_names._known.cache_info().misses == collected
