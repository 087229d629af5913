"""The topic-level settings: which node settings stand behind each, and its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TopicSetting(NamedTuple):
    """`node_setting` is the node's setting that holds where the topic says nothing, None where none does."""

    node_setting: str | None
    doc: str

    @property
    def node_settings(self) -> tuple[str, ...]:
        """With the coarser ones that hold where `node_setting` is not given, by falling precedence."""
        if self.node_setting is None:
            return ()
        return (self.node_setting, *_COARSER.get(self.node_setting, ()))


_COARSER = {
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.roll.ms": ("log.roll.hours",),
}

TOPIC_SETTINGS: Mapping[str, TopicSetting] = {
    "archive.enable": TopicSetting(
        "log.archive.enable",
        "Whether segments are archived before retention deletes them.",
    ),
    "cleanup.policy": TopicSetting(
        "log.cleanup.policy",
        "delete: old segments go. compact: of each key the newest record stays.",
    ),
    "compression.gzip.level": TopicSetting(
        "compression.gzip.level", "Level where compression.type is gzip; -1: the codec's default."
    ),
    "compression.lz4.level": TopicSetting(
        "compression.lz4.level", "Level where compression.type is lz4; 9: the fast compressor."
    ),
    "compression.zstd.level": TopicSetting("compression.zstd.level", "Level where compression.type is zstd."),
    "compression.type": TopicSetting("compression.type", "Codec of stored batches."),
    "delete.retention.ms": TopicSetting(
        "log.cleaner.delete.retention.ms", "How long tombstones stay once they were compacted."
    ),
    "file.delete.delay.ms": TopicSetting(
        "log.segment.delete.delay.ms", "How long deleted files stay before their space is freed."
    ),
    "flush.messages": TopicSetting("log.flush.interval.messages", "Records after which a flush is due."),
    "flush.ms": TopicSetting("log.flush.interval.ms", "Age of records at which a flush is due."),
    "follower.replication.throttled.replicas": TopicSetting(
        None,
        "Replicas that are fetched under follower.replication.throttled.rate: PARTITION:BROKER, ... or *.",
    ),
    "index.interval.bytes": TopicSetting("log.index.interval.bytes", "Bytes between two index entries."),
    "leader.replication.throttled.replicas": TopicSetting(
        None,
        "Replicas that are copied from under leader.replication.throttled.rate: PARTITION:BROKER, ... or *.",
    ),
    "max.compaction.lag.ms": TopicSetting(
        "log.cleaner.max.compaction.lag.ms", "Age at which records are compacted however few they are."
    ),
    "max.message.bytes": TopicSetting("message.max.bytes", "Size of one record batch."),
    "message.downconversion.enable": TopicSetting(
        "log.message.downconversion.enable", "Whether old clients get converted records."
    ),
    "message.format.version": TopicSetting(
        "log.message.format.version",
        "From 0.11 on, as logs hold the newest format alone; older clients get records converted.",
    ),
    "message.timestamp.after.max.ms": TopicSetting(
        "log.message.timestamp.after.max.ms",
        "How far ahead of this node's clock a record may be; opens every batch.",
    ),
    "message.timestamp.before.max.ms": TopicSetting(
        "log.message.timestamp.before.max.ms", "How old a new record may be; opens every batch."
    ),
    "message.timestamp.difference.max.ms": TopicSetting(
        "log.message.timestamp.difference.max.ms", "Both bounds, where they are not given."
    ),
    "message.timestamp.type": TopicSetting("log.message.timestamp.type", "Whose clock stamps records."),
    "min.cleanable.dirty.ratio": TopicSetting(
        "log.cleaner.min.cleanable.ratio", "Part of a log that must be dirty for it to be compacted."
    ),
    "min.compaction.lag.ms": TopicSetting(
        "log.cleaner.min.compaction.lag.ms", "Records younger than this are not compacted."
    ),
    "min.insync.replicas": TopicSetting("min.insync.replicas", "In-sync replicas that acks=all needs."),
    "retention.bytes": TopicSetting("log.retention.bytes", "Size above which segments are deleted."),
    "retention.ms": TopicSetting("log.retention.ms", "Age at which segments are deleted."),
    "segment.bytes": TopicSetting("log.segment.bytes", "Size at which a segment is rolled."),
    "segment.index.bytes": TopicSetting("log.index.size.max.bytes", "Size of one index file."),
    "segment.jitter.ms": TopicSetting("log.roll.jitter.ms", "Random part taken off segment.ms."),
    "segment.ms": TopicSetting("log.roll.ms", "Age at which a segment is rolled."),
    "unclean.leader.election.enable": TopicSetting(
        "unclean.leader.election.enable",
        "Whether a replica out of sync may lead as the last resort.",
    ),
}
