"""A daemon is ready only when all routes of its file have come to work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mirrormaker.daemon import Daemon
from tests.client.running import until

PATIENCE_SECONDS = 60.0
TOPOLOGY = """\
clusters: {jfk: {bootstrap: ["127.0.0.1:1"]}, aggregate: {bootstrap: ["127.0.0.1:2"]}}
routes: [{name: a, from: jfk, to: aggregate, topics: {include: [flights]}}]
"""


def test_a_route_that_is_to_start_anew_is_starting_while_it_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY)

    async def main() -> None:
        daemon = Daemon(file)
        running = asyncio.create_task(daemon.run())
        await until(lambda: bool(daemon.describe()["routes"]))
        host, finished = daemon._host, asyncio.Event()
        assert host is not None
        (runner,) = host.runners
        stop = runner.stop

        async def stop_late(*, for_good: bool) -> None:
            await finished.wait()
            await stop(for_good=for_good)

        monkeypatch.setattr(runner, "stop", stop_late)
        file.write_text(TOPOLOGY.replace("127.0.0.1:1", "127.0.0.1:3"))
        assert (await daemon.live.reload()).restart == ("a",)
        told = daemon.describe()["routes"]
        assert (list(told), told["a"]["state"], daemon.is_ready) == (["a"], "starting", False)
        finished.set()
        daemon.stop()
        await running

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
