"""Who administers a simulated cluster: makes its topic, and asks for elections and moves."""

from __future__ import annotations

from typing import Any

from broker.errors import ConnectionFailedError, ErrorCode, RequestTimedOutError
from broker.types import TopicPartition
from broker.wire.message import Request
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest
from broker.wire.messages.metadata import MetadataRequest
from tests.sim.checks import ViolationError
from tests.sim.clients import Client

TOPIC = "t"
_DONE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
_LATER = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class Admin(Client):
    """See the module's description."""

    async def create_topic(self) -> None:
        """Make the topic; returns once every partition has a leader."""
        scenario = self.world.scenario
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=scenario.partitions,
            replication_factor=scenario.replication_factor,
            configs=[
                CreatableTopicConfig(name="min.insync.replicas", value=str(scenario.min_insync_replicas)),
                CreatableTopicConfig(name="flush.messages", value=str(scenario.flush_messages)),
            ],
        )
        while True:
            await self.back_off()
            try:
                node = await self._controller()
                answer = await self.ask(node, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
            except (ConnectionFailedError, RequestTimedOutError):
                continue
            code = ErrorCode.of(answer.topics[0].error_code)
            if code in _DONE:
                break
            if code not in _LATER:
                raise ViolationError(f"the topic is refused: {code.name} {answer.topics[0].error_message}")
        while not await self._all_are_led():
            await self.back_off()

    def elect_preferred(self) -> None:
        """Ask the controller once to have preferred replicas lead."""
        self.begin(
            [
                self._ask_controller(
                    ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1_000)
                )
            ]
        )

    def reassign(self, partition: TopicPartition, replicas: list[int] | None) -> None:
        """Ask the controller once to move a partition; None: to leave it where it is."""
        moved = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
        topic = ReassignableTopic(name=partition.topic, partitions=[moved])
        self.begin(
            [self._ask_controller(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1_000))]
        )

    async def _ask_controller(self, request: Request[Any]) -> None:
        try:
            await self.ask(await self._controller(), request)
        except (ConnectionFailedError, RequestTimedOutError):
            return

    async def _controller(self) -> int:
        node = self.random.randint(1, self.world.scenario.nodes)
        answer = await self.ask(node, MetadataRequest(topics=[]))
        return answer.controller_id if answer.controller_id > 0 else node

    async def _all_are_led(self) -> bool:
        try:
            return all([await self.leader(partition) is not None for partition in self.world.partitions])
        except (ConnectionFailedError, RequestTimedOutError):
            return False
