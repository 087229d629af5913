"""Headers by version, and the frames around messages."""

from __future__ import annotations

from struct import pack

import pytest

from broker.errors import WireError
from broker.wire.framing import FrameReader
from broker.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    read_correlation_id,
)
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.registry import APIS, Api, api_of


def frame_of(parts: list[bytes]) -> bytes:
    (frame,) = FrameReader(1 << 20).feed(b"".join(parts))
    return bytes(frame)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_of_every_api_and_version_comes_back_from_its_frame(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for client_id in ("client-1", "", None):
            frame = frame_of(encode_request(api.request(), version, 77, client_id))
            header = decode_request_header(frame)
            expected_id = None if api.request_header_version(version) == 0 else client_id
            assert header[:4] == (api.key, version, 77, expected_id)
            assert api.request.decode(frame, version, header.body_position) == api.request()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_response_of_every_api_and_version_comes_back_from_its_frame(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        frame = frame_of(encode_response(api.response(), api, version, 78))
        assert read_correlation_id(frame) == 78
        assert decode_response(api, version, frame) == (78, api.response())


def test_header_versions_follow_the_flexible_versions_of_the_message() -> None:
    metadata = api_of(MetadataRequest)
    assert [metadata.request_header_version(version) for version in (0, 8, 9, 12)] == [1, 1, 2, 2]
    assert [metadata.response_header_version(version) for version in (0, 8, 9, 12)] == [0, 0, 1, 1]


def test_an_api_versions_response_always_has_the_oldest_header() -> None:
    api = api_of(ApiVersionsRequest)
    assert [api.request_header_version(version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert [api.response_header_version(version) for version in range(5)] == [0, 0, 0, 0, 0]
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = b"".join(encode_response(response, api, 3, 5))
    assert frame == frame_with_size("00000005 0000 02 0012 0000 0004 00 00000000 00")


def frame_with_size(hexadecimal: str) -> bytes:
    body = bytes.fromhex(hexadecimal)
    return pack(">i", len(body)) + body


def test_controlled_shutdown_0_has_a_header_without_client_id() -> None:
    api = api_of(ControlledShutdownRequest)
    assert [api.request_header_version(version) for version in range(4)] == [0, 1, 1, 2]
    parts = encode_request(ControlledShutdownRequest(broker_id=3), 0, 9, "ignored")
    assert b"".join(parts) == frame_with_size("0007 0000 00000009 00000003")


def test_a_flexible_request_header_ends_with_tagged_fields() -> None:
    parts = encode_request(MetadataRequest(topics=None), 12, 9, "ab")
    assert b"".join(parts) == frame_with_size("0003 000c 00000009 0002 6162 00 00 01 00 00")
    tagged = bytes.fromhex("0003 000c 00000009 0002 6162 01 05 02 ffff 00 01 00 00")
    header = decode_request_header(tagged)
    assert MetadataRequest.decode(tagged, 12, header.body_position) == MetadataRequest(topics=None)


def test_the_header_of_an_unknown_version_can_be_read() -> None:
    frame = bytes.fromhex("0012 0063 00000007 ffff 00")
    assert decode_request_header(frame) == RequestHeader(18, 99, 7, None, 11)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0003",
        "0003 000c 00000009",
        "0003 000c 00000009 0002 61",
        "0003 000c 00000009 0002 6162",
        "0003 000c 00000009 0002 ff62 00",
        "0003 000c 00000009 fffe 6162",
        "0003 000c 00000009 ffff ff ff ff ff ff",
        "0003 000c 00000009 ffff 01 01 7f",
        "7fff 0000 00000009 ffff",
    ],
)
def test_a_torn_or_garbled_request_header_is_refused(frame: str) -> None:
    with pytest.raises(WireError):
        decode_request_header(bytes.fromhex(frame))


def test_a_torn_response_header_is_refused() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\1\x7f"):
        with pytest.raises(WireError):
            decode_response(api_of(MetadataResponse), 12, frame)


def test_a_client_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WireError, match="client id"):
        encode_request(MetadataRequest(), 1, 1, "x" * 40_000)


def test_records_of_a_produce_request_stay_their_own_part() -> None:
    batch = memoryview(bytes(5000))
    partitions = [PartitionProduceData(index=number, records=batch) for number in range(2)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    for version in range(ProduceRequest.min_version, ProduceRequest.max_version + 1):
        parts = encode_request(request, version, 1, "c")
        assert [part is batch for part in parts].count(True) == 2
        frame = frame_of(parts)
        header = decode_request_header(frame)
        decoded = ProduceRequest.decode(frame, version, header.body_position)
        assert decoded == request
        records = decoded.topic_data[0].partition_data[1].records
        assert isinstance(records, memoryview)
        assert records.obj is frame


def test_records_that_are_no_buffer_but_have_a_length_travel_as_they_are() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 7

    held = FileRange()
    partition = PartitionData(partition_index=1, records=held)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    parts = encode_response(response, api_of(FetchResponse), 12, 1)
    assert sum(part is held for part in parts) == 1
    frame = frame_of([b"records" if part is held else part for part in parts])
    _, decoded = decode_response(api_of(FetchResponse), 12, frame)
    assert decoded.responses[0].partitions[0].records == b"records"
    with pytest.raises(WireError):
        response.encode(12)
