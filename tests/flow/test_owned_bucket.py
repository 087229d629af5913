"""What a bucket says of records from elsewhere, for whoever takes it over."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mirrormaker.flow import owned_bucket
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.owned_bucket import OwnedBucket, Terrain
from mirrormaker.flow.positions import Arrival
from mirrormaker.flow.producers import ProducerKey
from tests.client.peers import Peer, serving
from tests.client.running import QUICK, run

SOURCE, COPY, OTHER = TopicPartition("flights", 0), TopicPartition("copy", 0), TopicPartition("copy", 1)
LANES: Any = SimpleNamespace(
    lanes=[SimpleNamespace(index=0, destination=COPY), SimpleNamespace(index=1, destination=OTHER)]
)


def copied(first: int, to: int | None, *runs: SourceRun, destination: TopicPartition = COPY) -> Copied:
    count = sum(run.length for run in runs) or 1
    return Copied(
        source=SOURCE,
        first=first,
        next=first + count,
        destination=destination,
        base_offset=to,
        count=count,
        crc=5,
        source_crc=6,
        max_timestamp=0,
        append_time_ms=None,
        origin=1,
        runs=runs,
    )


def told(bucket: OwnedBucket) -> list[Arrival]:
    return bucket._arrived[1, SOURCE]


@pytest.fixture
def bucket() -> OwnedBucket:
    terrain: Any = None
    return OwnedBucket(ProducerKey(0, 0, None), terrain, None)


def test_records_of_which_the_destination_does_not_say_where_they_are_are_told_of_as_such(
    bucket: OwnedBucket,
) -> None:
    for each in (copied(0, 10), copied(4, None), copied(7, None), copied(9, 20)):
        bucket.note_arrival(each, LANES)
    assert told(bucket) == [
        Arrival(0, 0, 1, 10, 5, 6),
        Arrival(0, 4, 4, None, None, None),
        Arrival(0, 9, 1, 20, 5, 6),
    ]


@pytest.mark.parametrize(
    ("asked", "lacking"), [(FindCoordinatorRequest, "Describe"), (InitProducerIdRequest, "Write")]
)
def test_which_right_to_a_transactional_id_is_missing_is_told(asked: type, lacking: str) -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (name,) = request.coordinator_keys
        refused = Coordinator(key=name, error_code=code, node_id=-1, host="", port=-1)
        return FindCoordinatorResponse(coordinators=[refused])

    is_found = asked is InitProducerIdRequest
    answer: Any = (lambda _: InitProducerIdResponse(error_code=code)) if is_found else find
    with pytest.raises(ProtocolError, match=f"{lacking} transactional id '.*' at 'aggregate'"):
        fence(asked, answer, commit_interval_ms=100)


def test_of_a_commit_interval_that_is_too_long_for_transactions_the_setting_is_told() -> None:
    refused = InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    expected = "'commit_interval_ms' is too long for 'aggregate': a transaction of 1225 s is beyond its"
    with pytest.raises(ProtocolError, match=f"{expected} 'transaction.max.timeout.ms'"):
        fence(InitProducerIdRequest, lambda _: refused, commit_interval_ms=1_200_000)


def fence(asked: type, answer: Callable[[Any], Any], *, commit_interval_ms: int) -> None:
    """Take a bucket over at a destination that answers such a request so."""

    async def main() -> None:
        async with serving([peer := Peer()], partitions=1) as nodes:
            peer.on(asked, answer)
            async with Cluster(nodes.bootstrap, backoff=QUICK, name="aggregate") as cluster:
                route: Any = SimpleNamespace(name="mine", commit_interval_ms=commit_interval_ms)
                terrain = Terrain(
                    route=route,
                    destination=cluster,
                    clock=SystemClock(),
                    lane="lane",
                    path_of=lambda origin: (),
                    id_of=cast(Any, None),
                )
                await OwnedBucket(ProducerKey(0, 0, None), terrain, None).fence(0)

    run(main)


def test_more_stretches_than_there_is_room_for_are_told_of_as_one_of_each_lane(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_bucket, "ARRIVALS_MAX", 2)
    bucket.note_arrival(copied(0, 10, *(SourceRun(at, 1) for at in (0, 2, 4, 6))), LANES)
    bucket.note_arrival(copied(7, 10, destination=OTHER), LANES)
    bucket.note_arrival(copied(9, 14), LANES)
    bucket.note_arrival(copied(11, 11, destination=OTHER), LANES)
    assert told(bucket) == [
        Arrival(0, 0, 1, 10, None, None),
        Arrival(0, 2, 1, 11, None, None),
        Arrival(0, 4, 6, None, None, None),
        Arrival(1, 7, 5, None, None, None),
    ]
