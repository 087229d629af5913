from __future__ import annotations

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from broker.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.client.peers import Peer, PeerCluster
from tests.client.running import QUICK, run

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)


def created(request: CreateTopicsRequest, code: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


def test_a_controller_that_moved_is_asked_where_it_went() -> None:
    async def main() -> None:
        async with Peer(1) as one, Peer(2) as two:
            nodes = PeerCluster(one, two)
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:

                def moved(request: CreateTopicsRequest) -> CreateTopicsResponse:
                    nodes.controller = 2
                    return created(request, ErrorCode.NOT_CONTROLLER)

                one.on(CreateTopicsRequest, moved)
                two.on(CreateTopicsRequest, created)
                await Admin(cluster).create_topic(NewTopic(name="t", partitions=3, assignments={0: [1, 2]}))
                (request,) = two.seen(CreateTopicsRequest)
                assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (-1, -1)
                assert list(request.topics[0].assignments[0].broker_ids) == [1, 2]

    run(main)


def test_a_controller_that_dies_for_good_is_an_error_that_names_it() -> None:
    async def main() -> None:
        async with Peer(1) as one, Peer(2) as two:
            nodes = PeerCluster(one, two)
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                nodes.controller = 2
                await cluster.refresh([])
                two.on(CreateTopicsRequest, lambda _: two.disconnect())
                with pytest.raises(ConnectionFailedError, match=str(two.address)):
                    await Admin(cluster, timeout_ms=60).create_topic(NewTopic(name="t"))

    run(main)


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_deleted_in_every_form_of_the_request(version: int) -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            peer.versions[DeleteTopicsRequest.api_key] = (0, version)

            def deleted(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
                names = request.topic_names or [state.name or "" for state in request.topics]
                code = ErrorCode.TOPIC_DELETION_DISABLED
                return DeleteTopicsResponse(
                    responses=[DeletableTopicResult(name=name, error_code=code) for name in names]
                )

            peer.on(DeleteTopicsRequest, deleted)
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                results = await Admin(cluster).delete_topics(["a", "b"])
                assert [error and error.code for error in results.values()] == [
                    ErrorCode.TOPIC_DELETION_DISABLED
                ] * 2

    run(main)


def test_groups_of_all_coordinators_are_listed_once_loading_ones_too() -> None:
    async def main() -> None:
        async with Peer(1) as one, Peer(2) as two:
            nodes = PeerCluster(one, two)
            loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            two.once(ListGroupsRequest, lambda _: loading)
            for peer, names in ((one, "ac"), (two, "b")):
                groups = [ListedGroup(group_id=name, protocol_type="consumer") for name in names]
                peer.on(ListGroupsRequest, lambda _, groups=groups: ListGroupsResponse(groups=groups))  # type: ignore[misc]
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                assert [group.group_id for group in await Admin(cluster).list_groups()] == ["a", "b", "c"]

    run(main)


def test_a_refusal_names_the_topic_and_the_nodes_own_words() -> None:
    async def main() -> None:
        async with Peer() as peer:
            nodes = PeerCluster(peer)
            result = CreatableTopicResult(
                name="t",
                error_code=ErrorCode.INVALID_REPLICATION_FACTOR,
                error_message="only 1 node is alive",
            )
            peer.on(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[result]))
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                with pytest.raises(
                    ProtocolError, match="INVALID_REPLICATION_FACTOR: topic t: only 1 node is alive"
                ):
                    await Admin(cluster).create_topic(NewTopic(name="t", replication_factor=3))

    run(main)


def test_records_are_deleted_at_the_leader_that_took_over() -> None:
    async def main() -> None:
        async with Peer(1) as one, Peer(2) as two:
            nodes = PeerCluster(one, two)
            nodes.leaders["t"] = [1]

            def moved(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
                nodes.leaders["t"], nodes.leader_epoch = [2], 1
                return deleted(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

            one.on(DeleteRecordsRequest, moved)
            two.on(DeleteRecordsRequest, deleted)
            async with Cluster(nodes.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                partition = TopicPartition("t", 0)
                assert await Admin(cluster).delete_records({partition: 5}) == {partition: 5}
                with pytest.raises(ProtocolError, match="no partition t-1"):
                    await Admin(cluster, timeout_ms=60).delete_records({TopicPartition("t", 1): 5})

    run(main)


def deleted(request: DeleteRecordsRequest, code: ErrorCode = ErrorCode.NONE) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=cut.partition_index, low_watermark=cut.offset, error_code=code
                    )
                    for cut in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
