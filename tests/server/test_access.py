"""Every API asks the authoriser, is refused with the error that belongs to it, and gives nothing away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from broker.client.connection import Connection
from broker.errors import ErrorCode
from broker.server.dispatch import Route
from broker.server.routes import ROUTES
from broker.server.security import CLUSTER, Operation, Requester, Resource, ResourceKind
from broker.wire.message import Request
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from broker.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from broker.wire.registry import api_of
from broker.wire.schema import Struct
from tests.server.guarded_requests import GUARDED, SECRET, VERSIONS, guarded
from tests.server.running_node import running_node

PUBLIC = {"ApiVersions", "DescribeCluster"}
"""What anyone may ask, as in Kafka."""
SILENT = {
    (ListGroupsRequest, Operation.DESCRIBE, ResourceKind.GROUP): "groups are left out",
    (ListTransactionsRequest, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID): "ids are left out",
    (DescribeTransactionsRequest, Operation.DESCRIBE, ResourceKind.TOPIC): "topics are left out",
    (DeleteTopicsRequest, Operation.DESCRIBE, ResourceKind.TOPIC): "the name behind an id is left out",
}
"""What is refused by leaving out; each has a test of its own."""
CODES = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
WIDER = {
    (Operation.CREATE, ResourceKind.TOPIC): {(Operation.CREATE, ResourceKind.CLUSTER)},
    (Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER): {(Operation.WRITE, ResourceKind.TOPIC)},
    (Operation.DESCRIBE, ResourceKind.TOPIC): {(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)},
    (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER): {(Operation.ALTER, ResourceKind.CLUSTER)},
}
"""Other rights that let the same request pass."""
LOG_DIRS_ERROR_FROM = 3


class DenySome:
    """Allows everything but what the test denies, and keeps what it was asked."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, ResourceKind]] = set()
        self.denies_everything = False
        self.asked: set[tuple[Operation, ResourceKind]] = set()

    def allows(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        assert requester.peer.host == "127.0.0.1"
        assert str(requester.principal) == "User:ANONYMOUS"
        assert resource.kind is not ResourceKind.CLUSTER or resource == CLUSTER
        self.asked.add((operation, resource.kind))
        return not self.denies_everything and (operation, resource.kind) not in self.denied


class Guarded(NamedTuple):
    """A node with a topic and groups of both protocols, its authoriser, and a way to ask."""

    authoriser: DenySome
    connection: Connection
    topic_id: UUID

    async def ask(
        self, request: type[Request[Any]], version: int, kind: ResourceKind = ResourceKind.TOPIC
    ) -> Any:
        built = guarded(request, kind)(version, self.topic_id)
        return await self.connection.request(built, version)


@contextlib.asynccontextmanager
async def guarded_node(directory: Path) -> AsyncIterator[Guarded]:
    authoriser = DenySome()
    async with (
        running_node(directory, authoriser=authoriser) as (listener, *_),
        await Connection.open(listener.address) as connection,
    ):
        new = CreatableTopic(name=SECRET, num_partitions=1, replication_factor=1)
        await connection.request(CreateTopicsRequest(topics=[new]))
        (topic,) = (await connection.request(MetadataRequest(topics=None))).topics
        node = Guarded(authoriser, connection, topic.topic_id)
        await node.ask(FindCoordinatorRequest, 4)
        await node.ask(FindCoordinatorRequest, 4, ResourceKind.TRANSACTIONAL_ID)
        commit = OffsetCommitRequest(
            group_id=SECRET,
            topics=[
                OffsetCommitRequestTopic(
                    name=SECRET,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=7, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        answer = await connection.request(commit)
        assert answer.topics[0].partitions[0].error_code == 0
        await open_transaction(connection)
        joined = await node.ask(ConsumerGroupHeartbeatRequest, 1)
        assert joined.error_code == 0
        authoriser.asked.clear()
        yield node


async def open_transaction(connection: Connection) -> None:
    """One of the id called `secret`, which writes to the topic."""
    made = await connection.request(
        InitProducerIdRequest(transactional_id=SECRET, transaction_timeout_ms=60_000)
    )
    assert made.error_code == 0
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=SECRET,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=SECRET, partitions=[0])],
    )
    assert not set(codes_in(await connection.request(adding, 3))) - {0}


def codes_in(value: Any) -> Iterator[int]:
    """Every error code anywhere in a response."""
    for name in value.__slots__ if isinstance(value, Struct) else ():
        field = getattr(value, name)
        if name.endswith("error_code"):
            yield field
        for part in field if isinstance(field, list) else [field]:
            yield from codes_in(part)


def needs() -> Iterator[tuple[Route, Operation, ResourceKind]]:
    """Everything that any API needs and whose absence shows in an error."""
    for route in ROUTES:
        for operation, kind in sorted(route.rule.needs):
            if (route.request, operation, kind) not in SILENT:
                yield route, operation, kind


def test_every_api_has_a_rule_and_a_request_to_try_it_with() -> None:
    without_rule = {api_of(route.request).name for route in ROUTES if not route.rule.needs}
    assert without_rule == PUBLIC
    untried = [api_of(route.request).name for route in ROUTES if route.request not in GUARDED]
    assert not untried, "these need a request in guarded_requests"


def test_every_api_asks_for_what_its_rule_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            node.authoriser.denied = {
                (Operation.CREATE, ResourceKind.CLUSTER),
                (Operation.DESCRIBE, ResourceKind.CLUSTER),
                (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
            }
            for route in ROUTES:
                if route.request is DeleteTopicsRequest:
                    continue  # last, as the others are about the topic
                node.authoriser.asked.clear()
                for _, kind in route.rule.needs:
                    versions = VERSIONS.get((route.request, kind), range(100))
                    await node.ask(route.request, min(route.newest, versions[-1]), kind)
                if not route.rule.needs:
                    await node.ask(route.request, route.newest)
                assert node.authoriser.asked >= route.rule.needs, api_of(route.request).name
            node.authoriser.asked.clear()
            await node.ask(DeleteTopicsRequest, DeleteTopicsRequest.max_version)
            assert node.authoriser.asked >= {
                (Operation.DELETE, ResourceKind.TOPIC),
                (Operation.DESCRIBE, ResourceKind.TOPIC),
            }

    asyncio.run(scenario())


def test_whoever_lacks_a_right_gets_its_error_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            for route, operation, kind in needs():
                node.authoriser.denied = {(operation, kind)} | WIDER.get((operation, kind), set())
                needing = VERSIONS.get((route.request, kind), range(100))
                for version in filter(needing.__contains__, range(route.oldest, route.newest + 1)):
                    answer = await node.ask(route.request, version, kind)
                    place = f"{api_of(route.request).name} {version} without {operation.name} {kind.name}"
                    if route.request is DescribeLogDirsRequest and version < LOG_DIRS_ERROR_FROM:
                        assert not answer.results, place
                    else:
                        assert CODES[kind] in codes_in(answer), place

    asyncio.run(scenario())


def test_whoever_may_nothing_learns_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            node.authoriser.denies_everything = True
            for route in ROUTES:
                if api_of(route.request).name in PUBLIC:
                    continue
                for version in range(route.oldest, route.newest + 1):
                    answer = await node.ask(route.request, version)
                    refused = {code for code in codes_in(answer) if code}
                    assert refused <= set(CODES.values()), (api_of(route.request).name, version)

    asyncio.run(scenario())


def test_lists_leave_out_what_may_not_be_seen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            connection = node.connection
            every_topic = MetadataRequest(topics=None)
            every_offset = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=SECRET, topics=None)])
            assert SECRET in [topic.name for topic in (await connection.request(every_topic)).topics]
            assert (await connection.request(ListGroupsRequest())).groups
            assert (await connection.request(every_offset)).groups[0].topics

            node.authoriser.denied = {(Operation.DESCRIBE, ResourceKind.TOPIC)}
            assert (await connection.request(every_topic)).topics == []
            offsets = (await connection.request(every_offset)).groups[0]
            assert (offsets.error_code, offsets.topics) == (0, [])

            node.authoriser.denied = {
                (Operation.DESCRIBE, ResourceKind.GROUP),
                (Operation.DESCRIBE, ResourceKind.CLUSTER),
            }
            groups = await connection.request(ListGroupsRequest())
            assert (groups.error_code, groups.groups) == (0, [])

            described = DescribeTransactionsRequest(transactional_ids=[SECRET])
            assert (await connection.request(described)).transaction_states[0].topics
            assert (await connection.request(ListTransactionsRequest())).transaction_states
            node.authoriser.denied = {
                (Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID),
                (Operation.DESCRIBE, ResourceKind.TOPIC),
            }
            assert (await connection.request(ListTransactionsRequest())).transaction_states == []
            node.authoriser.denied = {(Operation.DESCRIBE, ResourceKind.TOPIC)}
            (state,) = (await connection.request(described)).transaction_states
            assert (state.error_code, state.transaction_state, state.topics) == (0, "Ongoing", [])

    asyncio.run(scenario())


