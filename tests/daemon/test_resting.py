"""A route that runs or rests goes by what its destination says, also while that is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from broker.types import HostPort
from mirrormaker.reconcile.control import Claim, Rest, RouteWishes
from tests.daemon.test_ending import make_runner

NOBODY = HostPort("127.0.0.1", 2)
NEWER = Claim(generation=1, digest="x", daemon="d", host="h", at_ms=5)


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
