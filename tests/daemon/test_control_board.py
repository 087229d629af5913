"""Wishes by way of a board that nobody has used before."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from mirrormaker.control_access import pause, read_control, resume
from mirrormaker.flow import topic_silence
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.reconcile import control_board
from mirrormaker.reconcile.control import CONTROL_TOPIC, Pause, pause_key
from mirrormaker.reconcile.control_board import ControlBoard, ControlBoards
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName, RouteName
from tests.client.running import until
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS
from tests.reconcile.test_halts import HALT
from tests.reconcile.test_routes import A, selecting


def boarded(cluster: ClusterFactory, folder: Path) -> tuple[EmbeddedCluster, ControlBoard]:
    """A cluster that nobody has used before, and the board of what leads there."""
    there = cluster("aggregate")
    file, address = folder / "topology.yaml", there.bootstrap[0]
    file.write_text(
        f"clusters: {{jfk: {{bootstrap: ['127.0.0.1:1']}}, aggregate: {{bootstrap: ['{address}']}}}}\n"
        "routes: [{from: jfk, to: aggregate, topics: {include: [flights]}}]\n"
    )
    return there, ControlBoard(load_topology(file).clusters[ClusterName("aggregate")], SystemClock())


def test_what_becomes_of_the_topic_is_an_event_of_every_route_that_heeds_it(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    there, board = boarded(cluster, tmp_path)
    routes = [RouteName("one"), RouteName("other")]
    events = {route: RouteEvents(route, SystemClock()) for route in routes}
    missing = ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "so it is")
    refusals: list[ProtocolError] = []

    class Refused(KeptTopic):
        async def read_to_end(self) -> None:
            if refusals:
                raise refusals.pop()
            await super().read_to_end()

    def told(route: RouteName) -> list[str]:
        return [event["name"] for event in events[route].describe()]

    async def main() -> None:
        running = asyncio.create_task(board.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await board.looked()
                assert board.problem == str(missing)
                for route in routes:
                    board.listen(route, lambda: None, events[route])
                await until(lambda: board.problem is None)
                wish = Pause(at_ms=1, by="somebody")
                await board.put([(pause_key(routes[0], None), asdict(wish))])
                async with Cluster(there.bootstrap) as client:
                    await Admin(client).delete_topics([CONTROL_TOPIC])
                await until(lambda: CONTROL_TOPIC in events[routes[1]].begun_anew)
                await until(lambda: board.known_wishes(routes[0]).pause is None)
        finally:
            running.cancel()
            await asyncio.wait([running])

    refusals += [missing] * 3
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(control_board, "KeptTopic", Refused)
        asyncio.run(main())
    for route in routes:
        assert told(route) == ["control_topic_not_read", "control_topic_read", "kept_topic_begun_anew"]
        assert events[route].begun_anew[CONTROL_TOPIC]["cluster"] == "aggregate"


@pytest.mark.timeout(120)
def test_a_destination_that_answers_no_more_is_told_of_and_that_it_does_again(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, board = boarded(cluster, tmp_path)
    route, pid = RouteName("one"), there.pids[1]
    events = RouteEvents(route, SystemClock())
    monkeypatch.setattr(topic_silence, "LOOK_INTERVAL_MS", 300)

    def told() -> list[str]:
        return [event["name"] for event in events.describe()]

    async def main() -> None:
        running = asyncio.create_task(board.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await until(lambda: board.is_read and board.problem is None)
                board.listen(route, lambda: None, events)
                os.kill(pid, signal.SIGSTOP)
                await until(lambda: board.problem is not None)
                os.kill(pid, signal.SIGCONT)
                await until(lambda: board.problem is None)
                wish = Pause(at_ms=1, by="somebody")
                await board.put([(pause_key(route, None), asdict(wish))])
                assert (await board.wishes(route)).pause == wish
        finally:
            os.kill(pid, signal.SIGCONT)
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())
    assert told() == ["control_topic_not_read", "control_topic_read"]


def test_what_is_put_at_once_waits_until_the_topic_is_at_hand(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    _, board = boarded(cluster, tmp_path)
    wish, route = Pause(at_ms=1, by="somebody"), RouteName("jfk-to-aggregate")

    async def main() -> None:
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
            boards = ControlBoards(tasks, SystemClock())
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
        board = ControlBoard(load_topology(file).clusters[ClusterName("aggregate")], SystemClock())
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
