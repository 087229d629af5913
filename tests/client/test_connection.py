from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from broker.client.connection import Connection, ConnectionSettings
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import HostPort
from broker.wire.header import encode_response
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.registry import api_of
from tests.client.peers import Answer, Peer
from tests.client.running import run, until

SETTINGS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)


def groups(*names: str) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in names])


def answered(
    answer: Callable[[ListGroupsRequest], Answer], settings: ConnectionSettings = SETTINGS
) -> ListGroupsResponse:
    """The peer's answer to one request."""

    async def main() -> ListGroupsResponse:
        async with Peer() as peer:
            peer.on(ListGroupsRequest, answer)
            async with await Connection.open(peer.address, settings) as connection:
                return await connection.request(ListGroupsRequest())

    return run(main)


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def test_a_request_is_answered() -> None:
    assert answered(lambda _: groups("g")) == groups("g")


def test_answers_of_requests_in_flight_together_keep_their_order() -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.once(ListGroupsRequest, *[lambda _, name=str(i): groups(name) for i in range(100)])
            async with await Connection.open(peer.address, SETTINGS) as connection:
                answers = [connection.send(ListGroupsRequest()) for _ in range(100)]
                assert connection.in_flight == 100
                assert [answer.groups[0].group_id for answer in await asyncio.gather(*answers)] == [
                    str(i) for i in range(100)
                ]
                assert connection.in_flight == 0

    run(main)


def test_large_requests_are_sent_whole_and_in_order_past_a_full_kernel_buffer() -> None:
    async def main() -> None:
        async with Peer() as peer:
            version = api_of(ProduceRequest).max_version
            settings = ConnectionSettings(send_buffer_bytes=16 * 1024)
            async with await Connection.open(peer.address, settings) as connection:
                for size in (3_000_000, 10, 1_000_000):
                    records = memoryview(bytearray([size % 251])).tobytes() * size
                    data = [PartitionProduceData(index=0, records=records)]
                    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
                    connection.send_and_forget(request, version)
                peer.on(ProduceRequest, lambda _: None)
                await connection.drained()
                await until(lambda: len(peer.seen(ProduceRequest)) == 3)
            seen = [request.topic_data[0].partition_data[0].records for request in peer.seen(ProduceRequest)]
            assert [len(records) for records in seen] == [3_000_000, 10, 1_000_000]
            assert all(set(records[:: max(1, len(records) - 1)]) == {len(records) % 251} for records in seen)

    run(main)


