"""Records that handlers fail on: tried again, put aside, tried again from a spool, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.admin import Admin
from broker.client.backoff import Backoff
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer, ConsumerRecord, ConsumerSettings, OffsetReset
from broker.client.group_settings import GroupSettings
from broker.client.parking import DeadLetterTopic, Handler, ParkedRecord, Parking, RetryPolicy, process
from broker.client.producer import Producer
from broker.client.spool import Spool
from broker.client.spool_entry import decode_entry, encode_entry
from broker.client.topic_admin import NewTopic
from broker.errors import StorageError
from broker.types import TopicPartition
from tests.client.coordinating import CoordinatingPeer
from tests.client.logs import ServingPeer
from tests.client.peers import serving
from tests.client.running import QUICK, run, until
from tests.conftest import ClusterFactory

ZERO = TopicPartition("t", 0)
AT_ONCE = RetryPolicy(attempts_max=3, backoff=Backoff(initial_ms=0))
SETTINGS = ConsumerSettings(
    offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10, auto_commit_interval_ms=60_000
)


class Node(ServingPeer, CoordinatingPeer):
    """Serves records, and coordinates the group."""


class MemoryParking:
    def __init__(self) -> None:
        self.parked: list[ParkedRecord] = []

    async def park(self, parked: ParkedRecord) -> None:
        self.parked.append(parked)

    async def retry(self, handler: Handler) -> None:
        """Nothing."""


@asynccontextmanager
async def processing(
    handler: Handler, parking: Parking, *values: bytes, policy: RetryPolicy = AT_ONCE
) -> AsyncIterator[tuple[asyncio.Task[None], Node]]:
    """`process` at work on a partition with these records, in a group that commits at the end."""
    node = Node()
    async with serving([node], partitions=1) as scripted:
        node.log().append(*values)
        settings = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
        async with Cluster(scripted.bootstrap, settings=settings, backoff=QUICK) as cluster:

            async def work() -> None:
                async with Consumer(
                    cluster, settings=SETTINGS, group=GroupSettings(group_id="g")
                ) as consumer:
                    consumer.assign([ZERO])
                    await process(consumer, handler, policy, parking=parking, random=lambda: 0.5)

            task = asyncio.create_task(work())
            yield task, node
            task.cancel()
            await asyncio.wait([task])


def failing_on(bad: bytes, calls: list[bytes | None]) -> Callable[[ConsumerRecord], None]:
    def handler(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if record.value == bad:
            raise ValueError(f"cannot read {record.value!r}")

    return handler


def test_a_record_is_tried_so_many_times_then_parked_and_the_next_ones_are_processed() -> None:
    async def main() -> None:
        calls: list[bytes | None] = []
        parking = MemoryParking()
        async with processing(failing_on(b"b", calls), parking, b"a", b"b", b"c"):
            await until(lambda: calls[-1:] == [b"c"])
            assert calls == [b"a", b"b", b"b", b"b", b"c"]
            (parked,) = parking.parked
            assert (parked.record.offset, parked.attempts) == (1, 3)
            assert parked.error == "ValueError: cannot read b'b'"

    run(main)


def test_what_is_hopeless_is_parked_at_once_and_what_is_no_failure_of_a_record_ends_processing() -> None:
    async def main() -> None:
        calls: list[bytes | None] = []
        parking = MemoryParking()
        hopeless = RetryPolicy(attempts_max=9, hopeless=(ValueError,))
        async with processing(failing_on(b"a", calls), parking, b"a", b"b", policy=hopeless):
            await until(lambda: calls == [b"a", b"b"])
            assert len(parking.parked) == 1
        calls.clear()
        picky = RetryPolicy(failures=(OSError,))
        async with processing(failing_on(b"b", calls), parking, b"a", b"b", policy=picky) as (task, node):
            await asyncio.wait([task])
            assert isinstance(task.exception(), ValueError)
            assert ZERO not in node.offsets, "what was not processed is not committed"

    run(main)


def test_what_cannot_be_parked_is_not_committed() -> None:
    class FullParking(MemoryParking):
        async def park(self, parked: ParkedRecord) -> None:
            raise StorageError("no room")

    async def main() -> None:
        async with processing(failing_on(b"a", []), FullParking(), b"a", b"b") as (task, node):
            await asyncio.wait([task])
            assert isinstance(task.exception(), StorageError)
            assert ZERO not in node.offsets

    run(main)


def test_a_spool_outlives_restarts_and_tries_records_again_beside_the_others(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        calls: list[bytes | None] = []
        async with Spool(tmp_path, backoff=Backoff(initial_ms=60_000)) as spool:
            async with processing(failing_on(b"a", calls), spool, b"a", b"b"):
                await until(lambda: calls[-1:] == [b"b"])
            assert spool.count == 1
        async with Spool(tmp_path, backoff=QUICK) as spool:
            ((_, parked),) = [found async for found in spool.records()]
            assert (parked.record.topic, parked.record.value, parked.attempts) == ("t", b"a", 3)
            calls.clear()
            async with processing(failing_on(b"none", calls), spool, b"c"):
                await until(lambda: sorted(map(bytes, filter(None, calls))) == [b"a", b"c"])
                await until(lambda: not spool.count)
        assert names(tmp_path) == ["lock"]

    run(main)


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def parked(value: bytes, offset: int = 0) -> ParkedRecord:
    record = ConsumerRecord("t", 0, offset, 5, 0, b"k", value, [("h", None)])
    return ParkedRecord(record=record, attempts=1, error="E", parked_at_ms=7)


def test_a_spool_without_room_holds_consumption_up_until_something_is_processed(tmp_path: Path) -> None:
    async def main() -> None:
        size = len(encode_entry(parked(b"x" * 100)))
        tried: list[int] = []
        async with Spool(tmp_path, bytes_max=2 * size, backoff=QUICK) as spool:
            for offset in range(2):
                await spool.park(parked(b"x" * 100, offset))
            third = asyncio.create_task(spool.park(parked(b"x" * 100, 2)))
            with pytest.raises(StorageError, match="where"):
                await spool.park(parked(b"x" * 1000))
            assert not third.done()
            retrying = asyncio.create_task(spool.retry(lambda record: tried.append(record.offset)))
            await third
            await until(lambda: not spool.count)
            retrying.cancel()
            await asyncio.wait([retrying])
            assert sorted(tried) == [0, 1, 2]

    run(main)


def test_a_spool_belongs_to_one_process_and_damaged_files_are_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Spool(tmp_path, backoff=QUICK) as spool:
            with pytest.raises(StorageError, match="another process"):
                async with Spool(tmp_path):
                    pass
            await spool.park(parked(b"a"))
            await spool.park(parked(b"b"))
        first, _ = [tmp_path / name for name in names(tmp_path) if name != "lock"]
        first.write_bytes(first.read_bytes()[:-1])
        (tmp_path / "00000000000000000007.unfinished").write_bytes(b"x")
        tried: list[bytes | None] = []
        async with Spool(tmp_path, backoff=QUICK) as spool:
            retrying = asyncio.create_task(spool.retry(lambda record: tried.append(record.value)))
            await until(lambda: spool.count == 1 and bool(tried))
            retrying.cancel()
            await asyncio.wait([retrying])
            with pytest.raises(StorageError, match="damaged"):
                [found async for found in spool.records()]
        assert tried == [b"b"]
        assert names(tmp_path) == [first.name, "lock"]

    run(main)


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary())),
    error=st.text(),
    cut=st.integers(min_value=1),
)
def test_parked_records_survive_as_they_are_and_damage_is_noticed(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], error: str, cut: int
) -> None:
    record = ConsumerRecord("t", 3, 1 << 40, 5, 1, key, value, headers)
    entry = ParkedRecord(record=record, attempts=2, error=error, parked_at_ms=9)
    data = encode_entry(entry)
    assert decode_entry(data, "file") == entry
    with pytest.raises(StorageError):
        decode_entry(data[: -min(cut, len(data))], "file")


def test_dead_letters_say_where_they_come_from_and_what_went_wrong(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client, Producer(client) as producer:
            for topic in ("events", "events.dead-letters"):
                await Admin(client).create_topic(NewTopic(name=topic, partitions=1, replication_factor=1))
            for value in (b"good", b"bad", b"good"):
                await (await producer.send("events", value, b"key", headers=[("trace", b"1")]))
            calls: list[bytes | None] = []
            settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
            async with Consumer(client, settings=settings, group=GroupSettings(group_id="g")) as consumer:
                consumer.subscribe(["events"])
                work = process(
                    consumer, failing_on(b"bad", calls), AT_ONCE, parking=DeadLetterTopic(producer)
                )
                task = asyncio.create_task(work)
                await until(lambda: calls.count(b"good") == 2)
                task.cancel()
                await asyncio.wait([task])
            async with Consumer(client, settings=settings) as consumer:
                consumer.assign([TopicPartition("events.dead-letters", 0)])
                (letter,) = await consumer.take()
        assert (letter.key, letter.value) == (b"key", b"bad")
        assert dict(letter.headers) | {"parked.timestamp": b""} == {
            "trace": b"1",
            "parked.topic": b"events",
            "parked.partition": b"0",
            "parked.offset": b"1",
            "parked.timestamp": b"",
            "parked.error": b"ValueError: cannot read b'bad'",
            "parked.attempts": b"3",
        }

    node = cluster()
    run(main)
