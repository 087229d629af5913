"""The examples of `ops/docs/clients.md`, run against a real node."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets
from broker.types import TopicPartition
from tests.conftest import ClusterFactory

DOCUMENT = Path(__file__).parents[2] / "ops/docs/clients.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_every_example_runs_as_it_stands(cluster: ClusterFactory) -> None:
    running = cluster()
    address = running.bootstrap[0]
    examples = EXAMPLE.findall(DOCUMENT.read_text())
    assert examples
    for number, example in enumerate(examples, 1):
        text = example.replace('HostPort("127.0.0.1", 9092)', f'HostPort("{address.host}", {address.port})')
        text = text.replace("127.0.0.1:2181", running.spec.zookeeper_connect)
        exec(compile(text, f"{DOCUMENT.name}, example {number}", "exec"), {"__name__": "example"})

    async def written() -> int:
        async with Cluster(running.bootstrap) as client:
            ends = await list_offsets(client, {TopicPartition("visits", 0): LATEST})
            return ends[TopicPartition("visits", 0)].offset

    assert asyncio.run(written()) > 1_000
