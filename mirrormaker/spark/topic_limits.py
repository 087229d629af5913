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
_BYTES, _SEGMENT, _POLICY = "max.message.bytes", "segment.bytes", "cleanup.policy"


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
        told = await Admin(cluster).describe_topics_configs(topics, [_BYTES, _SEGMENT, _POLICY])
    except BrokerError:
        told = {}
    return {topic: _limits(topic, told.get(topic), max_request_bytes) for topic in topics}


def _limits(
    topic: str, told: dict[str, ConfigEntry] | ProtocolError | None, max_request_bytes: int
) -> TopicLimits:
    entries = told if isinstance(told, dict) else {}
    told_bytes = {name: _value(entries, name) for name in (_BYTES, _SEGMENT)}
    bounds = [(int(value), f"its {name}") for name, value in told_bytes.items() if value.isdecimal()]
    bounds.append((max_request_bytes, "the option kafka.max.request.size"))
    bytes_max, setting = min(bounds, key=lambda bound: bound[0])
    needs_keys = "compact" in _value(entries, _POLICY).split(",")
    return TopicLimits(topic=topic, bytes_max=bytes_max, setting=setting, needs_keys=needs_keys)


def _value(entries: dict[str, ConfigEntry], name: str) -> str:
    entry = entries.get(name)
    return "" if entry is None else entry.value or ""
