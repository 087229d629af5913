"""Effects in the making, while a machine and its parts handle one event."""

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
        self.now_ms = 0
        """Wall time of the event."""
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

    def take(self) -> Effects:
        """All of it, frozen; the draft is empty then."""
        effects = Effects(
            timers=tuple(self._timers),
            replies=tuple(self._replies),
            stores=tuple(self._stores),
            facts=tuple(self._facts),
        )
        for entries in (self._timers, self._replies, self._stores, self._facts):
            entries.clear()
        return effects
