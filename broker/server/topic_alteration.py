"""Changing the settings of a topic: checked as a whole, written to ZooKeeper, in force when this node has
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.server.services import Services
from broker.settings import ResourceType


def require_topic(services: Services, resource_type: int, name: str) -> None:
    """Raise ProtocolError unless the resource is a topic that exists."""
    if resource_type != ResourceType.TOPIC:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, "only settings of topics can be altered while a node runs"
        )
    if services.view.image.topic(name) is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def alter(services: Services, topic: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
    """Give the topic exactly these settings.

    Raises ProtocolError INVALID_CONFIG listing what is wrong with them.
    """
    services.topics.require_valid(settings)
    if validate_only:
        return
    try:
        await services.alter_topic_settings(topic, settings)
    except CoordinationError as error:
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
