"""Settings of Java's clients that there is nothing of here: which are let pass, and which are refused, why.

Let pass is what tunes machinery of Java's that nobody can see in the rows: a job that has it moves from
`kafka` to `mirror` by one word. Refused is what would change them, or who may see them.
"""

from __future__ import annotations

from mirrormaker.spark.given_options import KAFKA


def _passed(*names: str) -> tuple[str, ...]:
    return tuple(f"{KAFKA}{name}" for name in names)


def _refused(reason: str, *names: str) -> dict[str, str]:
    return {f"{KAFKA}{name}": reason for name in names}


_PASSED = _passed(
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
READING_PASSED = (
    "kafkaConsumer.useConsumerCache",
    "useDeprecatedOffsetFetching",
    *_PASSED,
    *_passed(
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "default.api.timeout.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    ),
)
"""Of Java's consumer, its groups and its caches."""
WRITING_PASSED = (
    *_PASSED,
    *_passed(
        "linger.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
    ),
)
"""Of Java's producer: rows come in batches already."""

_CLASSES = "classes of Java have no place here"
_REFUSED = {
    **_refused(
        _CLASSES,
        "interceptor.classes",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "security.providers",
        "ssl.engine.factory.class",
    ),
    **_refused(
        "TLS is OpenSSL's, which has its own; ssl.enabled.protocols says which versions",
        "ssl.cipher.suites",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    **_refused(
        "there is no Kerberos here: mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    **_refused(
        "is for those that check tokens or sign them, which is none of a client here",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
}
READING_REFUSED = {
    **_REFUSED,
    "kafka.auto.offset.reset": "where to start is for startingOffsets to say",
    "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint, nothing is committed to a group",
    "kafka.exclude.internal.topics": "no pattern matches internal topics: name them in subscribe",
    "kafka.key.deserializer": "keys are columns of bytes; deserialize them with functions of Spark",
    "kafka.share.acknowledgement.mode": "there are no share groups here",
    "kafka.value.deserializer": "values are columns of bytes; deserialize them with functions of Spark",
}
WRITING_REFUSED = {
    **_REFUSED,
    "kafka.key.serializer": "keys are columns of bytes or text; serialize them with functions of Spark",
    "kafka.partitioner.class": "a column `partition` says where each row goes",
    "kafka.transaction.two.phase.commit.enable": "delivery=exactly_once has transactions of its own",
    "kafka.transactional.id": "delivery=exactly_once makes one for each task, see transactionalIdPrefix",
    "kafka.value.serializer": "values are columns of bytes or text; serialize them with functions of Spark",
}
