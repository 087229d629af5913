"""The topic-level settings: which node setting stands behind each, and its type and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.settings import SettingType


class TopicSetting(NamedTuple):
    """`node_setting` is the node's setting that holds where the topic says nothing; empty where there is
    none.
    """

    node_setting: str
    type: SettingType
    doc: str


_T = SettingType

TOPIC_SETTINGS: Mapping[str, TopicSetting] = {
    "cleanup.policy": TopicSetting("log.cleanup.policy", _T.LIST, "What happens to old segments."),
    "compression.type": TopicSetting("compression.type", _T.STRING, "Codec of stored batches."),
    "delete.retention.ms": TopicSetting(
        "log.cleaner.delete.retention.ms", _T.LONG, "How long tombstones stay."
    ),
    "file.delete.delay.ms": TopicSetting(
        "log.segment.delete.delay.ms", _T.LONG, "How long deleted files stay."
    ),
    "flush.messages": TopicSetting(
        "log.flush.interval.messages", _T.LONG, "Records after which a flush is due."
    ),
    "flush.ms": TopicSetting("log.flush.interval.ms", _T.LONG, "Age of records at which a flush is due."),
    "index.interval.bytes": TopicSetting(
        "log.index.interval.bytes", _T.INT, "Bytes between two index entries."
    ),
    "max.compaction.lag.ms": TopicSetting(
        "log.cleaner.max.compaction.lag.ms", _T.LONG, "Records older than this are compacted soon."
    ),
    "max.message.bytes": TopicSetting("message.max.bytes", _T.INT, "Size of one record batch."),
    "message.timestamp.type": TopicSetting(
        "log.message.timestamp.type", _T.STRING, "Whose clock stamps records."
    ),
    "min.cleanable.dirty.ratio": TopicSetting(
        "log.cleaner.min.cleanable.ratio", _T.DOUBLE, "Share of dirty log at which it is compacted."
    ),
    "min.compaction.lag.ms": TopicSetting(
        "log.cleaner.min.compaction.lag.ms", _T.LONG, "Records younger than this are not compacted."
    ),
    "min.insync.replicas": TopicSetting(
        "min.insync.replicas", _T.INT, "In-sync replicas that acks=all needs."
    ),
    "preallocate": TopicSetting("log.preallocate", _T.BOOLEAN, "Whether segments are allocated when made."),
    "retention.bytes": TopicSetting("log.retention.bytes", _T.LONG, "Size above which segments are deleted."),
    "retention.ms": TopicSetting("log.retention.ms", _T.LONG, "Age at which segments are deleted."),
    "segment.bytes": TopicSetting("log.segment.bytes", _T.INT, "Size at which a segment is rolled."),
    "segment.index.bytes": TopicSetting("log.index.size.max.bytes", _T.INT, "Size of one index file."),
    "segment.jitter.ms": TopicSetting("log.roll.jitter.ms", _T.LONG, "Random part taken off segment.ms."),
    "segment.ms": TopicSetting("log.roll.ms", _T.LONG, "Age at which a segment is rolled."),
    "unclean.leader.election.enable": TopicSetting(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "Whether a replica out of sync may lead as the last resort.",
    ),
}
