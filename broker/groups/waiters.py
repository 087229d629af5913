"""Requests that wait for what a group decides."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from broker.groups.events import Waiter

AnyReply = TypeVar("AnyReply")


class Waiters:
    """Requests that wait for a machine's answer, by token. A caller that went away is a cancelled future: its
    answer is dropped.
    """

    def __init__(self) -> None:
        self._futures: dict[Waiter, asyncio.Future[Any]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._futures)

    def open(self, kind: type[AnyReply]) -> tuple[Waiter, asyncio.Future[AnyReply]]:
        """A token, and the future that its answer, of type `kind`, will be set on."""
        self._last += 1
        waiter = Waiter(self._last)
        answer: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
        self._futures[waiter] = answer
        return waiter, answer

    def answer(self, waiter: Waiter, value: object) -> None:
        """Hand a reply over."""
        answer = self._futures.pop(waiter)
        if not answer.done():
            answer.set_result(value)
