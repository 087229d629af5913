"""Our members of the consumer protocol (KIP-848) against real nodes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.assignors import CooperativeStickyAssignor, RangeAssignor
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import AnyGroupSettings, ConsumerGroupSettings, GroupSettings
from broker.client.subscription import SubscriptionPattern
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from tests.client.reading_members import (
    PARTITIONS,
    QUICK_CONSUMER_GROUPS,
    READ_ALL,
    SHORT_SESSIONS,
    Brokers,
    ReadingProcess,
    scene,
)
from tests.client.running import until, until_told
from tests.conftest import ClusterFactory

_Result = TypeVar("_Result")
NEW = ConsumerGroupSettings(group_id="g")
OLD = GroupSettings(group_id="g", session_timeout_ms=45_000, heartbeat_interval_ms=100)
STATIC = ConsumerGroupSettings(group_id="g", instance_id="desk-1")


def run(main: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run `main()` on a loop of its own, within a time limit that leaves time for sessions to end."""

    async def limited() -> _Result:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(limited())


@pytest.fixture
def quick(cluster: ClusterFactory) -> Brokers:
    """A cluster whose members are heard often, and not given up where they are late for once."""
    return cluster(settings=QUICK_CONSUMER_GROUPS)


@pytest.fixture
def hasty(cluster: ClusterFactory) -> Brokers:
    """A cluster whose members are given up soon."""
    return cluster(settings=SHORT_SESSIONS)


