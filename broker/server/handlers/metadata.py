"""Metadata: brokers, topics and leaders out of the cluster image; topics that are asked for by name may be
created.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from broker.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from broker.cluster.topics import validate_topic_name
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import allowed_operations, is_allowed, require, topic_named
from broker.server.internal_topics import INTERNAL_TOPICS
from broker.server.naming import Naming
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.types import NO_LEADER, NO_TOPIC_ID, TopicId
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_CREATION_ASKED_FROM = 4
"""Before, asking for a topic was asking for its creation."""
_LISTENERS_FROM = 6
"""First version whose clients know LISTENER_NOT_FOUND."""
_IDS_FROM = 12
"""Versions 10 and 11 have a field for ids, but their answers cannot leave out the name."""


def handle(
    services: Naming, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answer from the image, after the creation of missing topics where that is wanted.

    Raises ProtocolError INVALID_REQUEST for an id in a version that has no answer for it.
    """
    asks_all = request.topics is None or (context.api_version == 0 and not request.topics)
    asked = [] if request.topics is None or asks_all else request.topics
    if context.api_version < _IDS_FROM and any(map(_is_by_id, asked)):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"version {context.api_version} asks by name")
    may_create = services.topics.auto_create and (
        request.allow_auto_topic_creation or context.api_version < _CREATION_ASKED_FROM
    )
    missing = [
        topic.name
        for topic in asked
        if may_create
        and topic.name
        and not _is_by_id(topic)
        and is_allowed(services, context, Operation.DESCRIBE, topic_named(topic.name))
        and services.view.image.topic(topic.name) is None
    ]
    if missing:
        return _answer_after_creation(services, context, request, asked, missing)
    return _answer(services, context, request, None if asks_all else asked, {})


def refuse(request: MetadataRequest, error: ProtocolError, version: int) -> MetadataResponse:
    """Every topic answered with the same error."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ]
    )


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    """An id counts more than a name: Java's admin client sends an empty one along."""
    return topic.name is None or topic.topic_id != NO_TOPIC_ID


async def _answer_after_creation(
    services: Naming,
    context: RequestContext,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    missing: list[str],
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            validate_topic_name(name)
            if not is_allowed(services, context, Operation.CREATE, CLUSTER):
                require(services, context, Operation.CREATE, topic_named(name))
            await services.topics.ensure(name)
        except ProtocolError as error:
            timed_out = error.code is ErrorCode.REQUEST_TIMED_OUT
            errors[name] = ErrorCode.LEADER_NOT_AVAILABLE if timed_out else error.code
    return _answer(services, context, request, asked, errors)


def _answer(
    services: Naming,
    context: RequestContext,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    errors: dict[str, ErrorCode],
) -> MetadataResponse:
    image = services.view.image
    listener = context.session.listener.name

    def may_describe(topic: str) -> bool:
        return is_allowed(services, context, Operation.DESCRIBE, topic_named(topic))

    if asked is None:
        topics = [
            _topic(image, topic, listener) for topic in image.topics.values() if may_describe(topic.name)
        ]
    else:
        topics = [_asked(image, topic, listener, errors, may_describe) for topic in asked]
    response = MetadataResponse(
        brokers=brokers_on(image, listener),
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        topics=topics,
    )
    if context.api_version < _LISTENERS_FROM:
        _hide_listeners(response)
    _tell_operations(services, context, request, response)
    return response


def _hide_listeners(response: MetadataResponse) -> None:
    """Old clients would give up on a code that they do not know; this one they ask again for."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.LISTENER_NOT_FOUND:
                partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _tell_operations(
    services: Naming, context: RequestContext, request: MetadataRequest, response: MetadataResponse
) -> None:
    """What the requester may do, where it asks for that (KIP-430)."""
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = allowed_operations(
                    services, context, topic_named(topic.name)
                )
    if request.include_cluster_authorized_operations:
        may_describe = is_allowed(services, context, Operation.DESCRIBE, CLUSTER)
        response.cluster_authorized_operations = (
            allowed_operations(services, context, CLUSTER) if may_describe else 0
        )


def brokers_on(image: ClusterImage, listener: str) -> list[MetadataResponseBroker]:
    """The live brokers with their addresses on one listener."""
    return [
        MetadataResponseBroker(node_id=broker.id, host=address.host, port=address.port, rack=broker.rack)
        for broker in image.brokers.values()
        if (address := broker.address(listener)) is not None
    ]


def _asked(
    image: ClusterImage,
    asked: MetadataRequestTopic,
    listener: str,
    errors: dict[str, ErrorCode],
    may_describe: Callable[[str], bool],
) -> MetadataResponseTopic:
    by_id = _is_by_id(asked)
    topic = image.topic_of_id(TopicId(asked.topic_id)) if by_id else image.topic(asked.name or "")
    asked_name = None if by_id else asked.name
    name = asked_name if topic is None else topic.name
    if name is not None and not may_describe(name):
        # Neither the name behind an id is told, nor the id of a name, nor whether there is such a topic.
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=asked_name, topic_id=asked.topic_id
        )
    if topic is not None:
        return _topic(image, topic, listener)
    if name is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id or NO_TOPIC_ID
        )
    return MetadataResponseTopic(
        error_code=errors.get(name) or reason_for_absence(name),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def reason_for_absence(name: str) -> ErrorCode:
    """The error for a topic that there is not: whether there could be one of that name."""
    try:
        validate_topic_name(name)
    except ProtocolError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(image: ClusterImage, topic: TopicImage, listener: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            partition_on(image, number, partition, listener) for number, partition in topic.partitions.items()
        ],
    )


def partition_on(
    image: ClusterImage, number: int, partition: PartitionImage, listener: str
) -> MetadataResponsePartition:
    """A partition as those on one listener see it."""
    leader: BrokerInfo | None = image.brokers.get(partition.leader)
    error = ErrorCode.NONE
    if leader is None:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.address(listener) is None:
        error = ErrorCode.LISTENER_NOT_FOUND
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=partition.leader if error is ErrorCode.NONE else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[
            replica
            for replica in partition.replicas
            if replica in partition.offline or replica not in image.brokers
        ],
    )
