"""The fetch loops of a route on a real node, whose log has damage, or gives way to another."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.clock import SystemClock
from broker.errors import ErrorCode
from broker.records.batch import BatchHeader, iterate_batches
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.exchange import Assignment, FlowConfig, ProduceAnswer
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.sizing import Fetching
from mirrormaker.flow.standing import UNREADABLE, standing_of
from mirrormaker.flow.trouble import Trouble
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
            await write(client, RECORDS)
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


async def write(client: Cluster, count: int) -> None:
    producer = Producer(client, settings=ProducerSettings(linger_ms=0))
    await producer.start()
    for number in range(count):
        await (await producer.send(SOURCE.topic, b"%d" % number))
    await producer.close()


def refuse(machine: FlowMachine, now_ms: int) -> None:
    """The destination takes nothing, until all that was read is given back."""
    while machine.partitions[SOURCE].position:
        now_ms += 10_000
        for command in machine.ready(now_ms).requests:
            machine.answered(command, {DESTINATION: ProduceAnswer(ErrorCode.NOT_ENOUGH_REPLICAS)}, now_ms)
    machine.ready(now_ms + 10_000)


def test_what_was_given_back_and_the_source_has_no_more_is_no_loss_and_what_it_has_is_read(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    """Of two leader epochs, the later of which is gone: the log parts behind what is to be read again."""
    node = cluster()
    machine, met = FlowMachine(FlowConfig()), list[Trouble]()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name=SOURCE.topic, partitions=1, replication_factor=1))
            await write(client, 20)
            (log,) = node.spec.directory.rglob(str(SOURCE))
            node.kill_node(1)
            shutil.copytree(log, tmp_path / "common")
            node.start_node(1)
            await write(client, 10)
            assign(machine)
            await client.refresh([SOURCE.topic])
            async with asyncio.TaskGroup() as tasks:
                clock = SystemClock()
                reader = SourceReader(
                    client,
                    machine,
                    tasks,
                    clock,
                    on_progress=lambda: None,
                    on_trouble=met.append,
                    find_epochs=nothing_copied,
                    filter_text=nothing_wanted,
                )
                reader.spread()
                following = tasks.create_task(reader.follow_leaders())
                partition = machine.partitions[SOURCE]
                await until(lambda: partition.position == 30)
                node.kill_node(1)
                refuse(machine, clock.monotonic_ms())
                shutil.rmtree(log)
                shutil.copytree(tmp_path / "common", log)
                node.start_node(1)
                await write(client, 5)
                await until(lambda: partition.position == 25 or bool(met))
                assert met == []
                machine.release([SOURCE])
                reader.spread()
                following.cancel()

    asyncio.run(main())
