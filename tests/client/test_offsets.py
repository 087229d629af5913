from __future__ import annotations

import pytest

from broker.client import asking_leaders
from broker.client.cluster import Cluster
from broker.client.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    latest_offsets,
    list_offsets,
    list_offsets_found,
)
from broker.errors import ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import TopicPartition
from broker.wire.messages.list_offsets import ListOffsetsRequest
from tests.client.logs import LEADER_EPOCH, Log, ServingPeer
from tests.client.peers import PeerCluster
from tests.client.running import QUICK, run

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_are_asked_of_each_leader_in_one_request() -> None:
    async def main() -> None:
        async with ServingPeer(1) as one, ServingPeer(2) as two:
            nodes = PeerCluster(one, two)
            nodes.leaders = {"t": [1, 2], "u": [1]}
            for peer, topic, partition, count in ((one, "t", 0, 3), (two, "t", 1, 5), (one, "u", 0, 7)):
                peer.log(topic, partition).append(*[b"v"] * count)
            async with Cluster(nodes.bootstrap) as cluster:
                wanted = {ZERO: LATEST, ONE: 1_500, TopicPartition("u", 0): EARLIEST}
                assert await list_offsets(cluster, wanted) == {
                    ZERO: OffsetAndTimestamp(offset=3, timestamp=-1, leader_epoch=LEADER_EPOCH),
                    ONE: OffsetAndTimestamp(offset=2, timestamp=1_500, leader_epoch=LEADER_EPOCH),
                    TopicPartition("u", 0): OffsetAndTimestamp(
                        offset=0, timestamp=-2, leader_epoch=LEADER_EPOCH
                    ),
                }
                assert len(one.seen(ListOffsetsRequest)) == 1

    run(main)


def test_a_leader_that_moved_is_asked_where_it_went_and_the_others_are_not_asked_again() -> None:
    async def main() -> None:
        logs: dict[TopicPartition, Log] = {}
        async with ServingPeer(1, logs=logs) as one, ServingPeer(2, logs=logs) as two:
            nodes = PeerCluster(one, two)
            nodes.leaders = {"t": [1, 1]}
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:

                def moved(partition: TopicPartition) -> ErrorCode:
                    nodes.leaders, nodes.leader_epoch = {"t": [1, 2]}, 1
                    return ErrorCode.NOT_LEADER_OR_FOLLOWER if partition == ONE else ErrorCode.NONE

                one.trouble = moved
                assert await latest_offsets(cluster, [ZERO, ONE]) == {ZERO: 0, ONE: 0}
                (asked_again,) = two.seen(ListOffsetsRequest)
                assert [partition.partition_index for partition in asked_again.topics[0].partitions] == [1]

    run(main)


def test_a_partition_that_is_not_there_is_an_error_after_the_time() -> None:
    async def main() -> None:
        async with ServingPeer() as peer:
            nodes = PeerCluster(peer)
            nodes.leaders = {"t": [1]}
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                with pytest.raises(ProtocolError, match="there is no partition t-1"):
                    await list_offsets(cluster, {ONE: LATEST}, timeout_ms=40)

    run(main)


def test_a_partition_that_nothing_is_told_of_holds_back_no_other() -> None:
    async def main() -> None:
        async with ServingPeer() as peer:
            nodes = PeerCluster(peer)
            nodes.leaders = {"t": [1, -1, 1, 1]}
            refused, moving = TopicPartition("t", 2), TopicPartition("t", 3)
            codes = {
                refused: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
                moving: [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER],
            }
            peer.trouble = lambda each: codes[each].pop() if codes.get(each) else ErrorCode.NONE
            peer.log("t", 0).append(b"v")
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                wanted = dict.fromkeys([ZERO, ONE, refused, moving], LATEST)
                listed = await list_offsets_found(cluster, wanted, timeout_ms=40)
                assert {each: at.offset for each, at in listed.found.items()} == {ZERO: 1, moving: 0}
                told = {each: getattr(error, "code", None) for each, error in listed.failures.items()}
                assert told == {
                    ONE: ErrorCode.LEADER_NOT_AVAILABLE,
                    refused: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                }
                asked = peer.seen(ListOffsetsRequest)
                assert [len(each.topics[0].partitions) for each in asked] == [3, 1]

    run(main)


def test_a_leader_that_does_not_answer_holds_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_leaders, "_ANSWER_TIMEOUT_MS", 1_000)

    async def main() -> None:
        async with ServingPeer(1) as one, ServingPeer(2) as two:
            nodes = PeerCluster(one, two)
            nodes.leaders = {"t": [1, 2]}
            two.on(ListOffsetsRequest, lambda _: None)
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                listed = await list_offsets_found(cluster, {ZERO: LATEST, ONE: LATEST}, timeout_ms=20)
                assert (list(listed.found), list(listed.failures)) == ([ZERO], [ONE])
                assert isinstance(listed.failures[ONE], RequestTimedOutError)

    run(main)


def test_what_no_further_attempt_mends_is_an_error_at_once() -> None:
    async def main() -> None:
        async with ServingPeer() as peer:
            nodes = PeerCluster(peer)
            nodes.leaders = {"t": [1]}
            peer.trouble = lambda _: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                with pytest.raises(ProtocolError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
                    await list_offsets(cluster, {ZERO: LATEST})
                assert len(peer.seen(ListOffsetsRequest)) == 1

    run(main)


def test_the_oldest_version_is_spoken() -> None:
    async def main() -> None:
        async with ServingPeer() as peer:
            nodes = PeerCluster(peer)
            nodes.leaders = {"t": [1]}
            peer.log().append(b"v")
            peer.versions[ListOffsetsRequest.api_key] = (0, 0)
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                assert await latest_offsets(cluster, [ZERO]) == {ZERO: 1}

    run(main)
