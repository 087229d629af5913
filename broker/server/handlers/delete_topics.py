"""DeleteTopics: by name, and from version 6 on by id too."""

from __future__ import annotations

import asyncio

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import TopicId
from broker.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_STATES_FROM = 6


async def handle(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Each topic is deleted, or refused, by itself."""
    asked = (
        request.topics
        if context.api_version >= _STATES_FROM
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    results = await asyncio.gather(
        *(_delete(services, context, topic, request.timeout_ms) for topic in asked)
    )
    return DeleteTopicsResponse(responses=list(results))


async def _delete(
    services: Services, context: RequestContext, asked: DeleteTopicState, timeout_ms: int
) -> DeletableTopicResult:
    image = services.view.image
    topic = image.topic_of_id(TopicId(asked.topic_id)) if asked.name is None else image.topic(asked.name)
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if asked.name is not None:
            require(services, context, Operation.DELETE, topic_named(asked.name))
        if topic is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_ID if asked.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if is_allowed(services, context, Operation.DESCRIBE, topic_named(topic.name)):
            result.name, result.topic_id = topic.name, topic.topic_id
        require(services, context, Operation.DELETE, topic_named(topic.name))
        if context.throttle is not None:
            context.throttle.spend_mutations(len(topic.partitions))
        await services.topics.delete(topic.name, timeout_ms=timeout_ms)
    except ProtocolError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
