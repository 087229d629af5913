from __future__ import annotations

import asyncio
import gc

import pytest

from broker.client.backoff import Backoff
from broker.client.cluster import Cluster, CoordinatorKind
from broker.client.connection import ConnectionSettings
from broker.client.metadata import ClusterMetadata
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.peers import Peer, PeerCluster
from tests.client.running import QUICK, run, until

SETTINGS = ConnectionSettings(request_timeout_ms=2_000, connect_timeout_ms=2_000)


def told(epoch: int, leader: int) -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])


def test_a_leader_never_goes_back_to_an_older_epoch() -> None:
    metadata = ClusterMetadata().merged(told(5, 1), complete=False).merged(told(4, 2), complete=False)
    partition = metadata.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (1, 5)


def test_an_epoch_that_may_be_a_former_one_counts_as_not_told() -> None:
    """Nodes before Kafka 2.4 tell such while partitions are reassigned, and leaders refuse who names them."""
    metadata = ClusterMetadata().merged(told(5, 1), complete=False, version=8)
    metadata = metadata.merged(told(4, 2), complete=False, version=8)
    partition = metadata.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (2, -1)


def test_an_answer_about_all_topics_forgets_those_it_does_not_mention() -> None:
    metadata = ClusterMetadata().merged(told(1, 1), complete=False)
    assert metadata.merged(MetadataResponse(), complete=False).partitions("t") == [0]
    assert metadata.merged(MetadataResponse(), complete=True).partitions("t") == []


def test_a_dead_bootstrap_address_does_not_matter_while_another_answers() -> None:
    async def main() -> None:
        async with Peer() as dead:
            gone = dead.address
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            async with Cluster([gone, *nodes.bootstrap], settings=SETTINGS, backoff=QUICK) as cluster:
                assert cluster.cluster_id == "scripted"
                assert (await cluster.controller()).address == peer.address

    run(main)


def test_when_nobody_answers_the_error_names_every_address() -> None:
    async def main() -> None:
        async with Peer() as peer:
            gone = peer.address
        cluster = Cluster([gone], settings=SETTINGS, backoff=QUICK)
        with pytest.raises(ConnectionFailedError, match=str(gone)):
            await cluster.start(timeout_ms=100)
        await cluster.close()

    run(main)


def test_callers_who_ask_for_the_same_share_one_request() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            nodes.leaders = {"t": [1, 1]}
            async with Cluster(nodes.bootstrap, settings=SETTINGS, backoff=QUICK) as cluster:
                asked = len(peer.seen(MetadataRequest))
                await asyncio.gather(*(cluster.refresh(["t"]) for _ in range(5)))
                assert len(peer.seen(MetadataRequest)) == asked + 1
                assert cluster.partitions("t") == [0, 1]

    run(main)


def test_a_topic_that_is_being_created_is_waited_for() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            async with Cluster(nodes.bootstrap, settings=SETTINGS, backoff=QUICK) as cluster:

                def created(request: MetadataRequest) -> MetadataResponse:
                    nodes.leaders = {"t": [1]}
                    return MetadataResponse(
                        brokers=nodes.metadata(request).brokers,
                        topics=[MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE)],
                    )

                peer.once(MetadataRequest, created)
                await cluster.ensure(["t"], create=True)
                assert cluster.leader(TopicPartition("t", 0)) == 1
                assert peer.seen(MetadataRequest)[-1].allow_auto_topic_creation

    run(main)


def test_a_topic_that_stays_unknown_is_an_error_after_the_time() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            async with Cluster(nodes.bootstrap, settings=SETTINGS, backoff=QUICK) as cluster:
                with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic missing"):
                    await cluster.ensure(["missing"], timeout_ms=50)
                assert not peer.seen(MetadataRequest)[-1].allow_auto_topic_creation

    run(main)


