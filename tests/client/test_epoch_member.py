"""The driver of a member of the consumer protocol against a scripted coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.epoch_member import EpochMember
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import ConsumerGroupSettings
from broker.client.subscription import Subscription, SubscriptionPattern
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest
from tests.client.coordinating import CoordinatingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until

SETTINGS = ConsumerGroupSettings(group_id="g", metadata_max_age_ms=20)
TOPIC_ID = UUID(int=7)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({ZERO, ONE})


class EpochPeer(CoordinatingPeer):
    """The coordinator of a group with one member, which gets `numbers`. Codes are given out once each."""

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.numbers: list[int] = [0, 1]
        self.codes: list[ErrorCode] = []
        self.epoch = 0
        self.on(ConsumerGroupHeartbeatRequest, self._heartbeat)

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if self.codes:
            return ConsumerGroupHeartbeatResponse(error_code=self.codes.pop(0), error_message="says why")
        leaves = request.member_epoch < 0
        self.epoch += request.member_epoch == 0
        assigned = [ResponseTopicPartitions(topic_id=TOPIC_ID, partitions=self.numbers)]
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch if leaves else self.epoch,
            heartbeat_interval_ms=5,
            assignment=None if leaves else Assignment(topic_partitions=assigned),
        )

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        if request.generation_id_or_member_epoch != self.epoch:
            self.commit_codes.insert(0, ErrorCode.STALE_MEMBER_EPOCH)
        return super()._commit(request)

    @property
    def heartbeats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return self.seen(ConsumerGroupHeartbeatRequest)


class Subject:
    """A member under test and what it was told, in order."""

    def __init__(self, cluster: Cluster, scripted: PeerCluster, peer: EpochPeer) -> None:
        self.cluster, self.scripted, self.peer = cluster, scripted, peer
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.failures: list[BrokerError] = []
        """To be raised by `on_assigned`, once each."""
        self.member: EpochMember
        self.running: asyncio.Task[None]

    def join(
        self, subscription: Subscription = ("t",), settings: ConsumerGroupSettings = SETTINGS
    ) -> EpochMember:
        async def assigned(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("assigned", partitions))
            if self.failures:
                raise self.failures.pop(0)

        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("revoked", partitions))
            await self.member.commit({partition: OffsetAndMetadata(offset=9) for partition in partitions})

        async def lost(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("lost", partitions))

        self.member = EpochMember(
            self.cluster,
            settings,
            subscription=subscription,
            on_assigned=assigned,
            on_revoked=revoked,
            on_lost=lost,
        )
        self.running = asyncio.create_task(self.member.run())
        return self.member


@asynccontextmanager
async def membership(*, nodes: int = 1, version_max: int = 1) -> AsyncIterator[Subject]:
    peers = [EpochPeer(number + 1) for number in range(nodes)]
    for peer in peers:
        peer.versions[ConsumerGroupHeartbeatRequest.api_key] = (0, version_max)
    connections = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
    async with (
        serving(peers, partitions=2) as scripted,
        Cluster(scripted.bootstrap, settings=connections, backoff=QUICK) as cluster,
    ):
        scripted.topic_ids["t"] = TOPIC_ID
        subject = Subject(cluster, scripted, peers[0])
        yield subject
        if not subject.running.done():
            await subject.member.close()
            await subject.running


def test_a_member_joins_commits_with_its_epoch_and_leaves() -> None:
    async def main() -> None:
        async with membership() as subject:
            member = subject.join()
            await member.settled()
            assert (member.generation, member.assignment) == (1, BOTH)
            await member.commit({ZERO: OffsetAndMetadata(offset=5)})
            assert await member.committed([ZERO, ONE]) == {ZERO: OffsetAndMetadata(offset=5)}
            (asked,) = subject.peer.seen(OffsetFetchRequest)
            assert (asked.groups[0].member_id, asked.groups[0].member_epoch) == (member.member_id, 1)
            await member.close()
            await subject.running
            assert subject.told == [("assigned", BOTH), ("revoked", BOTH)]
            first, last = subject.peer.heartbeats[0], subject.peer.heartbeats[-1]
            assert (first.member_epoch, first.rebalance_timeout_ms, first.topic_partitions) == (
                0,
                300_000,
                [],
            )
            assert (last.member_epoch, last.member_id) == (-1, first.member_id)
            assert [
                (each.member_id, each.generation_id_or_member_epoch)
                for each in subject.peer.seen(OffsetCommitRequest)
            ] == [(member.member_id, 1)] * 2
            with pytest.raises(ProtocolError, match="ILLEGAL_GENERATION"):
                await member.commit({ZERO: OffsetAndMetadata(offset=5)})

    run(main)


def test_a_commit_with_an_epoch_that_has_passed_is_made_with_the_new_one() -> None:
    async def main() -> None:
        async with membership() as subject:
            member = subject.join()
            await member.settled()
            subject.peer.epoch = 4
            await member.commit({ZERO: OffsetAndMetadata(offset=5)})
            epochs = [each.generation_id_or_member_epoch for each in subject.peer.seen(OffsetCommitRequest)]
            assert (epochs[0], epochs[-1], member.generation) == (1, 4, 4)
            assert subject.peer.offsets[ZERO].offset == 5
            subject.peer.commit_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
            with pytest.raises(ProtocolError, match="UNKNOWN_MEMBER_ID"):
                await member.commit({ZERO: OffsetAndMetadata(offset=6)})

    run(main)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_is_fenced_loses_its_partitions_and_joins_again_by_its_id(code: ErrorCode) -> None:
    async def main() -> None:
        async with membership() as subject:
            member = subject.join()
            await member.settled()
            subject.peer.codes = [code]
            await until(lambda: len(subject.told) == 3)
            assert subject.told == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]
            joins = [each.member_id for each in subject.peer.heartbeats if each.member_epoch == 0]
            assert joins == [member.member_id] * 2

    run(main)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED],
)
def test_a_refusal_that_no_other_attempt_mends_ends_the_membership(code: ErrorCode) -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.codes = [code]
            with pytest.raises(ProtocolError, match=f"{code.name}.*says why"):
                await subject.running
            assert subject.told == [("assigned", BOTH), ("lost", BOTH)]

    run(main)


def test_a_coordinator_that_moves_or_loads_is_asked_again_without_a_loss() -> None:
    async def main() -> None:
        async with membership(nodes=2) as subject:
            await subject.join().settled()
            other = subject.scripted.peers[2]
            assert isinstance(other, EpochPeer)
            other.epoch, other.codes = 1, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            subject.scripted.coordinator = 2
            subject.peer.codes = [ErrorCode.NOT_COORDINATOR]
            await until(lambda: len(other.heartbeats) > 2)
            assert [each.member_epoch for each in other.heartbeats[:2]] == [1, 1]
            owned = other.heartbeats[1].topic_partitions
            assert owned is not None, "it is told everything again"
            assert [list(each.partitions) for each in owned] == [[0, 1]]
            assert subject.told == [("assigned", BOTH)]

    run(main)


def test_partitions_of_a_topic_that_metadata_does_not_tell_of_yet_come_later() -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.scripted.topic_ids.clear()
            member = subject.join()
            await until(lambda: len(subject.peer.heartbeats) > 2)
            assert (member.generation, member.assignment, subject.told) == (1, frozenset(), [])
            subject.scripted.topic_ids["t"] = TOPIC_ID
            await member.settled()
            assert subject.told == [("assigned", BOTH)]

    run(main)


def test_what_the_owner_cannot_take_up_is_lost_and_offered_again_or_ends_it_all() -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.failures = [
                ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
            subject.join()
            with pytest.raises(ProtocolError, match="TOPIC_AUTHORIZATION_FAILED"):
                await subject.running
            assert subject.told == [("assigned", BOTH), ("lost", BOTH)] * 2
            assert subject.peer.heartbeats[-1].member_epoch == -1

    run(main)


def test_patterns_are_resolved_here_where_the_coordinator_cannot() -> None:
    async def main() -> None:
        async with membership(version_max=0) as subject:
            subject.join(SubscriptionPattern("t|late-.*"))
            await subject.member.settled()
            assert subject.peer.heartbeats[0].subscribed_topic_names == ["t"]
            subject.scripted.leaders["late-1"] = [1]
            await until(lambda: subject.peer.heartbeats[-1].subscribed_topic_names == ["late-1", "t"])

    run(main)


def test_the_coordinator_gets_the_pattern_where_it_can() -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.join(SubscriptionPattern("t|late-.*"))
            await subject.member.settled()
            first = subject.peer.heartbeats[0]
            assert (first.subscribed_topic_regex, first.subscribed_topic_names) == ("t|late-.*", [])

    run(main)
