"""Wishes by way of a board that nobody has used before."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from mirrormaker.reconcile.control import Pause, pause_key
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName, RouteName
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS


def test_what_is_put_at_once_waits_until_the_topic_is_at_hand(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    (address, *_) = cluster("aggregate").bootstrap
    file, route = tmp_path / "topology.yaml", RouteName("jfk-to-aggregate")
    file.write_text(
        f"clusters: {{jfk: {{bootstrap: ['127.0.0.1:1']}}, aggregate: {{bootstrap: ['{address}']}}}}\n"
        "routes: [{from: jfk, to: aggregate, topics: {include: [flights]}}]\n"
    )
    wish = Pause(at_ms=1, by="somebody")

    async def main() -> None:
        board = ControlBoard(load_topology(file).clusters[ClusterName("aggregate")])
        running = asyncio.create_task(board.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await board.put([(pause_key(route, None), asdict(wish))])
                assert (await board.wishes(route)).pause == wish
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())
