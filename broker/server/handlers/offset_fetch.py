"""OffsetFetch: what a group committed; several groups at once from version 8 on.

Version 0 finds it in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from broker.errors import ErrorCode, ProtocolError
from broker.groups.requests import OffsetAnswer, offset_queries, offset_response
from broker.server.access import group_named, is_allowed, require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Topic = TypeVar("Topic", OffsetFetchResponseTopic, OffsetFetchResponseTopics)

_GROUPS_FROM = 8


async def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Answered by whoever keeps them, for groups and topics that may be described."""
    if context.api_version < _GROUPS_FROM:
        require(services, context, Operation.DESCRIBE, group_named(request.group_id))
        kept_by = services.groups if context.api_version else services.zookeeper_offsets
        response = await kept_by.fetch_offsets(request, version=context.api_version)
        response.topics = _shown(services, context, response.topics, asked=request.topics)
        return response
    denied = [
        group.group_id
        for group in request.groups
        if not is_allowed(services, context, Operation.DESCRIBE, group_named(group.group_id))
    ]
    request.groups = [group for group in request.groups if group.group_id not in denied]
    response = await services.groups.fetch_offsets(request, version=context.api_version)
    for group, answer in zip(request.groups, response.groups, strict=True):
        answer.topics = _shown(services, context, answer.topics, asked=group.topics)
    response.groups += [
        OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for group_id in denied
    ]
    return response


def refuse(request: OffsetFetchRequest, error: ProtocolError, version: int) -> OffsetFetchResponse:
    """One error for everything that was asked for, wherever this version has room for it."""
    answers = [
        OffsetAnswer(query=query, error=error.code) for query in offset_queries(request, version=version)
    ]
    return offset_response(answers, version=version)


def _shown(
    services: Services, context: RequestContext, topics: list[Topic], *, asked: Sequence[object] | None
) -> list[Topic]:
    """Topics that may not be described are left out, or, where they were asked for by name, refused."""
    shown = []
    for topic in topics:
        if not is_allowed(services, context, Operation.DESCRIBE, topic_named(topic.name)):
            if asked is None:
                continue
            for partition in topic.partitions:
                partition.committed_offset, partition.committed_leader_epoch = -1, -1
                partition.metadata = ""
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        shown.append(topic)
    return shown
