"""Nodes in one process that host replicas, follow each other, and obey orders: real logs, no network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from broker.clock import SystemClock
from broker.cluster.image import BrokerInfo
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError
from broker.rates import RateWindows
from broker.replication.fetchers import Fetchers
from broker.replication.following import FetchBounds
from broker.replication.node_connection import NodePort
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.replication_quotas import ReplicationQuota
from broker.settings import LONG_MAX
from broker.storage.disk import Disk
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.types import BrokerId, TopicId, TopicPartition
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)

TOPIC = "flights"
TOPIC_ID = TopicId(UUID(int=7))
BOUNDS = FetchBounds(wait_ms_max=2, backoff_ms=20)
DEADLINE_SECONDS = 30


class HostingNode:
    """One node: it follows whom it is told to, and answers those who follow it."""

    def __init__(
        self, network: Network, broker_id: int, disk: Disk, roots: Sequence[Path], config: LogConfig
    ) -> None:
        self.id = BrokerId(broker_id)
        self.disk = disk
        self.clock = SystemClock()
        self.failed: list[Path] = []
        self.executor = ThreadPoolExecutor(4)
        self.quota = ReplicationQuota(LONG_MAX, RateWindows(), self.clock.monotonic_ms)
        """Of what it fetches; what falls under it is the topic's to say."""
        self.directories = LogDirectories(
            disk, self.clock, recovery_threads=1, on_failure=self.failed.append, free_bytes_min=0
        )
        self.directories.open(roots, lambda _: config, broker_id=self.id, cluster_id="jfk")
        self.fetchers = Fetchers(
            self.id,
            BOUNDS,
            quota=self.quota,
            count=1,
            clock=self.clock,
            executor=self.executor,
            broker=lambda broker_id: BrokerInfo(id=broker_id, epoch=broker_id, endpoints={}),
            broker_epoch=lambda: broker_id,
            open_port=lambda: network,
        )

        async def config_of(topic: str) -> LogConfig:
            return config

        self.replicas = Replicas(
            self.id,
            self.directories,
            clock=self.clock,
            executor=self.executor,
            config_of=config_of,
            high_watermarks={},
            fetchers=self.fetchers,
            on_leadership=lambda partition, epoch: None,
        )

    def replica(self, number: int = 0) -> Replica:
        return self.replicas.find(TOPIC, number)

    async def order(self, leader: int, epoch: int, *partitions: int, topic_id: TopicId = TOPIC_ID) -> None:
        """Say who leads these partitions, of which every node has a replica."""
        states = [
            LeaderAndIsrPartitionState(
                partition_index=number,
                leader=leader,
                leader_epoch=epoch,
                isr=[leader],
                replicas=[1, 2],
                partition_epoch=epoch,
                is_new=epoch == 0,
            )
            for number in partitions or (0,)
        ]
        topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=states)
        answer = await self.replicas.lead_and_follow(LeaderAndIsrRequest(topic_states=[topic]))
        errors = [error.error_code for told in answer.topics for error in told.partition_errors]
        assert not any(errors), errors

    async def stop(self, number: int = 0, *, delete: bool = True) -> int:
        """Stop a replica; the error that is answered."""
        state = StopReplicaPartitionState(partition_index=number, leader_epoch=-2, delete_partition=delete)
        topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
        answer = await self.replicas.stop(StopReplicaRequest(topic_states=[topic]))
        return answer.partition_errors[0].error_code

    # Answering followers

    def answer(self, request: FetchRequest) -> FetchResponse:
        """As a leader does, without a session."""
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[self._partition(wanted) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _partition(self, wanted: FetchPartition) -> PartitionData:
        answer = PartitionData(partition_index=wanted.partition, high_watermark=-1, records=b"")
        replica = self.replicas.get(TOPIC, wanted.partition)
        try:
            if replica is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not hosted")
            replica.machine.require_leader(wanted.current_leader_epoch)
            answer.high_watermark = replica.high_watermark
            answer.log_start_offset = replica.log.log_start_offset
            end = replica.epoch_end(wanted.last_fetched_epoch)
            if 0 <= end.epoch < wanted.last_fetched_epoch or 0 <= end.end_offset < wanted.fetch_offset:
                answer.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return answer
            log_end = replica.log.log_end_offset
            found = replica.read(
                wanted.fetch_offset, max_bytes=wanted.partition_max_bytes, up_to=log_end, min_one_batch=True
            )
            if found is not None:
                answer.records = found.read()
        except ProtocolError as error:
            answer.error_code = error.code
        return answer


class Network(NodePort):
    """Every node, and the way to it: answers travel as bytes, if nothing is in their way."""

    def __init__(self) -> None:
        self.nodes: dict[BrokerId, HostingNode] = {}
        self.cut_off: set[int] = set()
        self.damage: Callable[[FetchResponse], None] = lambda response: None
        """What is done to an answer on its way."""
        self.overhear: Callable[[FetchRequest], None] = lambda request: None
        """Who listens to requests."""
        self.waiting: set[asyncio.Future[None]] = set()
        """Of questions that a leader lets wait."""

    async def send(self, broker: BrokerInfo, request: Any) -> Any:
        await asyncio.sleep(0)
        if broker.id in self.cut_off:
            raise ConnectionFailedError(f"broker {broker.id} is cut off")
        self.overhear(request)
        answer = self.nodes[broker.id].answer(FetchRequest.decode(request.encode(17), 17))
        self.damage(answer)
        if not any(
            each.records or each.error_code for topic in answer.responses for each in topic.partitions
        ):
            await self._wait(request.max_wait_ms)
        return FetchResponse.decode(memoryview(bytearray(answer.encode(17))), 17)

    async def close(self) -> None:
        await asyncio.sleep(0)
        for waiting in self.waiting:
            waiting.cancel()

    async def _wait(self, wait_ms: int) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self.waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=wait_ms / 1000)
        finally:
            self.waiting.discard(waiting)
        if waiting.cancelled():
            raise ConnectionFailedError("closed by this side")


@contextlib.asynccontextmanager
async def two_nodes(
    *places: tuple[Disk, Sequence[Path]], config: LogConfig | None = None
) -> AsyncIterator[tuple[HostingNode, HostingNode, Network]]:
    """Nodes 1 and 2, each with a disk and its roots, and the network between them."""
    network = Network()
    async with contextlib.AsyncExitStack() as stack:
        for broker_id, (disk, roots) in enumerate(places, start=1):
            node = HostingNode(network, broker_id, disk, roots, config or LogConfig())
            network.nodes[node.id] = node
            stack.callback(node.executor.shutdown)
            stack.callback(node.directories.close)
            await stack.enter_async_context(node.fetchers)
        first, second = network.nodes.values()
        yield first, second, network


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; fails when it does not in time."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  what changes is in logs and counters
            await asyncio.sleep(0.001)


def log_files(node: HostingNode, number: int = 0) -> dict[str, bytes]:
    """The segments of a replica's log as they are on the disk, by name."""
    directory = node.replica(number).log.directory
    return {
        entry.name: node.disk.read_file(directory / entry.name)
        for entry in cast(Disk, node.disk).list_directory(directory)
        if entry.name.endswith(".log")
    }


def partition(number: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, number)
