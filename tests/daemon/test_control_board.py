"""Wishes by way of a board that nobody has used before."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker.control_access import pause, read_control, resume
from mirrormaker.reconcile.control import Pause, pause_key
from mirrormaker.reconcile.control_board import ControlBoard, ControlBoards
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName, RouteName
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS
from tests.reconcile.test_halts import HALT
from tests.reconcile.test_routes import A, selecting


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


def test_another_cluster_at_the_same_addresses_has_a_board_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("clusters: {aggregate: {bootstrap: ['127.0.0.1:1'], cluster_id: one}}\nroutes: []\n")
    spec = load_topology(file).clusters[ClusterName("aggregate")]

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            boards = ControlBoards(tasks)
            board = boards.of(spec)
            assert boards.of(replace(spec, datacenter="elsewhere")) is board
            for other in ("other", None):
                assert boards.of(replace(spec, cluster_id=other)).spec.cluster_id == other
            boards.close()

    asyncio.run(main())


def test_a_refused_resumption_leaves_nothing_behind(cluster: ClusterFactory, tmp_path: Path) -> None:
    (address, *_) = cluster("aggregate").bootstrap
    file, name = tmp_path / "topology.yaml", RouteName("jfk-to-aggregate")
    file.write_text(
        f"clusters: {{jfk: {{bootstrap: ['127.0.0.1:1']}}, aggregate: {{bootstrap: ['{address}']}}}}\n"
        "routes: [{from: jfk, to: aggregate, topics: {include: [flights, planes]}}]\n"
    )
    topology, clock = load_topology(file), SystemClock()

    async def main() -> None:
        await pause(topology, name, [], None, clock)
        with pytest.raises(ConfigurationError, match="paused as a whole"):
            await resume(topology, name, ["flights"], clock)
        wishes = (await read_control(topology.clusters[ClusterName("aggregate")]))[name]
        assert wishes.pause is not None
        assert wishes.resumption is None

    asyncio.run(main())


def test_what_stands_after_an_edit_stands_under_the_edit(cluster: ClusterFactory, tmp_path: Path) -> None:
    (address, *_) = cluster("aggregate").bootstrap
    file = tmp_path / "topology.yaml"
    file.write_text(f"clusters: {{aggregate: {{bootstrap: ['{address}']}}}}\nroutes: []\n")
    edited = selecting(A, include=("flights", "planes"))
    assert edited.digest != A.digest

    async def main() -> None:
        board = ControlBoard(load_topology(file).clusters[ClusterName("aggregate")])
        running = asyncio.create_task(board.run())
        try:
            halts = RouteHalts(A, board, "d", SystemClock())
            for work in (A, edited):
                halts.change(work)
                await halts.tell(HALT.trouble, stops_route=True)
                wishes = await board.wishes(A.name)
                assert [halt.digest for halt in wishes.halts.values()] == [work.digest]
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())
