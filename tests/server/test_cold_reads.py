"""Reads of the event loop that need what is on the disk only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.server.cold_reads import WARMINGS_MAX, read_once_warm
from broker.storage.page_cache import ColdReadError, may_wait


def run(read: Callable[[], int]) -> int:
    async def scenario() -> int:
        with ThreadPoolExecutor(1) as threads:
            return await read_once_warm(read, threads)

    return asyncio.run(scenario())


def test_a_read_is_done_again_until_all_that_it_needs_was_brought_in_by_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warmed_in: list[threading.Thread] = []
    monkeypatch.setattr(
        ColdReadError, "warm", lambda *_: warmed_in.append(threading.current_thread()), raising=True
    )

    def read() -> int:
        assert not may_wait()
        if len(warmed_in) < 20:
            raise ColdReadError(Path("segment"), len(warmed_in), 1)
        return 7

    assert run(read) == 7
    assert len(warmed_in) == 20
    assert threading.main_thread() not in warmed_in
    assert may_wait()


def test_a_read_whose_pages_are_dropped_again_and_again_waits_in_the_end() -> None:
    attempts = []

    def read() -> int:
        attempts.append(may_wait())
        if not may_wait():
            raise ColdReadError(Path("not there"), 0, 1)
        return 7

    assert run(read) == 7
    assert attempts == [False] * WARMINGS_MAX + [True]


def test_what_a_read_raises_is_raised() -> None:
    def read() -> int:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with pytest.raises(ProtocolError):
        run(read)
