"""A request that is taken for a repetition is the one that the general decoder reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import WireError
from broker.server.repeated_requests import Repeated, RepeatedRequests
from broker.server.request import RequestContext
from broker.server.security import ANONYMOUS, Listener, SecurityProtocol
from broker.types import HostPort
from broker.wire.header import decode_request_header, encode_request
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = range(ProduceRequest.max_version + 1)


class Session:
    """Stands where a connection would."""

    peer = HostPort("127.0.0.1", 1)
    listener = Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, address=peer)
    principal = ANONYMOUS
    client_software = ("", "")
    fetch_turn = 0


def frame_of(
    version: int, correlation_id: int, size: int, *, topic: str = "t", index: int = 0, acks: int = 1
) -> memoryview:
    data = [PartitionProduceData(index=index, records=random.Random(size).randbytes(size))]
    request = ProduceRequest(
        acks=acks, timeout_ms=5, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    parts = encode_request(request, version, correlation_id, "client")
    return memoryview(b"".join(map(bytes, parts)))[4:]


def decoded(frame: memoryview) -> tuple[RequestContext, ProduceRequest]:
    header = decode_request_header(frame)
    request, _ = ProduceRequest.decode_prefix(frame, header.api_version, header.body_position)
    return RequestContext(Session(), header.api_version, header.correlation_id, header.client_id), request


def taught(*frames: memoryview) -> RepeatedRequests:
    repeated = RepeatedRequests()
    for frame in frames:
        repeated.learn(frame, *decoded(frame))
    return repeated


def assert_same(found: Repeated, frame: memoryview) -> None:
    context, request = decoded(frame)
    assert found.request == request
    assert found.context.api_version == context.api_version
    assert found.context.correlation_id == context.correlation_id
    assert found.context.client_id == context.client_id


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 40_000), min_size=2, max_size=5), acks=st.sampled_from([-1, 0, 1]))
def test_requests_that_differ_in_their_records_are_recognised(
    version: int, sizes: list[int], acks: int
) -> None:
    repeated = taught(frame_of(version, 0, sizes[0], acks=acks))
    for correlation_id, size in enumerate(sizes):
        frame = frame_of(version, correlation_id, size, acks=acks)
        found = repeated.match(frame)
        assert found is not None
        assert_same(found, frame)


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
def test_lengths_around_every_width_of_their_encoding_are_recognised(size: int) -> None:
    repeated = taught(frame_of(9, 1, size))
    for other in (size, 5, 20_000):
        found = repeated.match(frame_of(9, 2, other))
        assert found is not None
        assert_same(found, frame_of(9, 2, other))


@pytest.mark.parametrize("version", VERSIONS)
def test_other_partitions_topics_and_acks_are_not_mistaken(version: int) -> None:
    repeated = taught(frame_of(version, 1, 100), frame_of(version, 1, 100, index=1))
    for frame in (
        frame_of(version, 2, 100, index=1),
        frame_of(version, 2, 100, index=2),
        frame_of(version, 2, 100, topic="u"),
        frame_of(version, 2, 100, topic="longer"),
        frame_of(version, 2, 100, acks=-1),
    ):
        found = repeated.match(frame)
        if found is not None:
            assert_same(found, frame)
    assert repeated.match(frame_of(version, 2, 100, index=2)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_never_taken_for_another_request(version: int) -> None:
    repeated = taught(frame_of(version, 1, 60))
    original = bytes(frame_of(version, 1, 60))
    for position in range(len(original)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(original)
            damaged[position] ^= change
            check_as_decoder(repeated, memoryview(damaged))
    for cut in range(len(original)):
        check_as_decoder(repeated, memoryview(original[:cut]))
        check_as_decoder(repeated, memoryview(original + original[:cut]))


def check_as_decoder(repeated: RepeatedRequests, frame: memoryview) -> None:
    """A frame that is recognised is one that the decoder reads, and reads the same."""
    found = repeated.match(frame)
    if found is None:
        return
    try:
        assert_same(found, frame)
    except WireError as error:
        pytest.fail(f"recognised what cannot be read: {error}")


def test_requests_of_several_partitions_are_not_learnt() -> None:
    data = [PartitionProduceData(index=index, records=b"x" * 50) for index in range(2)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    frame = memoryview(b"".join(map(bytes, encode_request(request, 9, 1, "client"))))[4:]
    repeated = RepeatedRequests()
    assert repeated.learn(frame, *decoded(frame)) is None
    assert repeated.match(frame) is None
