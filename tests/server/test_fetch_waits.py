"""A fetch that waits is told of records, however close to the beginning of its wait they come."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.node.raw_client import batch_of, produce_request
from tests.server.followed_node import LONG_MS, TOPIC, followed_node

ROUNDS = 20


def test_records_that_come_along_with_the_fetch_end_its_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path) as node:
            reader, writer = await node.connect(), await node.connect()
            for offset in range(ROUNDS):
                fetched = reader.send(node.fetch_request(offset, LONG_MS))
                written = writer.send(produce_request(TOPIC, batch_of(b"a"), acks=1))
                async with asyncio.timeout(LONG_MS / 3000):
                    await written
                    assert (await fetched).responses[0].partitions[0].records

    asyncio.run(scenario())
