"""Nodes without a network for the controller's tests: they obey orders and keep an image."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from broker.clock import SystemClock
from broker.cluster.channel import NodeLink
from broker.cluster.driver import ControllerDriver
from broker.cluster.events import ControllerSettings
from broker.cluster.image import BrokerInfo, ClusterImage
from broker.cluster.orders import update_of_metadata
from broker.cluster.registration import register_broker
from broker.coordination.protocol import Coordination
from broker.errors import ConnectionFailedError, ErrorCode
from broker.types import BrokerId, TopicPartition
from broker.wire.message import Message, Request
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.cluster.scenes import broker_znode

DEADLINE_SECONDS = 30
_Response = TypeVar("_Response", bound=Message)


@dataclass(slots=True, eq=False)
class Node:
    """What one broker knows from the orders it got: its image, its roles, and what it deleted."""

    broker_id: BrokerId
    image: ClusterImage = field(default_factory=lambda: ClusterImage(cluster_id="c"))
    roles: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    deleted: set[TopicPartition] = field(default_factory=set)
    controller_epoch: int = -1
    reachable: bool = True
    refusals: list[ErrorCode] = field(default_factory=list)
    requests: int = 0

    def leads(self, tp: TopicPartition) -> bool:
        return self.roles.get(tp, (-1, -1))[0] == self.broker_id

    def answer(self, request: Request[_Response]) -> Message:
        self.requests += 1
        assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
        if request.controller_epoch < self.controller_epoch:
            return _response_of(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        if self.refusals:
            return _response_of(request, self.refusals.pop(0))
        match request:
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    for state in topic.partition_states:
                        tp = TopicPartition(topic.topic_name, state.partition_index)
                        self.roles[tp] = (state.leader, state.leader_epoch)
                        self.deleted.discard(tp)
            case UpdateMetadataRequest():
                self.image = self.image.apply(update_of_metadata(request))
            case StopReplicaRequest():
                return self._stop(request)
        return _response_of(request, ErrorCode.NONE)

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                self.roles.pop(tp, None)
                if state.delete_partition:
                    self.deleted.add(tp)
                errors.append(StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition))
        return StopReplicaResponse(partition_errors=errors)


async def until_empty(coordination: Coordination, path: str) -> None:
    """Wait until the znode has no children."""
    changed = asyncio.Event()
    end_watch = coordination.watch_children(path, changed.set)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await coordination.children(path):
            await changed.wait()
            changed.clear()
    end_watch()


async def until_gone(coordination: Coordination, path: str) -> None:
    """Wait until the znode is not there."""
    changed = asyncio.Event()
    end_watch = coordination.watch_data(path, changed.set)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await coordination.get(path) is not None:
            await changed.wait()
            changed.clear()
    end_watch()


def _response_of(request: Message, error: ErrorCode) -> Message:
    match request:
        case LeaderAndIsrRequest():
            return LeaderAndIsrResponse(error_code=error)
        case UpdateMetadataRequest():
            return UpdateMetadataResponse(error_code=error)
        case _:
            return StopReplicaResponse(error_code=error)


class Nodes(NodeLink):
    """Every node of a test, and the link to them: requests travel as bytes."""

    def __init__(self) -> None:
        self.by_id: dict[BrokerId, Node] = {}
        self._changed = asyncio.Event()

    async def send(self, broker: BrokerInfo, request: Request[_Response]) -> _Response:
        await asyncio.sleep(0)
        node = self.by_id[broker.id]
        if not node.reachable:
            raise ConnectionFailedError(f"broker {broker.id} is cut off")
        version = type(request).max_version
        received = type(request).decode(request.encode(version), version)
        answer = node.answer(received)
        self._changed.set()
        return answer  # type: ignore[return-value]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; looked at whenever a node got orders, and every few milliseconds."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.01)
                except TimeoutError:
                    continue


@dataclass(slots=True, eq=False)
class Member:
    """One node with its session, registration and driver."""

    broker_id: BrokerId
    session: Coordination
    driver: ControllerDriver
    node: Node

    @classmethod
    async def join(
        cls, nodes: Nodes, session: Coordination, broker_id: int, settings: ControllerSettings | None = None
    ) -> Member:
        number = BrokerId(broker_id)
        await register_broker(session, number, broker_znode(broker_id), session_timeout_ms=4_000)
        nodes.by_id.setdefault(number, Node(number))
        driver = ControllerDriver(
            session,
            broker_id=number,
            link=nodes,
            heard_epoch=lambda: nodes.by_id[number].image.controller_epoch,
            clock=SystemClock(),
            settings=settings or ControllerSettings(),
        )
        await driver.start()
        return cls(number, session, driver, nodes.by_id[number])

    async def leave(self) -> None:
        """Shut down: resign, end the session."""
        await self.driver.close()
        await self.session.close()
