"""A route that runs or rests goes by what its destination says, also while that is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.errors import ConnectionFailedError
from broker.types import HostPort
from mirrormaker import route_runner
from mirrormaker.reconcile.control import Claim, Pause, Rest, RouteWishes
from mirrormaker.route_runner import RouteState
from tests.client.running import until
from tests.daemon.test_ending import make_runner

NOBODY = HostPort("127.0.0.1", 2)
PATIENCE_SECONDS = 60.0
NEWER = Claim(generation=1, digest="x", daemon="d", host="h", at_ms=5)
PAUSE = Pause(at_ms=1, by="ops")


def test_a_worker_does_not_give_way_to_the_newer_file_that_another_one_was_told_first(tmp_path: Path) -> None:
    async def rest_of(claim: Claim, **identity: int) -> Rest | None:
        runner, board = make_runner(tmp_path, NOBODY, **identity)
        board._wishes = {runner.work.name: RouteWishes(claim=claim)}
        board._looked.set()
        return (await runner.verdict()).rest

    async def main() -> None:
        worker = {"worker": 2, "worker_since_ms": 4}
        assert await rest_of(NEWER, **worker) is None
        assert await rest_of(replace(NEWER, daemon="other"), **worker) is Rest.SUPERSEDED
        assert await rest_of(NEWER) is Rest.SUPERSEDED

    asyncio.run(main())


@pytest.mark.parametrize(
    ("generation", "pause", "rest"), [(0, PAUSE, Rest.PAUSED), (0, None, None), (-1, PAUSE, Rest.PAUSED)]
)
def test_a_file_in_force_again_fails_no_route_that_has_nothing_to_say_or_rests_while_its_destination_is_away(
    tmp_path: Path, generation: int, pause: Pause | None, rest: Rest | None
) -> None:
    async def main() -> None:
        runner, board = make_runner(tmp_path, NOBODY)
        claim = replace(NEWER, generation=generation, digest=runner.work.digest)
        board._wishes = {runner.work.name: RouteWishes(claim=claim, pause=pause)}
        board._looked.set()
        runner.start_over()
        assert (await runner._decide()).rest is rest

    asyncio.run(main())


def test_a_route_that_rests_goes_on_to_say_by_which_file_while_its_destination_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_runner, "CLAIM_RETRY_MS", 1)

    async def main() -> None:
        runner, board = make_runner(tmp_path, NOBODY)
        board._wishes = {runner.work.name: RouteWishes(pause=PAUSE)}
        board._looked.set()
        tries = 0

        async def put(records: object) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise ConnectionFailedError("away")

        monkeypatch.setattr(board, "put", put)
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(runner.run())
            await until(lambda: tries == 3)
            assert (runner.state, runner.failures) == (RouteState.PAUSED, 0)
            await runner.stop(for_good=False)
            await running

    asyncio.run(main())
