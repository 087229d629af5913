"""A starting node waits for its roles as long as it takes to tell them, where it is the controller itself."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from broker import node
from broker.server.cluster_view import ClusterView
from tests.server.running_node import running_node

TIMEOUT_MS = 500
LOOKS = 120
"""Two in each `CONTROLLER_LOOK_MS`: they take longer than the time-out."""


def test_a_controller_that_tells_itself_its_roles_late_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()
    monkeypatch.setattr(node, "FIRST_IMAGE_TIMEOUT_MS", TIMEOUT_MS)
    monkeypatch.setattr(ClusterView, "is_told", property(lambda _: next(looks) > LOOKS))
    assert LOOKS / 2 * node.CONTROLLER_LOOK_MS > TIMEOUT_MS

    async def scenario() -> None:
        async with running_node(tmp_path) as listeners:
            assert listeners

    asyncio.run(scenario())
