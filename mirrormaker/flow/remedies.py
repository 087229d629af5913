"""What is done about an error of the destination. Pure.

A table of codes; whoever wants another answer for some of them hands the machine its own `Remedies` (see
`hooks`), `setbacks` carries them out.
"""

from __future__ import annotations

from enum import Enum

from broker.errors import ErrorCode
from mirrormaker.flow.trouble import FULL_CODES


class Remedy(Enum):
    """What is done about the error of the first chunk that is not acknowledged."""

    REPEAT = "repeat"
    """The same bytes with the same sequences."""
    NEW_PRODUCER = "new_producer"
    """The same records under a new producer id: the destination has lost track of the old one."""
    FETCH_AGAIN = "fetch_again"
    """The bytes were damaged on the way."""
    ONE_BY_ONE = "one_by_one"
    """The same records, one batch a request: one of them may be what it does not take."""
    SKIP = "skip"
    """What may have been written is not sent again."""
    PAUSE = "pause"
    """Repeating would not help."""


_NEW_PRODUCER_CODES = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
FAILURES_BEFORE_FULL = 5
"""A disk that refused so often in a row is taken for full."""
TOO_LARGE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A batch is larger than its topic takes."""
_TOO_MUCH_AT_ONCE_CODES = TOO_LARGE_CODES | {ErrorCode.INVALID_RECORD}
LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""After these the leader may be elsewhere."""
UNKNOWN_OUTCOME_CODES = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""After these the records may have been written: what waits for replicas is answered that its leader leads no
more, and the next one may have it.
"""


def is_success(code: ErrorCode, *, is_repeat: bool) -> bool:
    """Whether the destination has the records. That it had their sequence numbers before says so only of what
    was sent before: else it has other records under them.
    """
    return code is ErrorCode.NONE or (is_repeat and code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def remedy_for(code: ErrorCode, *, several_batches: bool, failures: int = 1) -> Remedy:
    """What is to be done about a refused chunk; `several_batches`: it is made of more than one. `failures` in
    a row, this one included.
    """
    if code in _NEW_PRODUCER_CODES:
        return Remedy.NEW_PRODUCER
    if code is ErrorCode.CORRUPT_MESSAGE:
        return Remedy.FETCH_AGAIN
    if several_batches and code in _TOO_MUCH_AT_ONCE_CODES:
        return Remedy.ONE_BY_ONE
    if code in FULL_CODES and failures >= FAILURES_BEFORE_FULL:
        return Remedy.PAUSE
    if code.retriable or code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE):
        return Remedy.REPEAT
    return Remedy.PAUSE
