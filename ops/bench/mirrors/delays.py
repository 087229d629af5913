"""How long records take through a mirror at a steady rate.

Batches that were built before are sent to the source (`steady_load`); the destination's topic stamps what is
appended with the time (`LogAppendTime`), which is read once all has come. So the time of a batch runs from
the moment at which it is sent to the source until the destination has it for readers, in whole milliseconds,
and nobody reads beside the mirror meanwhile: a reader of everything takes as much of a core as the nodes. The
load is on the mirror's core: the nodes have theirs to themselves, as when the source was filled beforehand.
How busy that core was is part of the figure: near 100 % a delay says that the nodes could do no more.
So is for how long the host of a virtual machine did not run it: hosts that limit processor time stop it for
some 20 ms of each 100 once it has had its share, and then nothing passes at all.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, read_fetch
from broker.client.offsets import latest_offsets
from broker.errors import ErrorCode
from broker.records.batch import read_header
from broker.records.reader import iterate_entries
from broker.types import HostPort, TopicPartition
from broker.wire.messages.fetch import FetchRequest
from ops.bench.comparison.processor_time import cpu_seconds, stolen_seconds
from ops.bench.mirrors.cases import Busy, Delay
from ops.bench.mirrors.contenders import MIRROR_CORE, Ends
from ops.bench.mirrors.filling import Batch, until_led
from ops.bench.mirrors.steady_load import SentBatch, SteadyLoad

LAST_BATCHES_SECONDS = 5.0
"""How long what was sent last may take."""
POLL_SECONDS = 0.05
START_TIMEOUT_SECONDS = 60.0
TERMS = FetchTerms(max_wait_ms=0, min_bytes=0, max_bytes=16 << 20, read_committed=False)
PARTITION_BYTES = 1 << 20
FETCH_VERSION = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What records pass."""

    ends: Ends
    topic: str
    copy: str
    partitions: int
    mirror_pid: int


def measure_delay(
    passage: Passage,
    batches: Sequence[Batch],
    bytes_per_second: float,
    *,
    warm_up_seconds: float,
    seconds: float,
) -> Delay:
    """Send at this rate for a while that does not count and for `seconds` that do."""
    leader = asyncio.run(_prepare(passage))
    load = SteadyLoad(leader, passage.topic, passage.partitions, batches)
    with load, _on_core(MIRROR_CORE), _without_collections():
        load.run(bytes_per_second, warm_up_seconds)
        usage, counted_from = _Usage(passage), len(load.sent)
        load.run(bytes_per_second, seconds)
        busy, stolen_ms = usage.busy(), usage.stolen_ms()
        load.finish()
    came = asyncio.run(_came(passage, load.ends))
    delays = list(_delays(load.sent, came, counted_from))
    return Delay(
        megabytes_per_second=bytes_per_second / 1e6,
        median_ms=statistics.median(delays) if delays else float("inf"),
        p99_ms=statistics.quantiles(delays, n=100)[-1] if len(delays) > 1 else float("inf"),
        missing=len(load.sent) - counted_from - len(delays),
        busy=busy,
        stolen_ms=stolen_ms,
    )


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """This process there, until the end of the `with`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage is collected here until the end of the `with`: what is due meanwhile would go at once."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Usage:
    """Processor time from its making on."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._started, self._used, self._stolen = time.monotonic(), self._now(), stolen_seconds()

    def _now(self) -> tuple[float, float, float, float]:
        ends = self._passage.ends
        return (
            cpu_seconds(ends.source_pid),
            cpu_seconds(ends.destination_pid),
            time.process_time(),
            cpu_seconds(self._passage.mirror_pid),
        )

    def busy(self) -> Busy:
        elapsed = time.monotonic() - self._started
        used = [now - before for now, before in zip(self._now(), self._used, strict=True)]
        source, destination, load, mirror = (each / elapsed for each in used)
        return Busy(source=source, destination=destination, load=load, mirror=mirror)

    def stolen_ms(self) -> float:
        return (stolen_seconds() - self._stolen) * 1000


async def _prepare(passage: Passage) -> HostPort:
    """Wait for the mirror's topic, have it stamp what is appended; where the source's topic is led."""
    async with Cluster([passage.ends.destination]) as far:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            await until_led(far, _partitions(passage, passage.copy))
        await Admin(far).alter_topic_configs(passage.copy, {"message.timestamp.type": "LogAppendTime"})
    async with Cluster([passage.ends.source]) as near:
        await until_led(near, _partitions(passage, passage.topic))
        leader = near.leader(TopicPartition(passage.topic, 0))
        assert leader is not None
        return near.metadata.nodes[leader].address


def _partitions(passage: Passage, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(passage.partitions)]


def _delays(sent: Sequence[SentBatch], came: Mapping[int, Sequence[_Came]], first: int) -> Iterator[float]:
    """In ms, of those from the `first` on that came."""
    ends = {partition: [each.end for each in batches] for partition, batches in came.items()}
    for batch in sent[first:]:
        index = bisect_left(ends[batch.partition], batch.end)
        if index < len(ends[batch.partition]):
            yield came[batch.partition][index].at_ms - batch.sent_at * 1000


class _Came(NamedTuple):
    """A batch at the destination."""

    end: int
    """Offset behind its last record."""
    at_ms: int


async def _came(passage: Passage, ends: Sequence[int]) -> Mapping[int, Sequence[_Came]]:
    """The batches of each partition at the destination, once they come to `ends` or the time is up."""
    came: dict[int, list[_Came]] = {partition: [] for partition in range(passage.partitions)}
    async with Cluster([passage.ends.destination]) as cluster:
        copies = _partitions(passage, passage.copy)
        await until_led(cluster, copies)
        deadline = time.monotonic() + LAST_BATCHES_SECONDS
        while (there := await latest_offsets(cluster, copies)) and sum(there.values()) < sum(ends):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(POLL_SECONDS)
        leader = cluster.leader(copies[0])
        assert leader is not None
        connection = await cluster.connection(leader, "bench")
        positions = dict.fromkeys(copies, 0)
        while behind := [copy for copy in copies if positions[copy] < there[copy]]:
            wanted = [
                PartitionPosition(topic_partition=copy, offset=positions[copy], max_bytes=PARTITION_BYTES)
                for copy in behind
            ]
            request = build_fetch(wanted, TERMS, cluster.metadata)
            version = connection.version_of(FetchRequest, at_most=FETCH_VERSION)
            for copy, answer in read_fetch(await connection.request(request, version), request):
                assert not answer.error_code, ErrorCode.of(answer.error_code).name
                for position, _ in iterate_entries(answer.records or b""):
                    header = read_header(answer.records or b"", position)
                    positions[copy] = header.next_offset
                    came[copy.partition].append(_Came(header.next_offset, header.max_timestamp))
    return came
