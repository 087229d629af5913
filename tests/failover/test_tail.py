"""What a side says of where its records have been."""

from __future__ import annotations

import asyncio

from broker.client.cluster import Cluster
from mirrormaker.failover.tail import read_paths
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from tests.conftest import ClusterFactory


def test_a_record_that_names_no_path_is_passed_over(cluster: ClusterFactory) -> None:
    odd = [[{}], [["a"]], [7], [], "a", None, {"a": 1}]
    entries = [({"producer": 100 + number}, {"path": path}) for number, path in enumerate(odd)]

    async def main() -> None:
        async with Cluster(cluster().bootstrap) as client:
            assert await read_paths(client) == {}
            async with KeptTopic(client, ORIGINS_TOPIC) as topic:
                await topic.put([({"producer": 1}, {"path": ["a", "b"]}), *entries])
                await topic.put([({"producer": "x"}, {"path": ["a"]}), ({"producer": 2}, {"path": ["b"]})])
            assert await read_paths(client) == {1: frozenset({"a", "b"}), 2: frozenset({"b"})}

    asyncio.run(main())
