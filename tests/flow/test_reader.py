"""The fetch loops of a route on a real node, whose log has damage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.clock import SystemClock
from broker.records.batch import BatchHeader, iterate_batches
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.sizing import Fetching
from mirrormaker.flow.standing import UNREADABLE, standing_of
from tests.client.running import until
from tests.conftest import ClusterFactory

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
RECORDS, DAMAGED = 40, 39
COUNT_POSITION = 57
PATIENCE_SECONDS = 30


def overwrite(file: Path, position: int, value: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(position)
        stream.write(value)


def batches_of(file: Path) -> list[tuple[int, BatchHeader]]:
    return list(iterate_batches(file.read_bytes()))


async def nothing_copied(_: TopicPartition) -> Iterable[EpochStart]:
    return ()


def nothing_wanted(_topics: Iterable[str]) -> str:
    return ""


@pytest.mark.parametrize("lanes", [1, 3], ids=["one by one", "ahead"])
def test_a_damaged_header_is_told_what_is_before_it_is_copied_and_the_rest_once_it_is_mended(
    cluster: ClusterFactory, lanes: int
) -> None:
    node = cluster()
    machine = FlowMachine(FlowConfig(pause_ms=100))

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name=SOURCE.topic, partitions=1, replication_factor=1))
            producer = Producer(client, settings=ProducerSettings(linger_ms=0))
            await producer.start()
            for number in range(RECORDS):
                await (await producer.send(SOURCE.topic, b"%d" % number))
            await producer.close()
            (file,) = node.spec.directory.rglob(f"{SOURCE}/*.log")
            position, header = batches_of(file)[DAMAGED]
            overwrite(file, position + COUNT_POSITION, (-1).to_bytes(4, "big", signed=True))
            assign(machine)
            await client.refresh([SOURCE.topic])
            async with asyncio.TaskGroup() as tasks:
                reader = SourceReader(
                    client,
                    machine,
                    tasks,
                    SystemClock(),
                    on_progress=lambda: None,
                    on_trouble=lambda _: None,
                    find_epochs=nothing_copied,
                    fetching=Fetching(lanes=lanes),
                    filter_text=nothing_wanted,
                )
                reader.spread()
                following = tasks.create_task(reader.follow_leaders())
                partition = machine.partitions[SOURCE]
                await until(lambda: standing_of(partition).state == UNREADABLE)
                assert partition.position == header.base_offset == DAMAGED
                await until(lambda: partition.source_failures > 1)
                overwrite(file, position + COUNT_POSITION, header.record_count.to_bytes(4, "big"))
                await until(lambda: partition.position == RECORDS)
                assert standing_of(partition).problem is None
                machine.release([SOURCE])
                reader.spread()
                following.cancel()

    asyncio.run(main())


def assign(machine: FlowMachine) -> None:
    machine.assign([Assignment(source=SOURCE, destinations=(DESTINATION,), bucket=0, position=0)])
    machine.set_leaders({DESTINATION: BrokerId(1)})
    for key in machine.ready(0).producers:
        machine.set_producer(key, ProducerIdentity(1, 0))
