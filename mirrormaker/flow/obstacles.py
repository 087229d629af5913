"""What a batch or record can run into on its way through the mirror, and what is done about it. Pure.

Either the partition stops in front of it, which is a trouble like others from there on (see `arbiter`), or it
is left out and noted. A note is a record of the topic
`SKIPPED_TOPIC` at the destination, a dead letter one of the topic for those; both travel in lanes of their
own (see `ways`), so that a position never passes what is not noted yet.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field

from broker.client.dead_letter_headers import (
    ERROR_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    ROUTE_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from broker.records.record import Record
from broker.types import TopicPartition
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.topology.model import FailurePolicies, FailurePolicy, RecordErrorPolicy

SKIPPED_TOPIC = "__mirrormaker_skipped"
TEXT_MAX = 1_000
"""Characters of a problem that are told."""
NOTED_BYTES_MAX = 1 << 10
"""Keys and values up to this stand in a note, larger ones are only at their place."""
_NOWHERE = TopicPartition("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A partition cannot go on at `offset` of its source."""

    kind: TroubleKind
    """One of `OBSTACLES`."""
    offset: int
    next_offset: int
    """Behind what cannot cross."""
    problem: str


class ObstacleMetError(Exception):
    """Ends the intake of a partition."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.problem)
        self.obstacle = obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Where things of one partition go that cannot cross."""

    route: str = ""
    source: TopicPartition = _NOWHERE
    policies: FailurePolicies = field(default_factory=FailurePolicies)
    skipped_lane: int | None = None
    parked_lane: int | None = None

    def oversize(self, record: Record, problem: str) -> tuple[int, Record]:
        """The lane and the note for a record that is too large. Raises ObstacleMetError by the policy."""
        self._stop(TroubleKind.OVERSIZE, self.policies.oversize, record.offset, record.offset, problem)
        return self._noted(TroubleKind.OVERSIZE, record, problem)

    def oversize_batch(self, first: int, last: int, timestamp: int, problem: str) -> tuple[int, Record]:
        """The same for a batch, source offsets `first` to `last`, that is not to be decoded."""
        self._stop(TroubleKind.OVERSIZE, self.policies.oversize, first, last, problem)
        place = Record(first, timestamp, 0, None, None, ())
        return self._noted(TroubleKind.OVERSIZE, place, problem, last_offset=last)

    def not_shallow(self, first: int, last: int, timestamp: int, problem: str) -> tuple[int, Record]:
        """The lane and the note for a batch, source offsets `first` to `last`, that would have to be decoded.

        Raises ObstacleMetError by the policy.
        """
        self._stop(TroubleKind.NOT_SHALLOW, self.policies.not_shallow, first, last, problem)
        place = Record(first, timestamp, 0, None, None, ())
        return self._noted(TroubleKind.NOT_SHALLOW, place, problem, last_offset=last)

    def record_error(self, record: Record, problem: str) -> tuple[int, Record]:
        """The lane and the record, a note or a dead letter, for one that a step cannot process.

        Raises ObstacleMetError by the policy.
        """
        match self.policies.record_error:
            case RecordErrorPolicy.PARK:
                assert self.parked_lane is not None
                return self.parked_lane, self._dead_letter(record, problem)
            case RecordErrorPolicy.SKIP_AND_RECORD:
                return self._noted(TroubleKind.RECORD_ERROR, record, problem)
            case RecordErrorPolicy.FAIL:
                raise _met(TroubleKind.RECORD_ERROR, record.offset, record.offset, problem)

    @staticmethod
    def _stop(kind: TroubleKind, policy: FailurePolicy, first: int, last: int, problem: str) -> None:
        if policy is not FailurePolicy.SKIP_AND_RECORD:
            raise _met(kind, first, last, problem)

    def _noted(self, kind: TroubleKind, record: Record, problem: str, **more: object) -> tuple[int, Record]:
        assert self.skipped_lane is not None
        place = {
            "route": self.route,
            "topic": self.source.topic,
            "partition": self.source.partition,
            "offset": record.offset,
        }
        said = {
            "reason": kind.value,
            "problem": problem[:TEXT_MAX],
            "timestamp_ms": record.timestamp,
            "key_bytes": _size(record.key),
            "value_bytes": _size(record.value),
            "key": _text(record.key),
            "value": _text(record.value),
            **more,
        }
        key, value = encode_document(place), json.dumps(said).encode()
        return self.skipped_lane, Record(record.offset, record.timestamp, 0, key, value, ())

    def _dead_letter(self, record: Record, problem: str) -> Record:
        told: dict[str, object] = {
            ROUTE_HEADER: self.route,
            TOPIC_HEADER: self.source.topic,
            PARTITION_HEADER: self.source.partition,
            OFFSET_HEADER: record.offset,
            TIMESTAMP_HEADER: record.timestamp,
            ERROR_HEADER: problem[:TEXT_MAX],
        }
        headers = [(name, str(value).encode(errors="replace")) for name, value in told.items()]
        return record._replace(headers=(*record.headers, *headers))


def _met(kind: TroubleKind, first: int, last: int, problem: str) -> ObstacleMetError:
    return ObstacleMetError(Obstacle(kind=kind, offset=first, next_offset=last + 1, problem=problem))


def _size(field: bytes | None) -> int | None:
    return None if field is None else len(field)


def _text(field: bytes | None) -> str | None:
    """In base64; None where there is nothing, or too much."""
    return None if field is None or len(field) > NOTED_BYTES_MAX else b64encode(field).decode()
