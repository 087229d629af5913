"""What a topic asks of produced records beyond their headers, and what it makes of them. Pure.

Batches stay closed unless their topic gives a reason to open them: keys that compaction needs, bounds on
timestamps, a codec of the topic's own; message sets of old producers are taken apart always. What is opened
is bounded, whatever the compressed bytes claim. Opening may take long: `admit` returns the work as an
`Opening`, which `opened_at_once` does where that is quick, and a thread otherwise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from broker.errors import ErrorCode, ExpansionError, ProtocolError
from broker.records.batch import (
    HEADER_SIZE,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Codec,
    iterate_batches,
    joint_attributes,
    verify_crc,
    write_header,
)
from broker.records.builder import recompress
from broker.records.legacy import to_batches
from broker.records.reader import iterate_entries
from broker.records.validation import RecordRules, validate_header, validate_records
from broker.storage.log_config import UNLIMITED, LogConfig
from broker.types import Buffer

EXPANSION_MAX = 64
"""How many times `max.message.bytes` a batch that is opened may unpack to."""
OLD_EXPANSION_MAX = 16
"""The same for message sets, whose records take more memory apart."""
UNCOMPRESSED_MAX = 128 << 20
"""Bound of both, for topics that take large batches; those bytes themselves are always taken."""
OPENED_AT_ONCE_MAX = 64 * 1024
"""Uncompressed bytes up to which opening is quick enough to keep others waiting."""

_BATCHES_FROM = 3
"""First version of produce requests whose records are batches of magic 2."""
_ZSTD_FROM = 7
_TIMESTAMP_MAX = (1 << 63) - 1


class Reason(Enum):
    """Why records are opened."""

    OLD_FORMAT = "old format"
    KEYS = "keys"
    TIMESTAMPS = "timestamps"
    CODEC = "codec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings of a log ask of records; sizes in bytes, times in milliseconds."""

    size_max: int
    key_required: bool
    before_max_ms: int
    after_max_ms: int
    codec: Codec | None
    """Codec of stored batches; None: the producer's."""
    level: int | None
    stamps_append_time: bool

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, config: LogConfig) -> Rules:
        """The same for all logs of the same settings, which are many."""
        stamps = config.stamps_append_time
        return cls(
            size_max=config.max_message_bytes,
            key_required=config.compacts,
            before_max_ms=UNLIMITED if stamps else config.timestamp_before_max_ms,
            after_max_ms=UNLIMITED if stamps else config.timestamp_after_max_ms,
            codec=config.codec,
            level=config.compression_level,
            stamps_append_time=stamps,
        )

    @property
    def bounds_timestamps(self) -> bool:
        return self.before_max_ms != UNLIMITED or self.after_max_ms != UNLIMITED

    @property
    def leaves_closed(self) -> bool:
        """Whether batches need not be looked into."""
        return self.codec is None and not self.key_required and not self.bounds_timestamps

    def bound(self, expansion_max: int, uncompressed_max: int | None) -> int:
        """How many bytes one batch may unpack to."""
        if uncompressed_max is not None:
            return uncompressed_max
        return max(self.size_max, min(expansion_max * self.size_max, UNCOMPRESSED_MAX))

    def on_records(self, now_ms: int, size_max: int) -> RecordRules:
        """As asked of the records of one batch, which are uncompressed to at most `size_max` bytes."""
        before_ms, after_ms = self.before_max_ms, self.after_max_ms
        return RecordRules(
            size_max=size_max,
            key_required=self.key_required,
            timestamp_min_ms=-_TIMESTAMP_MAX if before_ms == UNLIMITED else now_ms - before_ms,
            timestamp_max_ms=_TIMESTAMP_MAX if after_ms == UNLIMITED else now_ms + after_ms,
        )


