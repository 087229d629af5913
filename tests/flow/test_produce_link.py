"""What is sent to a broker of the destination, on a real node."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.types import BrokerId
from mirrormaker.flow.exchange import ProduceCommand
from mirrormaker.flow.writer import ProduceLink
from tests.client.running import until
from tests.conftest import ClusterFactory


@pytest.mark.timeout(120)
def test_an_end_while_a_node_hangs_leaves_no_answers_that_nobody_takes(cluster: ClusterFactory) -> None:
    node = cluster()
    told: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))
        async with Cluster(node.bootstrap) as client:
            link = ProduceLink(
                client, BrokerId(1), SystemClock(), on_answer=lambda *_: None, on_failure=lambda *_: None
            )
            task = asyncio.create_task(link.run())
            link.submit(ProduceCommand(broker=BrokerId(1), entries=[], bytes=0))
            await until(lambda: link._connection is not None and not link._sent)
            os.kill(node.pids[1], signal.SIGSTOP)
            for _ in range(3):
                link.submit(ProduceCommand(broker=BrokerId(1), entries=[], bytes=0))
            assert len(link._sent) == 3
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(main())
    finally:
        os.kill(node.pids[1], signal.SIGCONT)
    gc.collect()
    assert told == []