def test_lanes_are_connections_of_their_own_and_shared_within() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            async with Cluster(nodes.bootstrap, settings=SETTINGS) as cluster:
                first, again = await asyncio.gather(cluster.connection(1, "a"), cluster.connection(1, "a"))
                other = await cluster.connection(1, "b")
                assert first is again
                assert first is not other
                await cluster.release_lane("a")
                assert first.closed
                assert not other.closed
                assert await cluster.connection(1, "a") is not first

    run(main)


def test_a_node_that_comes_back_elsewhere_is_followed() -> None:
    async def main() -> None:
        async with Peer() as before, Peer() as after:
            nodes = PeerCluster(before)
            async with Cluster(nodes.bootstrap, settings=SETTINGS, backoff=QUICK) as cluster:
                assert (await cluster.connection(1)).address == before.address
                nodes.peers = {1: after}
                await cluster.refresh([])
                assert (await cluster.connection(1)).address == after.address

    run(main)


def test_a_coordinator_is_remembered_until_it_is_forgotten() -> None:
    async def main() -> None:
        async with Peer(1) as one, Peer(2) as two:
            nodes = PeerCluster(one, two)
            async with Cluster(nodes.bootstrap, settings=SETTINGS) as cluster:
                assert await cluster.coordinator("g") == 1
                nodes.coordinator = 2
                assert await cluster.coordinator("g") == 1
                cluster.forget_coordinator("g")
                assert await cluster.coordinator("g") == 2
                assert await cluster.coordinator("g", CoordinatorKind.TRANSACTION) == 2

    run(main)


@pytest.mark.parametrize("version", [0, 2, 4])
def test_every_version_of_finding_a_coordinator_is_spoken(version: int) -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            peer.versions[FindCoordinatorRequest.api_key] = (0, version)
            async with Cluster(nodes.bootstrap, settings=SETTINGS) as cluster:
                assert await cluster.coordinator("g") == 1

    run(main)


def test_a_coordinator_that_is_not_available_is_a_retriable_error() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            unavailable = FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key="g", node_id=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                ]
            )
            peer.on(FindCoordinatorRequest, lambda _: unavailable)
            async with Cluster(nodes.bootstrap, settings=SETTINGS) as cluster:
                with pytest.raises(ProtocolError) as raised:
                    await cluster.coordinator("g")
                assert raised.value.code.retriable

    run(main)


def test_a_lost_connection_is_dialled_again() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            peer.on(ListGroupsRequest, lambda _: ListGroupsResponse())
            async with Cluster(nodes.bootstrap, settings=SETTINGS, backoff=QUICK) as cluster:
                connection = await cluster.connection(1)
                peer.disconnect()
                await until(lambda: connection.closed)
                assert await cluster.request(1, ListGroupsRequest()) == ListGroupsResponse()
                assert await cluster.connection(1) is not connection

    run(main)


def test_a_dial_that_fails_when_nobody_waits_for_it_any_more_troubles_nobody() -> None:
    async def main() -> None:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            cluster = Cluster(nodes.bootstrap, settings=SETTINGS, backoff=Backoff(initial_ms=100, max_ms=100))
            await cluster.start()
        with pytest.raises(ConnectionFailedError):
            await cluster.connection(1, "lane")
        asking = asyncio.create_task(cluster.connection(1, "lane"))
        await until(lambda: len(asyncio.all_tasks()) == 3)  # the dial waits, as the one before failed
        asking.cancel()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        del asking  # its traceback holds the dial
        gc.collect()
        assert not complaints
        await cluster.close()

    run(main)


def test_a_look_at_metadata_that_fails_when_nobody_waits_for_it_any_more_troubles_nobody() -> None:
    async def main() -> None:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            cluster = Cluster(nodes.bootstrap, settings=SETTINGS, backoff=Backoff(initial_ms=100, max_ms=100))
            await cluster.start()
        with pytest.raises(ConnectionFailedError):
            await cluster.refresh([])
        asking = asyncio.create_task(cluster.refresh([]))
        await until(lambda: len(asyncio.all_tasks()) == 4)  # the dial waits, as the one before failed
        asking.cancel()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        del asking
        gc.collect()
        assert not complaints
        await cluster.close()

    run(main)
