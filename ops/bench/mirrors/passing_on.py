"""A loop that fetches a topic and produces what came, with base offsets from 0 as nodes want them and nothing
else changed: what the nodes let a mirror do.

    python -m ops.bench.mirrors.passing_on SOURCE DESTINATION TOPIC COPY PARTITIONS RECORDS

Prints its figures as JSON. For our nodes, which take several batches of a partition in a request.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, cut_batches, read_fetch
from broker.errors import ErrorCode
from broker.records.batch import rebase
from broker.records.reader import iterate_entries
from broker.types import HostPort, TopicPartition
from broker.wire.messages.fetch import FetchRequest
from broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ops.bench.comparison.cases import Figure
from ops.bench.mirrors.contenders import MIRROR_CORE, on_cores
from ops.bench.mirrors.filling import Filled, until_led

TERMS = FetchTerms(max_wait_ms=500, min_bytes=1, max_bytes=4 << 20, read_committed=False)
PARTITION_BYTES = 1 << 20
TIMEOUT_SECONDS = 120


def pass_on(
    source: HostPort, destination: HostPort, topic: str, copy: str, partitions: int, filled: Filled
) -> Figure:
    """Run the loop as a process on the mirror's core."""
    arguments = [str(source), str(destination), topic, copy, str(partitions), str(filled.records)]
    command = [*on_cores(MIRROR_CORE), sys.executable, "-m", "ops.bench.mirrors.passing_on", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_SECONDS)
    seconds, cpu_seconds = json.loads(done.stdout)
    return Figure(bytes=filled.bytes, seconds=seconds, cpu_seconds=cpu_seconds)


async def _loop(
    source: HostPort, destination: HostPort, topic: str, copy: str, partitions: int, records: int
) -> tuple[float, float]:
    """Time and processor time until all is acknowledged."""
    async with Cluster([source]) as near, Cluster([destination]) as far:
        await until_led(near, [TopicPartition(topic, number) for number in range(partitions)])
        await until_led(far, [TopicPartition(copy, number) for number in range(partitions)])
        leaders = near.leader(TopicPartition(topic, 0)), far.leader(TopicPartition(copy, 0))
        assert None not in leaders
        reading = await near.connection(leaders[0] or 0, "fetch")
        writing = await far.connection(leaders[1] or 0, "produce")
        version = reading.version_of(FetchRequest, at_most=11)
        positions = dict.fromkeys(range(partitions), 0)
        under_way: asyncio.Future[ProduceResponse] | None = None
        started, cpu = time.monotonic(), time.process_time()
        while sum(positions.values()) < records:
            wanted = [
                PartitionPosition(
                    topic_partition=TopicPartition(topic, number), offset=at, max_bytes=PARTITION_BYTES
                )
                for number, at in sorted(positions.items(), key=lambda item: item[1])
            ]
            request = build_fetch(wanted, TERMS, near.metadata)
            response = await reading.request(request, version)
            data = []
            for at, answer in read_fetch(response, request):
                came = cut_batches(wanted[0], answer)
                if came is not None:
                    positions[at.partition] = came.next_offset
                    for position, _ in iterate_entries(came.records):
                        rebase(came.records, position, 0, -1)
                    data.append(PartitionProduceData(index=at.partition, records=came.records))
            await _check(under_way)
            topics = [TopicProduceData(name=copy, partition_data=data)]
            under_way = writing.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics))
        await _check(under_way)
        return time.monotonic() - started, time.process_time() - cpu


async def _check(under_way: asyncio.Future[ProduceResponse] | None) -> None:
    if under_way is not None:
        for answer in (await under_way).responses[0].partition_responses:
            assert not answer.error_code, ErrorCode.of(answer.error_code).name


def main() -> None:
    source, destination, topic, copy, partitions, records = sys.argv[1:]
    figures = asyncio.run(
        _loop(HostPort.parse(source), HostPort.parse(destination), topic, copy, int(partitions), int(records))
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
