"""A way that was down: one route has an hour to catch up with, another one carries what comes now.

Two routes share a link of which the topology knows the width, and the proxy is as narrow and long. The proxy
goes down; `bulk` gets what an hour brings, made `SCALE` times as short, then the proxy comes back and `live`
is produced to all the time at `LIVE_SHARE` of the way, in small batches. Printed: what of the way is used
until `bulk` has caught up, what of the live records came within that time, and how old they were when they
came; once as it is, once with a budget for catching up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.embedded import EmbeddedZooKeeper
from broker.types import TopicPartition
from ops.bench._far_away import Way, far_away
from ops.bench._far_nodes import Node, far_mirror, far_node
from ops.bench.mirror import batch_of, create_topic, produce_batches

BULK, LIVE = "bulk", "live"
PARTITIONS = 4
HOUR_SECONDS, SCALE = 3600, 40
BULK_SHARE, LIVE_SHARE = 0.25, 0.3
"""Of what the way carries: what is produced to `bulk` while the way is down, and to `live` after it."""
BUDGET_SHARE = 0.4
OLD_SECONDS = 5
"""What is behind by so much counts as old: an hour is short here."""
BULK_BATCH_BYTES, LIVE_BATCH_BYTES = 64 << 10, 8 << 10
LIVE_INTERVAL_SECONDS = 0.05
SETTLING_SECONDS = 3.0
PATIENCE_SECONDS = 180.0
POLL_SECONDS = 0.05
USED_GOAL, KEPT_GOAL, BUDGET_GOAL = 0.9, 0.95, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """From the end of the outage until `bulk` had caught up. Bytes are those of the destination's logs."""

    seconds: float
    bulk_bytes: int
    live_bytes: int
    live_produced: int
    ages: list[float]
    """Seconds that live records took, a sample each time that was looked."""


