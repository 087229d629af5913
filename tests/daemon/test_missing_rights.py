"""What is said of a right that is missing."""

from __future__ import annotations

import pytest

from broker.client.operations import CREATE, DESCRIBE, READ, WRITE
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.missing_rights import UNAUTHORIZED_CODES, explained, missing_right, right_to_write
from mirrormaker.plan.world import ObservedTopic


@pytest.mark.parametrize(
    ("code", "operation", "said"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, READ, "Read topic 'x' at 'jfk'"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, DESCRIBE, "Describe group 'x' at 'jfk'"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE, "Write transactional id 'x' at 'jfk'"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CREATE, "Create cluster 'jfk'"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, WRITE, "IdempotentWrite cluster 'jfk'"),
    ],
)
def test_it_is_told_with_what_it_is_about_and_where(code: ErrorCode, operation: int, said: str) -> None:
    error = missing_right(code, "jfk", "x", operation)
    assert (error.code, str(error)) == (code, f"{code.name}: the mirror lacks the right to {said}")
    assert str(explained(ProtocolError(code), "jfk", "x", operation)) == str(error)


@pytest.mark.parametrize("code", sorted(frozenset(ErrorCode) - UNAUTHORIZED_CODES))
def test_what_is_about_no_right_is_said_as_it_was(code: ErrorCode) -> None:
    error = ProtocolError(code, "so it is")
    assert explained(error, "jfk", "x", READ) is error


@pytest.mark.parametrize(
    ("error", "operation"),
    [
        (None, WRITE),
        (ErrorCode.NONE, WRITE),
        (ErrorCode.LEADER_NOT_AVAILABLE, WRITE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, DESCRIBE),
    ],
)
def test_who_may_not_see_a_topic_lacks_that_right_first(error: ErrorCode | None, operation: int) -> None:
    known = None if error is None else ObservedTopic(name="x", error=error)
    assert right_to_write(known) == operation
