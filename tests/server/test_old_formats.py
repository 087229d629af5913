"""Answers for clients that know only message sets: their bounds, and that every partition gets its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.server.handlers import fetch as fetch_handler
from broker.server.old_formats import Converted, StoredAnswer, convert
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.types import HostPort
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.node.raw_client import RawClient, batch_of, connected, create_topic, produce_request, values_of
from tests.server.running_node import running_node
from tests.storage.conftest import memory_place
from tests.storage.samples import append

PARTITIONS = 3
RECORDS = 40


def log_of(*values: bytes) -> Log:
    """A log with a batch of each value."""
    log = memory_place().log(LogConfig())
    for value in values:
        append(log, value)
    return log


def converted(
    logs: list[Log], *, version: int, bytes_max: int, size_max: int
) -> tuple[Converted, list[PartitionData]]:
    """All of the logs converted, as partitions at places from 10 on."""
    answers = [PartitionData(partition_index=number) for number in range(len(logs))]
    stored = []
    for answer, log in zip(answers, logs, strict=True):
        records = log.read(0, max_bytes=1 << 20, up_to=log.log_end_offset)
        stored.append(StoredAnswer(10 + answer.partition_index, "t", answer, records, size_max))

    async def run() -> Converted:
        slots = asyncio.Semaphore(1)
        return await convert(stored, version, slots, bytes_max=bytes_max, batch_size_max=1 << 20)

    return asyncio.run(run()), answers


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_the_bound_of_an_answer_leaves_out_is_told(version: int) -> None:
    logs = [log_of(bytes(1_000), bytes(1_000)) for _ in range(4)]
    outcome, answers = converted(logs, version=version, bytes_max=3_000, size_max=1 << 20)
    assert outcome == Converted([], 12)
    assert [len(values_of(answer.records)) for answer in answers] == [2, 1, 0, 0]
    assert not any(answer.error_code for answer in answers)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_one_batch_goes_whole_whatever_the_bound_of_an_answer_is(version: int) -> None:
    outcome, (answer,) = converted(
        [log_of(bytes(5_000), b"x")], version=version, bytes_max=10, size_max=1 << 20
    )
    assert outcome == Converted([], None)
    assert values_of(answer.records) == [bytes(5_000)]


def test_clients_before_version_3_get_no_more_than_they_take() -> None:
    _, (answer,) = converted([log_of(bytes(5_000))], version=2, bytes_max=1 << 20, size_max=100)
    assert len(answer.records or b"") == 100


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_partition_has_its_turn_when_answers_are_cut(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are so small that they take several times their bytes in the old formats."""
    monkeypatch.setattr(fetch_handler, "ANSWER_MAX", 1_000)

    async def scenario() -> list[set[int]]:
        async with running_node(tmp_path) as (listener,):
            return await asyncio.to_thread(served, listener.address, version)

    rounds = asyncio.run(scenario())
    for start in range(len(rounds) - PARTITIONS + 1):
        assert set().union(*rounds[start : start + PARTITIONS]) == set(range(PARTITIONS))


def served(address: HostPort, version: int) -> list[set[int]]:
    """The partitions that had records, answer by answer, when a client asks for the same again and again."""
    with connected(address) as client:
        create_topic(client, "t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            batch = batch_of(*[b""] * RECORDS)
            client.request(produce_request("t", batch, partition=partition))
        return [in_one_answer(client, version) for _ in range(3 * PARTITIONS)]


def in_one_answer(client: RawClient, version: int) -> set[int]:
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=wanted)]
    )
    (topic,) = client.request(request, version).responses
    return {partition.partition_index for partition in topic.partitions if partition.records}
