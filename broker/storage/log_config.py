"""Settings of one log, under Kafka's topic-level names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from broker.errors import ConfigurationError

UNLIMITED = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1
CLEANUP_POLICIES = ("delete", "compact")
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Kafka's defaults. Sizes in bytes, times in milliseconds; a field's setting is its name with dots, but
    for the few in `SETTINGS`.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    """Taken, without effect: appending to a preallocated file would make its size no longer tell its end."""
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes_max: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def deletes(self) -> bool:
        """Whether segments go by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether records that a later one of the same key supersedes may go."""
        return "compact" in self.cleanup_policy

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def overridden(self, settings: Mapping[str, str]) -> LogConfig:
        """This configuration with some settings, given as Kafka writes them, replaced.

        Raises ConfigurationError that lists every unknown name and every invalid value.
        """
        values: dict[str, Any] = {}
        problems = []
        for name, text in settings.items():
            setting = SETTINGS.get(name)
            if setting is None:
                problems.append(f"{name}: unknown setting of a topic")
                continue
            try:
                values[setting.field] = setting.parse(text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        if problems:
            raise ConfigurationError(problems)
        return replace(self, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSetting:
    """One setting: the field it sets and how its text is read."""

    field: str
    parse: Callable[[str], Any]


def _integer(low: int, high: int = UNLIMITED) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is no whole number") from None
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not 0 <= value <= 1:
        raise ValueError(f"{value} is not between 0 and 1")
    return value


def _one_of(allowed: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return parse


def _policies(text: str) -> frozenset[str]:
    one = _one_of(CLEANUP_POLICIES)
    return frozenset(one(word.strip()) for word in text.split(","))


_PARSERS: dict[str, Callable[[str], Any]] = {
    "cleanup_policy": _policies,
    "compression_type": _one_of(COMPRESSION_TYPES),
    "delete_retention_ms": _integer(0),
    "file_delete_delay_ms": _integer(0),
    "flush_messages": _integer(1),
    "flush_ms": _integer(0),
    "index_interval_bytes": _integer(0, _INT32_MAX),
    "max_compaction_lag_ms": _integer(1),
    "max_message_bytes": _integer(0, _INT32_MAX),
    "message_timestamp_type": _one_of(TIMESTAMP_TYPES),
    "min_cleanable_dirty_ratio": _ratio,
    "min_compaction_lag_ms": _integer(0),
    "min_insync_replicas": _integer(1, _INT32_MAX),
    "preallocate": _boolean,
    "retention_bytes": _integer(-1),
    "retention_ms": _integer(-1),
    "segment_bytes": _integer(14, _INT32_MAX),
    "segment_index_bytes_max": _integer(4, _INT32_MAX),
    "segment_jitter_ms": _integer(0),
    "segment_ms": _integer(1),
    "unclean_leader_election_enable": _boolean,
}
_NAMES = {"segment_index_bytes_max": "segment.index.bytes"}

SETTINGS: Mapping[str, LogSetting] = {
    _NAMES.get(field.name, field.name.replace("_", ".")): LogSetting(
        field=field.name, parse=_PARSERS[field.name]
    )
    for field in fields(LogConfig)
}
"""Every topic-level setting by Kafka's name."""
