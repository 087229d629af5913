"""Registries of where records come from, at two clusters that mirror to each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.errors import ConfigurationError, CorruptRecordsError
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.flow.intake import OriginUnknownError
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC, OriginRegistry
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.topology.model import RouteName
from tests.conftest import ClusterFactory
from tests.flow.test_provenance import header

TOPIC = "orders"
PATIENCE_SECONDS = 30


class Machine:
    """Waits for origins."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    def take_origins(self) -> None:
        self.told.set()


@asynccontextmanager
async def following(registry: OriginRegistry) -> AsyncIterator[Machine]:
    machine = Machine()
    async with registry, asyncio.timeout(PATIENCE_SECONDS):
        task = asyncio.create_task(registry.follow(machine, lambda: None))
        try:
            yield machine
        finally:
            task.cancel()
            await asyncio.wait([task])


async def origin_of(registry: OriginRegistry, machine: Machine, producer: int) -> int | None:
    """As a copy machine does: ask, wait when it is not known, ask again."""
    origins = registry.provenance.of_topic(TOPIC)
    with pytest.raises(OriginUnknownError):
        origins.origin_of(header(producer))
    machine.told.clear()
    await machine.told.wait()
    return origins.origin_of(header(producer))


def test_what_one_direction_registers_the_other_finds_and_leaves_out(cluster: ClusterFactory) -> None:
    addresses = [cluster(name).bootstrap for name in "ab"]

    async def main() -> None:
        async with Cluster(addresses[0]) as a, Cluster(addresses[1]) as b:
            events = RouteEvents(RouteName("there"), SystemClock())
            there = OriginRegistry(a, b, ClusterIds(), events.note_begun_anew)
            back = OriginRegistry(b, a, ClusterIds())
            async with following(there), following(back) as machine:
                identity = await there.registering(None)(ProducerKey(0, 0, None))
                assert await origin_of(back, machine, identity.producer_id) is None
                assert await origin_of(back, machine, identity.producer_id + 1) == 0
                async with KeptTopic(b, ORIGINS_TOPIC) as kept:
                    await kept.put([({"producer": 1 << 40}, {"path": "a"})])
                    with pytest.raises(CorruptRecordsError, match=f"topic {ORIGINS_TOPIC}: .* names no path"):
                        await origin_of(back, machine, 1 << 40)
                    await _emptied(b, kept)
                    while kept.get({"producer": identity.producer_id}) is None:
                        await kept.changed()
                    value = kept.get({"producer": identity.producer_id})
                    assert value == {"path": [a.cluster_id]}
                    assert events.begun_anew[ORIGINS_TOPIC]["cluster"] == b.name
                    assert [each["name"] for each in events.describe()] == ["kept_topic_begun_anew"]

    asyncio.run(main())


async def _emptied(cluster: Cluster, kept: KeptTopic) -> None:
    """The topic goes away, and is made anew by whoever keeps it."""
    await Admin(cluster).delete_topics([ORIGINS_TOPIC])
    while kept.incarnation == 0:
        await kept.changed()


def test_a_cluster_that_both_ends_mean_is_refused(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(cluster().bootstrap) as one:
            with pytest.raises(ConfigurationError, match="source and destination have one cluster id"):
                OriginRegistry(one, one, ClusterIds())

    asyncio.run(main())
