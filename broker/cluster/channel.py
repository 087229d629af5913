"""Delivery of the controller's orders to one broker: one request at a time, in order, until the broker
leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from broker.cluster.image import BrokerInfo
from broker.cluster.orders import (
    BrokerOrders,
    leader_and_isr_request,
    lost_roles,
    refused_stops,
    stop_replica_request,
    update_metadata_request,
)
from broker.errors import BrokerError, CoordinationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition
from broker.wire.message import Message, Request

RETRY_BACKOFF_MS_MIN = 50
RETRY_BACKOFF_MS_MAX = 2_000

_log = logger("controller_channel")
_Response = TypeVar("_Response", bound=Message)


class NodeLink(Protocol):
    """How the controller reaches nodes: a connection each, or, for its own node, a call."""

    async def send(self, broker: BrokerInfo, request: Request[_Response]) -> _Response:
        """Send one request and wait for its answer.

        Raises ConnectionFailedError or RequestTimedOutError when there is none: it is sent again.
        """
        ...


class ControllerFencedError(CoordinationError):
    """Another controller has been elected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerIdentity:
    """Who gives the orders; `listener` is the one that brokers use among themselves."""

    broker_id: BrokerId
    epoch: int
    listener: str


class BrokerChannel:
    """Orders for one registration of one broker. Owned by the reign that runs it.

    Orders that wait are merged, so they take no more room than one order for every partition.
    `replicas_deleted` is told of replicas that the broker deleted, `replicas_lost` of those that it cannot
    host as their disk failed.
    """

    def __init__(
        self,
        broker: BrokerInfo,
        link: NodeLink,
        identity: ControllerIdentity,
        *,
        brokers: Callable[[], Mapping[BrokerId, BrokerInfo]],
        replicas_deleted: Callable[[BrokerId, frozenset[TopicPartition]], None],
        replicas_lost: Callable[[BrokerId, frozenset[TopicPartition]], None],
    ) -> None:
        self.broker = broker
        self._link = link
        self._identity = identity
        self._brokers = brokers
        self._replicas_deleted = replicas_deleted
        self._replicas_lost = replicas_lost
        self._waiting = BrokerOrders()
        self._sending = BrokerOrders()
        self._told = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def tell(self, orders: BrokerOrders) -> None:
        """Deliver `orders` after those that wait."""
        self._waiting = self._waiting.merged(orders)
        self._is_idle.clear()
        self._told.set()

    async def delivered(self) -> None:
        """Return once the broker has carried out all that it was told."""
        await self._is_idle.wait()

    async def run(self) -> None:
        """Deliver until cancelled, or until the broker says that it registered again: no more for this one.

        Raises ControllerFencedError when the broker knows a newer controller.
        """
        backoff_ms = RETRY_BACKOFF_MS_MIN
        while True:
            await self._told.wait()
            self._told.clear()
            self._sending, self._waiting = self._waiting, BrokerOrders()
            try:
                await self._deliver()
            except ControllerFencedError:
                raise
            except BrokerError as error:
                if isinstance(error, ProtocolError) and error.code is ErrorCode.STALE_BROKER_EPOCH:
                    return
                _log.warning("orders_not_delivered", broker_id=self.broker.id, reason=str(error))
            if not self._sending:
                backoff_ms = RETRY_BACKOFF_MS_MIN
                if not self._waiting:
                    self._is_idle.set()
                continue
            self._waiting = self._sending.merged(self._waiting)
            self._told.set()
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)

    async def _deliver(self) -> None:
        """Send the parts of `_sending` in turn, each taken out once it is delivered."""
        if self._sending.roles or self._sending.full_roles:
            await self._send_roles()
            self._sending = replace(self._sending, roles={}, full_roles=False)
        if self._sending.metadata is not None:
            request = update_metadata_request(self._sending.metadata, broker_epoch=self.broker.epoch)
            self._check((await self._link.send(self.broker, request)).error_code)
            self._sending = replace(self._sending, metadata=None)
        if self._sending.deletions:
            await self._send_deletions()

    async def _send_roles(self) -> None:
        request = leader_and_isr_request(
            self._sending,
            controller_id=self._identity.broker_id,
            controller_epoch=self._identity.epoch,
            broker_epoch=self.broker.epoch,
            brokers=self._brokers(),
            listener=self._identity.listener,
        )
        response = await self._link.send(self.broker, request)
        self._check(response.error_code)
        if lost := lost_roles(request, response):
            self._replicas_lost(self.broker.id, lost)
        for topic in response.topics:
            for partition in topic.partition_errors:
                if partition.error_code != ErrorCode.NONE:
                    _log.error(
                        "role_refused",
                        broker_id=self.broker.id,
                        topic_id=str(topic.topic_id),
                        partition=partition.partition_index,
                        error=ErrorCode.of(partition.error_code).name,
                    )

    async def _send_deletions(self) -> None:
        request = stop_replica_request(
            self._sending,
            controller_id=self._identity.broker_id,
            controller_epoch=self._identity.epoch,
            broker_epoch=self.broker.epoch,
        )
        response = await self._link.send(self.broker, request)
        self._check(response.error_code)
        refused = refused_stops(response)
        deleted = self._sending.deletions - refused
        self._sending = replace(self._sending, deletions=self._sending.deletions & refused)
        if deleted:
            self._replicas_deleted(self.broker.id, deleted)

    def _check(self, error_code: int) -> None:
        error = ErrorCode.of(error_code)
        if error is ErrorCode.STALE_CONTROLLER_EPOCH:
            raise ControllerFencedError(f"broker {self.broker.id} knows a newer controller")
        if error is not ErrorCode.NONE:
            raise ProtocolError(error, f"broker {self.broker.id} refused the controller's orders")
