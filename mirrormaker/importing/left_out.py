"""Settings of MirrorMaker 2 that a topology has no place for, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.security.given_options import OPTION_NAMES
from broker.settings import suggestion

CARRIED = (
    "clusters",
    "bootstrap.servers",
    "enabled",
    "name",
    "connector.class",
    "source.cluster.alias",
    "target.cluster.alias",
    "topics",
    "topics.exclude",
    "topics.blacklist",
    "groups",
    "groups.exclude",
    "groups.blacklist",
    "config.properties.exclude",
    "config.properties.blacklist",
    "replication.policy.class",
    "replication.policy.separator",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
    "sync.group.offsets.enabled",
    "sync.group.offsets.interval.seconds",
    "refresh.topics.interval.seconds",
    "emit.heartbeats.enabled",
    "tasks.max",
    "exactly.once.support",
    "consumer.auto.offset.reset",
    "consumer.isolation.level",
    "producer.compression.type",
    *OPTION_NAMES,
)
"""Those that the routes and clusters of a topology are made of."""
_OF_WORKERS = "is of Kafka Connect's workers, and there are none"
_BY_THE_LEDGER = "the ledger in __mirrormaker_ledger says what offsets are at the destination"
_NO_CHECKPOINTS = "there is no topic of checkpoints: `sync.groups` writes positions where groups keep them"
_OF_FETCHES = "fetches are sized by round trip and speed: `resources` bounds them"
_OF_BATCHES = (
    "batches cross as they came, and all in-sync replicas acknowledge them: see `batch`, `resources`"
)
_JAVA = "is a class of Java, which is not called here"
REASONS: Mapping[str, str] = {
    "replication.factor": "topics are made with the replicas of the source's, as far as there are nodes; "
    "`topics` of a cluster says otherwise",
    "offset-syncs.": _BY_THE_LEDGER,
    "emit.offset-syncs.": _BY_THE_LEDGER,
    "offset.lag.max": _BY_THE_LEDGER,
    "checkpoints.topic.": _NO_CHECKPOINTS,
    "emit.checkpoints.": _NO_CHECKPOINTS,
    "heartbeats.topic.": "heartbeats are in __mirrormaker_heartbeats, which a route makes as it needs it",
    "emit.heartbeats.interval.seconds": "a heartbeat is written every second",
    "heartbeats.replication.enabled": "heartbeats are carried where they are written: see `heartbeats`",
    "sync.topic.configs.interval.seconds": "settings are compared every seventh `refresh_interval_ms`",
    "sync.topic.acls.interval.seconds": "access rules are compared every seventh `refresh_interval_ms`",
    "refresh.topics.enabled": "topics are always looked for, every `refresh_interval_ms`",
    "refresh.groups.": "groups are looked for every `interval_ms` of `sync.groups`",
    "use.incremental.alter.configs": "is decided by what the cluster understands",
    "use.defaults.from": "settings are carried where a topic has them of its own",
    "replication.policy.internal.topic.separator.enabled": "MirrorMaker 2's own topics are not used",
    "add.source.alias.to.metrics": "metrics have the names of routes",
    "metric.reporters": "metrics are served by `--http`",
    "metrics.": "metrics are served by `--http`",
    "admin.timeout.ms": "requests to clusters have timeouts of their own",
    "consumer.poll.timeout.ms": _OF_FETCHES,
    "forwarding.admin.class": _JAVA,
    "topic.filter.class": f"{_JAVA}: topics are taken by `topics` and `topics.exclude` alone",
    "group.filter.class": f"{_JAVA}: groups are taken by `groups` and `groups.exclude` alone",
    "config.property.filter.class": f"{_JAVA}: settings are carried as `config.properties.exclude` says",
    "transforms": f"{_JAVA}: `filters` and `transforms` of a route say what becomes of records",
    "predicates": f"{_JAVA}: `filters` and `transforms` of a route say what becomes of records",
    "key.converter": "records cross as they are, without a converter",
    "value.converter": "records cross as they are, without a converter",
    "header.converter": "records cross as they are, without a converter",
    "errors.": "`on` of a route says what is done about records that cannot cross",
    "exactly.once.": _OF_WORKERS,
    "transaction.boundary": "transactions last for `commit_interval_ms`",
    "config.providers": "variables are not filled in",
    "consumer.": _OF_FETCHES,
    "producer.": _OF_BATCHES,
    "admin.": "requests to clusters have no such setting",
    "source.admin.": "requests to clusters have no such setting",
    "target.admin.": "requests to clusters have no such setting",
    "source.producer.": "nothing of MirrorMaker 2's is written at the source",
    "target.consumer.": "nothing of MirrorMaker 2's is read at the target",
    "ssl.": "TLS has no such option here",
    "sasl.": "SASL has no such option here",
    "security.": "connections have no such option here",
    "dedicated.mode.": _OF_WORKERS,
    "config.storage.": _OF_WORKERS,
    "offset.storage.": _OF_WORKERS,
    "status.storage.": _OF_WORKERS,
    "config.action.": _OF_WORKERS,
    "config.reload.": _OF_WORKERS,
    "offset.flush.": "positions are committed every `commit_interval_ms`",
    "task.": _OF_WORKERS,
    "tasks.": _OF_WORKERS,
    "worker.": _OF_WORKERS,
    "rest.": _OF_WORKERS,
    "listeners": _OF_WORKERS,
    "plugin.": _OF_WORKERS,
    "group.id": _OF_WORKERS,
    "connect.protocol": _OF_WORKERS,
    "scheduled.rebalance.": _OF_WORKERS,
    "topic.creation.": _OF_WORKERS,
    "inter.worker.": _OF_WORKERS,
}
"""By the name of a setting, or how it begins, and then the longest counts."""
_BY_LENGTH = sorted(REASONS, key=len, reverse=True)


def is_known(name: str) -> bool:
    """Whether MirrorMaker 2 has such a setting, as far as is known here."""
    return name in CARRIED or any(map(name.startswith, REASONS))


def why_left_out(name: str) -> str:
    """Why nothing became of a setting."""
    if name in CARRIED:
        return "left out: nothing here has a use for it"
    beginning = next(filter(name.startswith, _BY_LENGTH), None)
    if beginning is not None:
        return f"left out: {REASONS[beginning]}"
    return f"left out: no setting of MirrorMaker 2 that is known{suggestion(name, (*CARRIED, *REASONS))}"
