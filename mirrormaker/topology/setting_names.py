"""Names of settings of topics, and what a file carries over or asks for under names that nobody has. Pure.

A cluster may have settings that are not known here: such a name is worth a warning and no refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from mirrormaker.topology.document import suggestion
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import ClusterName, Topology
from mirrormaker.topology.naming import pattern_problem

TOPIC_SETTING_NAMES = frozenset(
    {
        "archive.enable",
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Those of Apache Kafka's topics, of any version, and of our nodes'."""


def unknown_settings(
    topology: Topology, names_at: Callable[[ClusterName], Collection[str]] = lambda _: ()
) -> Iterator[Finding]:
    """What routes are to carry over and no topic has, and what topics of clusters are to have. `names_at`:
    settings that topics of a cluster were seen with.
    """
    for cluster in topology.clusters.values():
        known = TOPIC_SETTING_NAMES.union(names_at(cluster.name))
        for topic, spec in cluster.topics.items():
            for name in (name for name in spec.config if name not in known):
                message = f"{name!r} is no setting of a topic that is known"
                path = f"clusters.{cluster.name}.topics.{topic}.config.{name}"
                yield Finding(path=path, message=message + suggestion(name, known))
    for index, route in enumerate(topology.routes):
        known = TOPIC_SETTING_NAMES.union(names_at(route.source))
        for place, pattern in enumerate(route.sync.config):
            if pattern_problem(pattern) is None and not any(map(re.compile(pattern).fullmatch, known)):
                message = f"{pattern!r} is no setting of a topic that is known, and carries nothing over"
                path = f"routes[{index}].sync.config[{place}]"
                yield Finding(path=path, message=message + suggestion(pattern, known))
