"""What is said of a right that is missing: which one, to what, at which cluster. Pure.

Clusters answer with a code alone; what was asked for, and so which right that takes, knows whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker.client.operations import DESCRIBE, IDEMPOTENT_WRITE, OPERATION_NAMES, WRITE
from broker.errors import ErrorCode, ProtocolError

_KINDS: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
UNAUTHORIZED_CODES = frozenset(_KINDS)


class TellsOfTopic(Protocol):
    """Of a topic, whether it may be seen."""

    @property
    def error(self) -> ErrorCode: ...


def missing_right(code: ErrorCode, cluster: str, name: str, operation: int) -> ProtocolError:
    """The error that says so. `name`: of the topic, group or transactional id; a code that is about the
    cluster as a whole says nothing of it.
    """
    kind = _KINDS[code]
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        operation = IDEMPOTENT_WRITE if operation == WRITE else operation
        where = f"{kind} {cluster!r}"
    else:
        where = f"{kind} {name!r} at {cluster!r}"
    return ProtocolError(code, f"the mirror lacks the right to {OPERATION_NAMES[operation]} {where}")


def right_to_write(known: TellsOfTopic | None) -> int:
    """What whoever may not write a topic lacks: that, or the right to see it. `known`: what was told of
    the topic last.
    """
    return WRITE if known is None or known.error not in UNAUTHORIZED_CODES else DESCRIBE


def explained(error: ProtocolError, cluster: str, name: str, operation: int) -> ProtocolError:
    """The error itself, unless it is that a right is missing: then one that says which."""
    if error.code not in UNAUTHORIZED_CODES:
        return error
    return missing_right(error.code, cluster, name, operation)
