"""What topics take of rows, by their settings, as far as a cluster tells these."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.config_admin import ConfigEntry
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.records.batch import HEADER_SIZE
from mirrormaker.spark.sink_rows import RowError

REFUSALS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Of rows, which would be refused whenever they came again."""
_BYTES, _POLICY = "max.message.bytes", "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """Of one topic."""

    topic: str
    bytes_max: int
    """Of a batch, as it is sent."""
    setting: str
    """That says so."""
    needs_keys: bool = False

    @property
    def records_bytes_max(self) -> int:
        """Of the records in a batch."""
        return max(self.bytes_max - HEADER_SIZE, 1)

    def check_size(self, size: int) -> None:
        """Raises RowError for the batch of a row that is too large."""
        if size > self.bytes_max:
            takes = f"{self.topic} takes no more than {self.bytes_max}, by {self.setting}"
            raise RowError(f"a row takes {size} bytes, and {takes}")

    def row_without_key(self) -> RowError:
        """Compaction could not tell what it is about."""
        return RowError(f"a row has no key, and {self.topic} needs one, by its {_POLICY} 'compact'")


async def find_limits(
    cluster: Cluster, topics: Collection[str], max_request_bytes: int
) -> dict[str, TopicLimits]:
    """Those of topics; where the cluster does not tell them, what a producer sends at all."""
    try:
        told = await Admin(cluster).describe_topics_configs(topics, [_BYTES, _POLICY])
    except BrokerError:
        told = {}
    return {topic: _limits(topic, told.get(topic), max_request_bytes) for topic in topics}


def _limits(
    topic: str, told: dict[str, ConfigEntry] | ProtocolError | None, max_request_bytes: int
) -> TopicLimits:
    entries = told if isinstance(told, dict) else {}
    bytes_max, policy = (_value(entries, name) for name in (_BYTES, _POLICY))
    needs_keys = "compact" in policy.split(",")
    if bytes_max.isdecimal() and int(bytes_max) <= max_request_bytes:
        setting = f"its {_BYTES}"
        return TopicLimits(topic=topic, bytes_max=int(bytes_max), setting=setting, needs_keys=needs_keys)
    setting = "the option kafka.max.request.size"
    return TopicLimits(topic=topic, bytes_max=max_request_bytes, setting=setting, needs_keys=needs_keys)


def _value(entries: dict[str, ConfigEntry], name: str) -> str:
    entry = entries.get(name)
    return "" if entry is None else entry.value or ""