def test_neither_the_name_behind_an_id_nor_the_id_of_a_name_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            node.authoriser.denied = {(Operation.DESCRIBE, ResourceKind.TOPIC)}
            by_name, by_id = (await node.ask(MetadataRequest, MetadataRequest.max_version)).topics
            assert (by_name.name, by_name.topic_id) == (SECRET, UUID(int=0))
            assert (by_id.name, by_id.topic_id) == (None, node.topic_id)
            assert (by_name.partitions, by_id.partitions) == ([], [])

            node.authoriser.denied.add((Operation.DELETE, ResourceKind.TOPIC))
            answer = await node.ask(DeleteTopicsRequest, DeleteTopicsRequest.max_version)
            by_name, by_id = answer.responses
            assert (by_name.name, by_name.topic_id) == (SECRET, UUID(int=0))
            assert (by_id.name, by_id.topic_id) == (None, node.topic_id)

    asyncio.run(scenario())


def test_whoever_may_alter_the_cluster_may_end_a_transaction_that_hangs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            action, alter = (
                (operation, ResourceKind.CLUSTER) for operation in (Operation.CLUSTER_ACTION, Operation.ALTER)
            )
            for denied in ({alter}, {action}):
                node.authoriser.denied = denied
                assert not any(codes_in(await node.ask(WriteTxnMarkersRequest, 1))), denied
            node.authoriser.denied = {action, alter}
            refused = set(codes_in(await node.ask(WriteTxnMarkersRequest, 1)))
            assert refused == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    asyncio.run(scenario())


