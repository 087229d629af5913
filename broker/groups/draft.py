"""Effects in the making, while a machine handles one event."""

from __future__ import annotations

from broker.groups.events import (
    CancelTimer,
    Effects,
    Fact,
    Reply,
    ReplyValue,
    SetTimer,
    Store,
    Timer,
    Waiter,
)


class Draft:
    """Collects in order; see `Effects` for what the entries mean."""

    def __init__(self) -> None:
        self._timers: list[SetTimer | CancelTimer] = []
        self._replies: list[Reply] = []
        self._stores: list[Store] = []
        self._facts: list[Fact] = []

    def reply(self, waiter: Waiter, value: ReplyValue) -> None:
        self._replies.append(Reply(waiter=waiter, value=value))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self._timers.append(SetTimer(timer=timer, delay_ms=delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self._timers.append(CancelTimer(timer=timer))

    def store(self, store: Store) -> None:
        self._stores.append(store)

    def note(self, name: str, **details: object) -> None:
        self._facts.append(Fact(name, details))

    def effects(self) -> Effects:
        """All of it, frozen."""
        return Effects(
            timers=tuple(self._timers),
            replies=tuple(self._replies),
            stores=tuple(self._stores),
            facts=tuple(self._facts),
        )