def main(
    folder: Path, zookeeper: EmbeddedZooKeeper, rate: float, round_trip_ms: float, classpath: str | None
) -> None:
    """Measure and print, toward our node, and toward Apache Kafka where there is a `classpath`."""
    way = Way(round_trip_ms=round_trip_ms, bytes_per_second=rate)
    print(
        f"\nAn hour without the way of {rate / 1e6:g} MB/s and {round_trip_ms:g} ms, {SCALE} times as short:"
    )
    print("| toward | budget | caught up in | way used | bulk MB/s | live that came | live p50, p99 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for number, (who, path) in enumerate([("our node", None), ("Apache Kafka", classpath)]):
        if number and classpath is None:
            continue
        for budget in (None, int(rate * BUDGET_SHARE)):
            home = folder / f"catch-up-{number}-{budget}"
            home.mkdir()
            figure = run(home, zookeeper, way, budget, path)
            print(f"| {who} | {_line(figure, way, budget)} |", flush=True)


def _line(figure: Figure, way: Way, budget: int | None) -> str:
    bulk = figure.bulk_bytes / figure.seconds
    used = (bulk + figure.live_bytes / figure.seconds) / way.bytes_per_second
    kept = figure.live_bytes / figure.live_produced
    ages = sorted(figure.ages)
    told = "none" if budget is None else f"{budget / 1e6:.1f} MB/s"
    if budget is None:
        use = f"{used:.0%} (goal {USED_GOAL:.0%}{'' if used >= USED_GOAL else ', missed'})"
    else:
        is_kept = bulk <= budget * BUDGET_GOAL
        use = f"{used:.0%} (goal: bulk within its budget{'' if is_kept else ', missed'})"
    came = f"{kept:.0%} (goal {KEPT_GOAL:.0%}{'' if kept >= KEPT_GOAL else ', missed'})"
    return (
        f"{told} | {figure.seconds:.1f} s | {use} | {bulk / 1e6:.1f} | {came} | "
        f"{ages[len(ages) // 2]:.2f} s, {ages[len(ages) * 99 // 100]:.2f} s"
    )


def run(
    home: Path, zookeeper: EmbeddedZooKeeper, way: Way, budget: int | None, classpath: str | None
) -> Figure:
    """One outage."""
    with (
        far_node(home, "source", zookeeper, None) as source,
        far_node(home, "destination", zookeeper, classpath) as destination,
        ExitStack() as ways,
    ):
        far = {node.far.port: (node.behind, way) for node in (source, destination)}
        ways.enter_context(far_away(far))
        asyncio.run(_make_topics(source))
        with far_mirror(home, source.near, destination.far, _topology(way, budget)):
            asyncio.run(_await_copies(destination))
            ways.close()  # the way is down
            size = int(way.bytes_per_second * BULK_SHARE * HOUR_SECONDS / SCALE)
            asyncio.run(_produce_hour(source, size))
            time.sleep(OLD_SECONDS)  # as old as they would be after an hour
            ways.enter_context(far_away(far))
            return asyncio.run(_watch(source, destination, way))


def _topology(way: Way, budget: int | None) -> Mapping[str, Any]:
    routes = [
        {
            "name": topic,
            "from": "source",
            "to": "destination",
            "topics": {"include": [topic], "name": "{topic}"},
            "resources": {"catch_up_bytes_per_second": budget} if topic == BULK and budget else {},
            "objectives": {"lag_seconds": OLD_SECONDS},
        }
        for topic in (BULK, LIVE)
    ]
    link = {"from": "source", "to": "destination", "bytes_per_second": int(way.bytes_per_second)}
    return {"routes": routes, "links": [link]}


async def _make_topics(source: Node) -> None:
    async with Cluster([source.near]) as cluster:
        for topic in (BULK, LIVE):
            await create_topic(cluster, topic, PARTITIONS)
            await produce_batches(cluster, topic, [batch_of(0, LIVE_BATCH_BYTES)] * PARTITIONS)


async def _await_copies(destination: Node) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with Cluster([destination.near]) as cluster:
        while await _ends(cluster, BULK) == 0 or await _ends(cluster, LIVE) == 0:
            if time.monotonic() > deadline:
                raise SystemExit("nothing was copied before the outage")
            await asyncio.sleep(POLL_SECONDS)
            await cluster.refresh([BULK, LIVE])
    await asyncio.sleep(SETTLING_SECONDS)


async def _ends(cluster: Cluster, topic: str) -> int:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    if any(cluster.leader(partition) is None for partition in partitions):
        return 0
    return sum((await latest_offsets(cluster, partitions)).values())


async def _produce_hour(source: Node, size: int) -> None:
    batches = [batch_of(seed, BULK_BATCH_BYTES) for seed in range(8)]
    async with Cluster([source.near]) as cluster:
        await cluster.ensure([BULK])
        for sent in range(0, size // BULK_BATCH_BYTES, PARTITIONS):
            chosen = [batches[(sent + number) % len(batches)] for number in range(PARTITIONS)]
            await produce_batches(cluster, BULK, chosen)


async def _watch(source: Node, destination: Node, way: Way) -> Figure:
    """Produce to `live` until `bulk` has caught up."""
    async with Cluster([source.near]) as near, Cluster([destination.near]) as far:
        await near.ensure([BULK, LIVE])
        await far.ensure([BULK, LIVE])
        before = {topic: destination.stored(topic) for topic in (BULK, LIVE)}
        produced_before, wanted, copied = source.stored(LIVE), await _ends(near, BULK), 0
        marks: deque[tuple[float, int]] = deque()
        ages: list[float] = []
        producing = asyncio.create_task(_produce_live(near, way.bytes_per_second * LIVE_SHARE, marks))
        started: float | None = None
        deadline = time.monotonic() + PATIENCE_SECONDS
        first = await _ends(far, BULK)
        try:
            while copied < wanted:
                if time.monotonic() > deadline:
                    print(f"only {copied} of {wanted} records came", flush=True)
                    break
                await asyncio.sleep(POLL_SECONDS)
                copied, reached, now = await _ends(far, BULK), await _ends(far, LIVE), time.monotonic()
                if started is None and copied == first:
                    continue
                started = started or now
                while marks and marks[0][1] <= reached:
                    marks.popleft()
                ages.append(now - marks[0][0] if marks else 0.0)
        finally:
            producing.cancel()
        stored = {topic: destination.stored(topic) - before[topic] for topic in (BULK, LIVE)}
        return Figure(
            seconds=time.monotonic() - (started or deadline),
            bulk_bytes=stored[BULK],
            live_bytes=stored[LIVE],
            live_produced=source.stored(LIVE) - produced_before,
            ages=ages,
        )


async def _produce_live(cluster: Cluster, rate: float, marks: deque[tuple[float, int]]) -> None:
    """At this rate; `marks` gets when each offset, of all partitions together, was produced."""
    batches = [batch_of(seed, LIVE_BATCH_BYTES) for seed in range(8)]
    sent, index, began = 0, 0, time.monotonic()
    while True:
        while sent < rate * (time.monotonic() - began):
            chosen = [batches[(index + number) % len(batches)] for number in range(PARTITIONS)]
            await produce_batches(cluster, LIVE, chosen)
            sent, index = sent + sum(map(len, chosen)), index + 1
        marks.append((time.monotonic(), await _ends(cluster, LIVE)))
        await asyncio.sleep(LIVE_INTERVAL_SECONDS)
