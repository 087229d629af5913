"""Settings of one log, under Kafka's topic-level names. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from broker.errors import ConfigurationError
from broker.records.batch import Codec
from broker.records.compression import LEVELS
from broker.settings import (
    LONG_MAX,
    Kind,
    SettingType,
    boolean,
    double,
    integer,
    long,
    name_set,
    parse_settings,
    string,
)
from broker.storage.throttled_replicas import NOTHING_THROTTLED, THROTTLED_REPLICAS, ThrottledReplicas

UNLIMITED = LONG_MAX
CLEANUP_POLICIES = ("delete", "compact")
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
LZ4_FAST_LEVEL = 9
"""The default, which means the fast compressor and not the ninth level of the slow one, as in Kafka."""


_FORMAT_VERSION = re.compile(r"(\d+)\.(\d+)(\.\d+)*(-IV\d+)?")
_FORMAT_2_FROM = (0, 11)


def _parse_format_version(text: str) -> str:
    """A release of Kafka whose records have format 2, the only one written (ops/adr/0006)."""
    match = _FORMAT_VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a release of Kafka like 3.0-IV1, not {text!r}")
    if (int(match[1]), int(match[2])) < _FORMAT_2_FROM:
        raise ValueError(
            f"{text} is older than 0.11: logs hold newer records, which are converted for older clients"
        )
    return text.strip()


FORMAT_VERSION = Kind(type=SettingType.STRING, parse=_parse_format_version)


def _level(codec: Codec, *others: int) -> Kind[int]:
    """A level of the codec, or one of `others`."""
    levels = LEVELS[codec]
    low, high = levels[0], levels[-1]

    def parse(text: str) -> int:
        value = whole_number.parse(text)
        if value not in levels and value not in others:
            raise ValueError(f"expected a level from {low} to {high}, not {value}")
        return value

    whole_number = integer()
    return Kind(type=SettingType.INT, parse=parse)


GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL = _level(Codec.GZIP, -1), _level(Codec.LZ4), _level(Codec.ZSTD)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Kafka's defaults. Sizes in bytes, times in milliseconds; a field's setting is its name with dots, but
    for the few in `SETTINGS`.
    """

    archive_enable: bool = False
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = LZ4_FAST_LEVEL
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    follower_replication_throttled_replicas: ThrottledReplicas = NOTHING_THROTTLED
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: ThrottledReplicas = NOTHING_THROTTLED
    max_compaction_lag_ms: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_format_version: str = "3.0-IV1"
    message_timestamp_after_max_ms: int = UNLIMITED
    message_timestamp_before_max_ms: int = UNLIMITED
    message_timestamp_difference_max_ms: int = UNLIMITED
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
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
    def roll_ms(self) -> int:
        """Age at which a segment is rolled: sooner where records must be compacted in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def codec(self) -> Codec | None:
        """The codec that batches are stored with; None: the producer's."""
        match self.compression_type:
            case "producer":
                return None
            case "uncompressed":
                return Codec.NONE
            case name:
                return Codec[name.upper()]

    @property
    def compression_level(self) -> int | None:
        """The level of `codec`; None: the codec's own default, or it has none."""
        match self.codec:
            case Codec.GZIP:
                return self.compression_gzip_level if self.compression_gzip_level > 0 else None
            case Codec.LZ4:
                return self.compression_lz4_level if self.compression_lz4_level != LZ4_FAST_LEVEL else None
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    @property
    def timestamp_before_max_ms(self) -> int:
        """How old a record may be when it is appended."""
        return _given_or(self.message_timestamp_before_max_ms, self.message_timestamp_difference_max_ms)

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far ahead of the clock a record may be when it is appended."""
        return _given_or(self.message_timestamp_after_max_ms, self.message_timestamp_difference_max_ms)

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def overridden(self, settings: Mapping[str, str]) -> LogConfig:
        """This configuration with some settings, given as Kafka writes them, replaced.

        Raises ConfigurationError that lists every unknown name and every invalid value.
        """
        kinds = {name: (setting.field, setting.kind) for name, setting in SETTINGS.items()}
        values, problems = parse_settings(settings, kinds, unknown="unknown setting of a topic")
        config = replace(self, **values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            problems.append(
                f"min.compaction.lag.ms: {config.min_compaction_lag_ms} is more than "
                f"max.compaction.lag.ms, {config.max_compaction_lag_ms}"
            )
        if problems:
            raise ConfigurationError(problems)
        return config


def _given_or(bound_ms: int, general_bound_ms: int) -> int:
    return bound_ms if bound_ms != UNLIMITED else general_bound_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSetting:
    """One setting: the field it sets and the kind of its value."""

    field: str
    kind: Kind[Any]


_KINDS: Mapping[str, Kind[Any]] = {
    "archive_enable": boolean(),
    "cleanup_policy": name_set(CLEANUP_POLICIES),
    "compression_gzip_level": GZIP_LEVEL,
    "compression_lz4_level": LZ4_LEVEL,
    "compression_zstd_level": ZSTD_LEVEL,
    "compression_type": string(COMPRESSION_TYPES),
    "delete_retention_ms": long(0),
    "file_delete_delay_ms": long(0),
    "flush_messages": long(1),
    "flush_ms": long(0),
    "follower_replication_throttled_replicas": THROTTLED_REPLICAS,
    "index_interval_bytes": integer(0),
    "leader_replication_throttled_replicas": THROTTLED_REPLICAS,
    "max_compaction_lag_ms": long(1),
    "max_message_bytes": integer(0),
    "message_downconversion_enable": boolean(),
    "message_format_version": FORMAT_VERSION,
    "message_timestamp_after_max_ms": long(0),
    "message_timestamp_before_max_ms": long(0),
    "message_timestamp_difference_max_ms": long(0),
    "message_timestamp_type": string(TIMESTAMP_TYPES),
    "min_cleanable_dirty_ratio": double(0, 1),
    "min_compaction_lag_ms": long(0),
    "min_insync_replicas": integer(1),
    "retention_bytes": long(-1),
    "retention_ms": long(-1),
    "segment_bytes": integer(14),
    "segment_index_bytes_max": integer(4),
    "segment_jitter_ms": long(0),
    "segment_ms": long(1),
    "unclean_leader_election_enable": boolean(),
}
_NAMES = {"segment_index_bytes_max": "segment.index.bytes"}

SETTINGS: Mapping[str, LogSetting] = {
    _NAMES.get(field.name, field.name.replace("_", ".")): LogSetting(
        field=field.name, kind=_KINDS[field.name]
    )
    for field in fields(LogConfig)
}
"""Every topic-level setting by Kafka's name."""