def test_an_expression_finds_no_topic_that_may_not_be_described(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            for group, denied, found in (
                ("blind", {(Operation.DESCRIBE, ResourceKind.TOPIC)}, []),
                ("seeing", set(), [node.topic_id]),
            ):
                node.authoriser.denied = denied
                joining = ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id="m",
                    rebalance_timeout_ms=1_000,
                    subscribed_topic_regex=f"{SECRET}.*",
                    topic_partitions=[],
                )
                answer = await node.connection.request(joining)
                assert (answer.error_code, answer.member_epoch) == (0, 1)
                assert [topic.topic_id for topic in answer.assignment.topic_partitions] == found

    asyncio.run(scenario())


def test_a_topic_that_may_not_be_created_is_not_created_by_looking(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            node.authoriser.denied = {
                (Operation.CREATE, ResourceKind.TOPIC),
                (Operation.CREATE, ResourceKind.CLUSTER),
            }
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
            (topic,) = (await node.connection.request(asked)).topics
            assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            names = [topic.name for topic in (await node.connection.request(MetadataRequest())).topics]
            assert "new" not in names

    asyncio.run(scenario())


def test_settings_of_a_new_topic_are_told_to_those_who_may_see_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            node.authoriser.denied = {(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC)}
            new = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
            (topic,) = (await node.connection.request(CreateTopicsRequest(topics=[new]))).topics
            assert (topic.error_code, topic.configs, topic.num_partitions) == (0, None, -1)
            assert topic.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    asyncio.run(scenario())


def test_allowed_operations_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_node(tmp_path) as node:
            ask = node.connection.request
            node.authoriser.denied = {
                (Operation.WRITE, ResourceKind.TOPIC),
                (Operation.DELETE, ResourceKind.GROUP),
                (Operation.ALTER, ResourceKind.CLUSTER),
            }
            metadata = await ask(MetadataRequest(topics=None, include_topic_authorized_operations=True))
            allowed = {topic.name: topic.topic_authorized_operations for topic in metadata.topics}[SECRET]
            assert operations_in(allowed) == {
                "READ",
                "CREATE",
                "DELETE",
                "ALTER",
                "DESCRIBE",
                "DESCRIBE_CONFIGS",
                "ALTER_CONFIGS",
            }
            groups = await ask(DescribeGroupsRequest(groups=[SECRET], include_authorized_operations=True))
            assert operations_in(groups.groups[0].authorized_operations) == {
                "READ",
                "DESCRIBE",
                "DESCRIBE_CONFIGS",
                "ALTER_CONFIGS",
            }
            cluster = await ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
            assert "ALTER" not in operations_in(cluster.cluster_authorized_operations)
            assert "CREATE" in operations_in(cluster.cluster_authorized_operations)

            node.authoriser.denied.add((Operation.DESCRIBE, ResourceKind.CLUSTER))
            cluster = await ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
            assert cluster.cluster_authorized_operations == 0

    asyncio.run(scenario())


def operations_in(bits: int) -> set[str]:
    return {operation.name for operation in Operation if bits & 1 << operation}
