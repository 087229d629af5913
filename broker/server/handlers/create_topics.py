"""CreateTopics: each topic is created, or refused, by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, require, topic_named
from broker.server.handlers.describe_configs import topic_entries
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.server.topics import CreatedTopic, NewTopic
from broker.types import BrokerId
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_SETTINGS_FROM = 5
"""First version that tells the topic's settings (KIP-525)."""


async def handle(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Topics are created side by side; a name that is asked for twice is refused."""
    counts = Counter(topic.name for topic in request.topics)
    results = await asyncio.gather(
        *(
            _create(services, context, request, topic, asked=counts[topic.name])
            for topic in {topic.name: topic for topic in request.topics}.values()
        )
    )
    return CreateTopicsResponse(topics=list(results))


async def _create(
    services: Services,
    context: RequestContext,
    request: CreateTopicsRequest,
    topic: CreatableTopic,
    *,
    asked: int,
) -> CreatableTopicResult:
    try:
        if not is_allowed(services, context, Operation.CREATE, CLUSTER):
            require(services, context, Operation.CREATE, topic_named(topic.name))
        if asked > 1:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{topic.name} is asked for {asked} times")
        created = await services.topics.create(
            _new_topic(topic),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            on_planned=context.throttle.spend_mutations if context.throttle else None,
        )
    except ProtocolError as error:
        return CreatableTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message, configs=None
        )
    return _result(services, context, topic, created)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    missing = [setting.name for setting in topic.configs if setting.value is None]
    if missing:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{missing[0]} has no value")
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={
            assignment.partition_index: [BrokerId(broker) for broker in assignment.broker_ids]
            for assignment in topic.assignments
        }
        or None,
        settings={setting.name: setting.value or "" for setting in topic.configs},
    )


def _result(
    services: Services, context: RequestContext, topic: CreatableTopic, created: CreatedTopic
) -> CreatableTopicResult:
    """What was made; its settings and sizes only for those who may see them."""
    if not is_allowed(services, context, Operation.DESCRIBE_CONFIGS, topic_named(topic.name)):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=created.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    settings = list(_settings(services, topic)) if context.api_version >= _SETTINGS_FROM else None
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=settings,
    )


def _settings(services: Services, topic: CreatableTopic) -> Iterator[CreatableTopicConfigs]:
    overrides = {setting.name: setting.value or "" for setting in topic.configs}
    for entry in topic_entries(services, overrides):
        yield CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.config_source,
            is_sensitive=entry.is_sensitive,
        )