@pytest.mark.parametrize("size", [10, 200_000])
def test_fetched_records_are_writable_and_outlive_the_connection(size: int) -> None:
    async def main() -> memoryview:
        async with Peer() as peer:
            partition = PartitionData(partition_index=0, records=bytes(size))
            response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
            peer.on(FetchRequest, lambda _: response)
            async with await Connection.open(peer.address, SETTINGS) as connection:
                answer = await connection.request(FetchRequest(), 12)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            return records

    records = run(main)
    records[0] = 1
    assert bytes(records) == b"\1" + bytes(size - 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\x00\x00\x00\x02ab", "no correlation id"),
        (frame(b"\x7f\xff\xff\xff" + bytes(20)), "an answer to request 2147483647"),
        (b"\xff\xff\xff\xf0" + bytes(20), "negative"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "limit"),
    ],
)
def test_bytes_that_are_no_answer_close_the_connection_and_name_the_peer(answer: bytes, reason: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:\d+.*" + reason):
        answered(lambda _: answer)


def test_a_garbled_answer_closes_the_connection() -> None:
    def garbled(_: ListGroupsRequest) -> bytes:
        whole = b"".join(encode_response(groups("group"), api_of(ListGroupsRequest), 5, 2))
        return frame(whole[4:-3])

    with pytest.raises(ConnectionFailedError, match="no answer: ListGroupsResponse"):
        answered(garbled)


def test_an_answer_that_nobody_asked_for_closes_the_connection() -> None:
    async def main() -> None:
        async with Peer() as peer:
            whole = b"".join(encode_response(groups("g"), api_of(ListGroupsRequest), 5, 2))
            peer.on(ListGroupsRequest, lambda _: whole + whole)
            async with await Connection.open(peer.address, SETTINGS) as connection:
                assert await connection.request(ListGroupsRequest()) == groups("g")
                await until(lambda: connection.closed)
                with pytest.raises(ConnectionFailedError, match="none is expected"):
                    connection.send(ListGroupsRequest())

    run(main)


def test_a_disconnect_in_the_middle_of_an_answer_fails_every_request_in_flight() -> None:
    async def main() -> None:
        async with Peer() as peer:

            def half(_: ListGroupsRequest) -> bytes:
                asyncio.get_running_loop().call_soon(peer.disconnect)
                return (1000).to_bytes(4, "big") + b"half"

            peer.once(ListGroupsRequest, lambda _: groups("first"), half, lambda _: None)
            connection = await Connection.open(peer.address, SETTINGS)
            first, second, third = (connection.send(ListGroupsRequest()) for _ in range(3))
            assert await first == groups("first")
            for answer in (second, third):
                with pytest.raises(ConnectionFailedError, match="middle of an answer, after 8 bytes"):
                    await answer
            assert connection.closed

    run(main)


def test_a_request_without_an_answer_times_out_and_closes_the_connection() -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.on(ListGroupsRequest, lambda _: None)
            connection = await Connection.open(peer.address, SETTINGS)
            patient = connection.send(ListGroupsRequest())
            hasty = connection.send(ListGroupsRequest(), timeout_ms=30)
            with pytest.raises(RequestTimedOutError, match="no answer to ListGroups within 30 ms"):
                await hasty
            with pytest.raises(ConnectionFailedError):
                await patient
            assert connection.closed

    run(main)


def test_the_number_in_flight_is_bounded_and_waiters_get_room_in_order() -> None:
    async def main() -> None:
        async with Peer() as peer:
            gate = asyncio.Event()

            async def gated(_: ListGroupsRequest) -> ListGroupsResponse:
                await gate.wait()
                return groups(str(len(peer.seen(ListGroupsRequest))))

            peer.on(ListGroupsRequest, gated)
            settings = ConnectionSettings(max_in_flight=2)
            async with await Connection.open(peer.address, settings) as connection:
                answers = [asyncio.create_task(connection.request(ListGroupsRequest())) for _ in range(5)]
                await until(lambda: connection.in_flight == 2)
                with pytest.raises(RuntimeError, match="in flight"):
                    connection.send(ListGroupsRequest())
                answers.pop(3).cancel()
                gate.set()
                assert [(await answer).groups[0].group_id for answer in answers] == ["1", "2", "3", "4"]

    run(main)


def test_an_abandoned_request_does_not_confuse_the_next() -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.once(ListGroupsRequest, lambda _: groups("abandoned"), lambda _: groups("next"))
            async with await Connection.open(peer.address, SETTINGS) as connection:
                connection.send(ListGroupsRequest()).cancel()
                assert await connection.request(ListGroupsRequest()) == groups("next")

    run(main)


def test_nobody_listening_is_an_error_that_names_the_address() -> None:
    async def main() -> None:
        async with Peer() as peer:
            address = peer.address
        with pytest.raises(ConnectionFailedError, match=str(address)):
            await Connection.open(address, SETTINGS)

    run(main)


def test_a_name_that_does_not_resolve_is_an_error_that_names_it() -> None:
    for host in ("no.such.host.invalid", "no..host", "x" * 64 + ".invalid"):
        with pytest.raises(ConnectionFailedError, match=re.escape(f"{host}:9092")):
            run(lambda host=host: Connection.open(HostPort(host, 9092), SETTINGS))  # type: ignore[misc]


@pytest.mark.parametrize("versions", [[3], []])
def test_an_older_peer_is_asked_in_the_version_it_names(versions: list[int]) -> None:
    async def main() -> None:
        async with Peer() as peer:
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=18, min_version=0, max_version=last) for last in versions],
            )
            encoded = b"".join(encode_response(refusal, api_of(ApiVersionsRequest), 0, 1))
            peer.once(ApiVersionsRequest, lambda _: encoded)
            async with await Connection.open(peer.address, SETTINGS) as connection:
                assert connection.version_of(ListGroupsRequest) == ListGroupsRequest.max_version

    run(main)


def test_versions_are_the_highest_that_both_know() -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.versions = {0: (0, 99), 1: (4, 10), 2: (90, 99)}
            async with await Connection.open(peer.address, SETTINGS) as connection:
                assert connection.version_of(ProduceRequest) == ProduceRequest.max_version
                assert connection.version_of(FetchRequest) == 10
                assert connection.version_of(FetchRequest, at_most=7) == 7
                assert not connection.serves(ListGroupsRequest)
                with pytest.raises(ProtocolError, match=r"127.0.0.1:\d+ serves versions none of ListGroups"):
                    connection.version_of(ListGroupsRequest)
                with pytest.raises(ProtocolError, match="serves versions 4 to 10 of Fetch"):
                    connection.version_of(FetchRequest, at_most=3)

    run(main)


def test_a_peer_that_refuses_to_tell_its_versions_is_an_error() -> None:
    async def main() -> None:
        async with Peer() as peer:
            peer.on(
                ApiVersionsRequest,
                lambda _: ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            )
            with pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await Connection.open(peer.address, SETTINGS)

    run(main)