class Opening:
    """Records that are still to be opened, on their own copy."""

    __slots__ = ("_now_ms", "_rules", "_version", "reasons", "records")

    def __init__(self, records: Buffer, rules: Rules, version: int, now_ms: int) -> None:
        self.records = records
        """As they came."""
        self._rules = rules
        self._version = version
        self._now_ms = now_ms
        self.reasons: Counter[Reason] = Counter()
        """How many batches or messages were opened, and why; filled in by `run`."""

    def run(self, *, uncompressed_max: int | None = None) -> bytearray:
        """The batches to append; blocks, any thread.

        Raises ExpansionError when they unpack to more than `uncompressed_max` bytes (None: than their topic
        takes), CorruptRecordsError, InvalidRecordsError, ProtocolError MESSAGE_TOO_LARGE.
        """
        self.reasons.clear()
        if _is_message_set(self.records, self._version):
            return self._converted(uncompressed_max)
        return self._opened(uncompressed_max)

    def _converted(self, uncompressed_max: int | None) -> bytearray:
        rules, records = self._rules, self.records
        for _, size in iterate_entries(records):
            _require_size(size, rules.size_max)
            self.reasons[Reason.OLD_FORMAT] += 1
        size_max = rules.bound(OLD_EXPANSION_MAX, uncompressed_max)
        return to_batches(
            records,
            size_max=size_max,
            codec=rules.codec,
            batch_size_max=rules.size_max,
            level=rules.level,
            rules=rules.on_records(self._now_ms, size_max),
        )

    def _opened(self, uncompressed_max: int | None) -> bytearray:
        rules = self._rules
        size_max = rules.bound(EXPANSION_MAX, uncompressed_max)
        admitted, end = bytearray(), 0
        for position, header in iterate_batches(self.records):
            end = position + header.size
            _require_size(header.size, rules.size_max)
            validate_header(header)
            verify_crc(self.records, position, header)
            admitted += self._opened_batch(memoryview(self.records)[position:end], header, size_max)
        return admitted + memoryview(self.records)[end:]  # a torn tail is the log's to refuse

    def _opened_batch(self, batch: memoryview, header: BatchHeader, size_max: int) -> Buffer:
        rules = self._rules
        if rules.key_required or rules.bounds_timestamps:
            self.reasons[Reason.KEYS if rules.key_required else Reason.TIMESTAMPS] += 1
            validate_records(batch, header, rules.on_records(self._now_ms, size_max))
        if header.is_log_append_time and not rules.stamps_append_time:
            batch, header = _with_create_time(batch, header)
        if rules.codec is None or header.codec is rules.codec:
            return batch
        self.reasons[Reason.CODEC] += 1
        stored = recompress(batch, header, rules.codec, size_max=size_max, level=rules.level)
        _require_size(len(stored), rules.size_max)
        return stored


def admit(
    records: Buffer | None, rules: Rules, *, version: int, now_ms: int
) -> bytearray | memoryview | Opening:
    """What a log may append, in a buffer that may be written to, or what is to be opened for that first.

    Raises ProtocolError for records of a format that the version does not take.
    """
    if records is None or len(records) <= MAGIC_POSITION:
        raise ProtocolError(ErrorCode.INVALID_RECORD, "no whole record batch")
    if version < _BATCHES_FROM and _is_message_set(records, version):
        return Opening(bytes(records), rules, version, now_ms)
    if len(records) < HEADER_SIZE:
        raise ProtocolError(ErrorCode.INVALID_RECORD, "no whole record batch")
    if records[MAGIC_POSITION] != 2:
        raise ProtocolError(
            ErrorCode.INVALID_RECORD,
            f"magic {records[MAGIC_POSITION]} in a produce request of version {version}",
        )
    attributes = joint_attributes(records)
    _require_taken(attributes, version)
    if not rules.leaves_closed or attributes & TIMESTAMP_TYPE_FLAG:
        return Opening(bytes(records), rules, version, now_ms)
    if isinstance(records, bytes):
        return bytearray(records)
    return records


def opened_at_once(opening: Opening) -> bytearray | None:
    """The batches to append where that is quick; None where it has to be done in a thread.

    Raises as `Opening.run`.
    """
    try:
        return opening.run(uncompressed_max=OPENED_AT_ONCE_MAX)
    except ExpansionError:
        return None


def _is_message_set(records: Buffer, version: int) -> bool:
    return version < _BATCHES_FROM and records[MAGIC_POSITION] != 2


def _require_taken(attributes: int, version: int) -> None:
    """Raise ProtocolError for batches of which any has a codec that the version does not know: its bit no
    other codec has.
    """
    if version < _ZSTD_FROM and attributes & Codec.ZSTD:
        raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7")


def _require_size(size: int, size_max: int) -> None:
    """As stored and as sent: what a topic does not take is not opened either."""
    if size > size_max:
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, the limit is {size_max}")


def _with_create_time(batch: memoryview, header: BatchHeader) -> tuple[memoryview, BatchHeader]:
    """Only a broker says that timestamps are those of the append: a producer's are its own."""
    own = bytearray(batch)
    header = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_FLAG)
    write_header(own, 0, header)
    return memoryview(own), header
