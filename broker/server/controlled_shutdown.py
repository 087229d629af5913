"""The farewell of a node that stops: what it leads is led elsewhere before it goes.

The controller is asked to move the leaderships, again while others could still take some, so that clients
never find a partition without a leader. The node serves meanwhile: who asks it for a partition that moved is
told so, and goes on elsewhere.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from broker.cluster.image import BrokerInfo, ClusterImage
from broker.errors import (
    ConnectionFailedError,
    CoordinationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.server.node_link import NodeLink
from broker.server.services import Services
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest

log = logger("controlled_shutdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSettings:
    """Each field names its setting."""

    enable: bool = True
    """`controlled.shutdown.enable`."""
    retries_max: int = 3
    """`controlled.shutdown.max.retries`."""
    retry_backoff_ms: int = 5_000
    """`controlled.shutdown.retry.backoff.ms`."""


async def hand_over(services: Services, link: NodeLink, settings: ShutdownSettings) -> None:
    """Return when others lead what this node led, as far as there are others. Raises nothing: a node that
    cannot do better stops as it is.
    """
    if not settings.enable:
        return
    own, view, clock = services.broker_id, services.view, services.clock
    end_ms = clock.monotonic_ms() + (settings.retries_max + 1) * settings.retry_backoff_ms
    while True:
        seen = view.image
        remaining = await _ask(services, link)
        if remaining is not None and not _could_be_taken(view.image, remaining, own):
            log.info("leaderships_handed_over", broker_id=own, kept=len(remaining))
            return
        left_ms = end_ms - clock.monotonic_ms()
        if left_ms <= 0:
            log.warning("leaderships_not_handed_over", broker_id=own)
            return
        # The next controller, or a follower that catches up, shows in the image.
        with contextlib.suppress(RequestTimedOutError):
            pause_ms = min(left_ms, settings.retry_backoff_ms)
            await view.until(partial(operator.is_not, seen), timeout_ms=pause_ms)


async def _ask(services: Services, link: NodeLink) -> list[TopicPartition] | None:
    """What the controller could not move; None when it could not be asked."""
    controller = services.view.image.brokers.get(services.controller.controller_id)
    if controller is None:
        return None
    try:
        return await _move(services, link, controller)
    except ProtocolError as error:
        if error.code is ErrorCode.BROKER_NOT_AVAILABLE:  # it leads nothing any more
            return []
        reason = str(error)
    except (ConnectionFailedError, RequestTimedOutError, CoordinationError) as error:
        reason = str(error)
    log.warning("controller_not_asked", controller=controller.id, reason=reason)
    return None


async def _move(services: Services, link: NodeLink, controller: BrokerInfo) -> list[TopicPartition]:
    request = ControlledShutdownRequest(
        broker_id=services.broker_id, broker_epoch=services.replicas.broker_epoch
    )
    response = await link.send(controller, request)
    if response.error_code != ErrorCode.NONE:
        raise ProtocolError(ErrorCode.of(response.error_code))
    return [TopicPartition(left.topic_name, left.partition_index) for left in response.remaining_partitions]


def _could_be_taken(image: ClusterImage, partitions: Collection[TopicPartition], own: BrokerId) -> bool:
    """Whether any has a live replica elsewhere, which may yet come to be in sync."""
    return any(
        replica != own and replica in image.brokers
        for partition in partitions
        if (found := image.partition(partition)) is not None
        for replica in found.replicas
    )