def test_members_share_the_partitions_as_they_come_and_go_and_read_each_record_once(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            await group.send()
            first = await group.join(NEW)
            await until(lambda: group.is_shared_out([first]) and group.is_read())
            second, third = await group.join(NEW), await group.join(NEW)
            await until(lambda: group.is_shared_out([first, second, third]))
            await group.send()
            await until(group.is_read)
            await second.close()
            await until(lambda: group.is_shared_out([first, third]))
            await group.send()
            await until(group.is_read)
            assert set(group.counts().values()) == {1}
            assert not any(what == "lost" for reader in group.readers for what, _ in reader.told)

            async def described() -> tuple[str, int]:
                told = (await Admin(group.client).describe_groups(["g"]))["g"]
                return told.state, len(told.members)

            await until_told(("Stable", 2), described)
            await first.close()
            await third.close()
            assert await group.committed("g") == dict.fromkeys(range(PARTITIONS), 30)

    run(main)


def test_partitions_pass_on_when_the_listener_has_run_and_positions_are_stored(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            await group.send()
            settings = replace(READ_ALL, auto_commit_interval_ms=60_000)
            first = await group.join(NEW, settings=settings)
            await until(group.is_read)
            first.may_give_up.clear()
            second = await group.join(NEW, settings=settings)
            await until(lambda: len(first.told) == 2)
            what, given_up = first.told[-1]
            assert (what, len(given_up)) == ("revoked", PARTITIONS // 2)
            member = second.consumer.member
            assert member is not None
            await until(lambda: member.generation > 0)
            described = (await Admin(group.client).describe_groups(["g"]))["g"]
            assert [len(each.assignment or ()) for each in described.members].count(0) == 1
            assert (second.has, await group.committed("g")) == (frozenset(), {})
            first.may_give_up.set()
            await until(lambda: group.is_shared_out([first, second]))
            assert second.has == given_up
            stored = await group.committed("g")
            assert {partition.partition: 10 for partition in given_up} == stored
            await group.send()
            await until(group.is_read)
            assert set(group.counts().values()) == {1}

    run(main)


def test_a_member_that_is_killed_is_replaced_when_its_session_ends(hasty: Brokers, tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(hasty) as group:
            await group.send()
            first = await group.join(NEW)
            await until(lambda: group.is_shared_out([first]) and group.is_read())
            killed = ReadingProcess(hasty, tmp_path, "g", group.topic)
            try:
                await until(lambda: len(first.has) == PARTITIONS // 2)
                await group.send()
                await until(lambda: group.is_read(killed))
                assert killed.has
                assert killed.has.isdisjoint(first.has)
            finally:
                killed.kill()
            await group.send()
            await until(lambda: group.is_read(killed))
            assert group.is_shared_out([first])

    run(main)


def test_a_static_member_comes_back_to_its_partitions_and_holds_its_name_meanwhile(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            other = await group.join(NEW)
            first = await group.join(STATIC)
            await until(lambda: group.is_shared_out([first, other]))
            had, told = first.has, len(other.told)
            twin = await group.join(STATIC)
            await until(lambda: twin.failure is not None)
            assert isinstance(twin.failure, ProtocolError)
            assert twin.failure.code is ErrorCode.UNRELEASED_INSTANCE_ID
            assert "desk-1" in str(twin.failure)
            await first.close()
            back = await group.join(STATIC)
            await until(lambda: back.has == had)
            assert len(other.told) == told, "nobody else was bothered"

    run(main)


def test_a_pattern_brings_topics_that_come_later_and_gives_way_to_names(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick, topic="departures-1") as group:
            reader = await group.join(NEW, SubscriptionPattern("(departures|arrivals)-[0-9]{1,2}"))
            await until(lambda: group.is_shared_out([reader]))
            for topic in ("arrivals-22", "arrivals-333"):
                await Admin(group.client).create_topic(
                    NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)
                )
            await group.send(topic="arrivals-22")
            await until(lambda: group.is_shared_out([reader], {"departures-1", "arrivals-22"}))
            await until(group.is_read)
            reader.consumer.subscribe(["arrivals-333"])
            await until(lambda: group.is_shared_out([reader], {"arrivals-333"}))
            by_choice = await group.join(
                replace(NEW, group_id="h"),
                lambda metadata: [each for each in metadata.topics if "-3" in each],
            )
            await until(lambda: group.is_shared_out([by_choice], {"arrivals-333"}))

    run(main)


def test_what_cannot_be_ends_the_consumer_with_what_the_node_says(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            for settings, subscription, message in (
                (replace(NEW, remote_assignor="by-moon"), ["t"], "UNSUPPORTED_ASSIGNOR.*by-moon"),
                (NEW, SubscriptionPattern("("), "INVALID_REGULAR_EXPRESSION"),
            ):
                reader = await group.join(settings, subscription)
                await until(lambda reader=reader: reader.failure is not None)
                assert re.search(message, str(reader.failure))
            ranged = await group.join(replace(NEW, remote_assignor="range"))
            await until(lambda: group.is_shared_out([ranged]))

    run(main)


def test_a_live_classic_group_is_upgraded_by_restarting_its_members_one_by_one(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            members = [
                await group.join(OLD, assignors=[CooperativeStickyAssignor(), RangeAssignor()])
                for _ in range(2)
            ]
            await group.send()
            await until(lambda: group.is_shared_out(members) and group.is_read())
            for number in range(2):
                await members[number].close()
                members[number] = await group.join(NEW)
                await group.send()
                await until(lambda: group.is_shared_out(members) and group.is_read())
            assert set(group.counts().values()) == {1}
            for member in members:
                await member.close()
            assert await group.committed("g") == dict.fromkeys(range(PARTITIONS), 30)

    run(main)


def test_positions_are_stored_for_a_member_only_and_found_again(quick: Brokers) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            await group.send()
            by_hand = replace(READ_ALL, auto_commit_interval_ms=0)
            reader = await group.join(NEW, settings=by_hand)
            await until(group.is_read)
            partition = TopicPartition("t", 1)
            await reader.consumer.commit({partition: OffsetAndMetadata(offset=4, metadata="here")})
            found = await reader.consumer.committed([partition])
            assert (found[partition].offset, found[partition].metadata) == (4, "here")
            async with Consumer(group.client, group=NEW) as outsider:
                outsider.assign([partition])
                with pytest.raises(ProtocolError, match="UNKNOWN_MEMBER_ID"):
                    await outsider.commit({partition: OffsetAndMetadata(offset=1)})
            await reader.close()
            again = await group.join(NEW, settings=by_hand)
            await until(lambda: len(again.values) == 36)

    run(main)


def test_a_group_outlives_its_coordinator(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with scene(nodes, replicas=3) as group:
            members = [await group.join(NEW) for _ in range(2)]
            await group.send()
            await until(lambda: group.is_shared_out(members) and group.is_read())
            coordinator = await group.client.coordinator("g")
            await asyncio.to_thread(nodes.kill_node, coordinator)
            await group.send()
            await until(group.is_read)
            members.append(await group.join(NEW))
            await until(lambda: group.is_shared_out(members))
            await group.send()
            await until(group.is_read)
            for member in members:
                await member.close()
            assert await group.committed("g") == dict.fromkeys(range(PARTITIONS), 30)

    nodes = cluster(
        brokers=3,
        settings={
            **SHORT_SESSIONS,
            "group.consumer.session.timeout.ms": 20_000,
            "offsets.topic.replication.factor": 3,
            "zookeeper.session.timeout.ms": 2_000,
        },
    )
    run(main)


@pytest.mark.parametrize("group", [NEW, replace(NEW, instance_id="desk-1")], ids=["dynamic", "static"])
def test_a_cluster_without_the_protocol_says_so(cluster: ClusterFactory, group: AnyGroupSettings) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client, Consumer(client, group=group) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ProtocolError, match=r"127.0.0.1:\d+.*consumer protocol.*KIP-848") as refused:
                await consumer.take()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    node = cluster(settings={"group.coordinator.rebalance.protocols": "classic"})
    run(main)
