from __future__ import annotations

import asyncio
from typing import cast

from broker.client.group_offsets import Membership
from broker.client.group_settings import GroupSettings
from broker.client.heartbeats import Heartbeats
from broker.client.member_requests import MemberRequests
from broker.client.turns import Turn, Turns
from tests.client.running import run, until

SETTINGS = GroupSettings(group_id="g", heartbeat_interval_ms=1, session_timeout_ms=30)


class _Coordinator:
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked_at = float("inf")

    async def heartbeat(self, membership: Membership) -> bool:
        self.asked_at = asyncio.get_running_loop().time()
        await self.answers.wait()
        return False


def test_what_a_member_has_is_in_doubt_once_no_heartbeat_of_the_last_session_was_answered() -> None:
    """An answer counts from when it was asked for: it may have waited for a process that stood still."""

    async def main() -> None:
        coordinator, turns = _Coordinator(), Turns()
        heartbeats = Heartbeats(SETTINGS, cast(MemberRequests, coordinator), turns, lambda _: 1.0)
        assert not heartbeats.is_in_doubt
        async with heartbeats.running(Membership, 5.0):
            assert not heartbeats.is_in_doubt
            assert heartbeats.sure_until_ms == 5_000 + SETTINGS.session_timeout_ms
            await until(lambda: heartbeats.is_in_doubt)
            assert turns.asked is None
            session = SETTINGS.session_timeout_ms / 1000
            await until(lambda: asyncio.get_running_loop().time() - coordinator.asked_at > session)
            sure_until_ms = coordinator.asked_at * 1000 + SETTINGS.session_timeout_ms
            coordinator.answers.set()
            await until(lambda: turns.asked is not None)
            assert turns.asked is Turn.LOST
            assert 5_000 + SETTINGS.session_timeout_ms < heartbeats.sure_until_ms <= sure_until_ms
        assert not heartbeats.is_in_doubt

    run(main)
