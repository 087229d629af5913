"""What a leader asks of a produced batch beyond its CRC: rules on its header, and rules on its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import BatchHeader
from broker.records.reader import iterate_columns
from broker.records.record import NO_TIMESTAMP
from broker.types import NO_PRODUCER_ID, Buffer

_PROBLEMS_MAX = 100
_TIMESTAMP_MAX = (1 << 63) - 1


class RecordProblem(NamedTuple):
    """What is wrong with one record of a batch, by its index there."""

    batch_index: int
    message: str


class InvalidRecordsError(ProtocolError):
    """Records of a batch break a rule of their topic; `problems` names the first, as produce answers do."""

    def __init__(self, code: ErrorCode, problems: tuple[RecordProblem, ...]) -> None:
        super().__init__(code, problems[0].message)
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """Rules of a topic that need the records read. Timestamps in ms since the epoch, bounds inclusive."""

    size_max: int
    """Bound of the uncompressed records."""
    key_required: bool = False
    """Compacted topics take no records without a key."""
    timestamp_min_ms: int = -(1 << 63)
    timestamp_max_ms: int = _TIMESTAMP_MAX


def validate_header(header: BatchHeader) -> None:
    """Check what producers may send: a dense batch of at least one record, no control, whole producer fields.

    Raises ProtocolError INVALID_RECORD, or CorruptRecordsError for an unknown codec.
    """
    problem = None
    if header.is_control:
        problem = "producers write no control records"
    elif header.base_offset:
        problem = f"base offset {header.base_offset}; producers count from 0"
    elif header.record_count < 1:
        problem = "batch without records"
    elif header.record_count != header.last_offset_delta + 1:
        problem = f"{header.record_count} records cannot span {header.last_offset_delta + 1} offsets"
    elif header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = f"producer {header.producer_id} without epoch or sequence"
    elif header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        problem = "transactional batch without a producer id"
    if problem is not None:
        raise ProtocolError(ErrorCode.INVALID_RECORD, problem)
    _ = header.codec


def validate_records(batch: Buffer, header: BatchHeader, rules: RecordRules) -> None:
    """Check the records of the batch that starts `batch` in bounded memory.

    Raises CorruptRecordsError when they are not what the header says, InvalidRecordsError with INVALID_RECORD
    or INVALID_TIMESTAMP (the code of the first problem) when they break `rules`.
    """
    check = RecordCheck(rules)
    for columns in iterate_columns(batch, header, size_max=rules.size_max):
        check.look_at(columns.keys, columns.timestamps)
    check.end()


class RecordCheck:
    """Checks the records of one batch as they come."""

    def __init__(self, rules: RecordRules) -> None:
        self._rules = rules
        self._count = 0
        self._problems: list[tuple[ErrorCode, RecordProblem]] = []

    def look_at(self, keys: Sequence[bytes | None], timestamps: Sequence[int]) -> None:
        """The next records, field by field."""
        if self._breaks_rules(keys, timestamps):
            self._problems += islice(
                self._found(keys, timestamps), max(_PROBLEMS_MAX - len(self._problems), 0)
            )
        self._count += len(keys)

    def end(self) -> None:
        """Raises InvalidRecordsError when a record broke the rules."""
        if self._problems:
            code = self._problems[0][0]
            raise InvalidRecordsError(code, tuple(problem for _, problem in self._problems))

    def _breaks_rules(self, keys: Sequence[bytes | None], timestamps: Sequence[int]) -> bool:
        rules = self._rules
        return (rules.key_required and None in keys) or not (
            rules.timestamp_min_ms <= min(timestamps, default=rules.timestamp_min_ms)
            and max(timestamps, default=rules.timestamp_min_ms) <= rules.timestamp_max_ms
        )

    def _found(
        self, keys: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> Iterator[tuple[ErrorCode, RecordProblem]]:
        rules = self._rules
        low, high = rules.timestamp_min_ms, rules.timestamp_max_ms
        for index, (key, timestamp) in enumerate(zip(keys, timestamps, strict=True), self._count):
            if rules.key_required and key is None:
                problem = "a compacted topic takes no record without a key"
                yield ErrorCode.INVALID_RECORD, RecordProblem(index, problem)
            elif timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
                problem = f"timestamp {timestamp} is not in {low}..{high}"
                yield ErrorCode.INVALID_TIMESTAMP, RecordProblem(index, problem)
