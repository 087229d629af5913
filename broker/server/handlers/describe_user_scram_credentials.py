"""DescribeUserScramCredentials: nobody has any, as no listener of a node asks for them.

Served because Kafka's `kafka-configs` asks for them beside the quotas of users, and shows neither where one
is missing.
"""

from __future__ import annotations

from collections import Counter

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """No results for all users; RESOURCE_NOT_FOUND for each that is named."""
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(user, count) for user, count in named.items()]
    )


def refuse(
    request: DescribeUserScramCredentialsRequest, error: ProtocolError, version: int
) -> DescribeUserScramCredentialsResponse:
    """No results, and why."""
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)


def _result(user: str, count: int) -> DescribeUserScramCredentialsResult:
    error, message = ErrorCode.RESOURCE_NOT_FOUND, f"{user} has no SCRAM credentials"
    if count > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"{user} is asked for twice"
    return DescribeUserScramCredentialsResult(user=user, error_code=error, error_message=message)
