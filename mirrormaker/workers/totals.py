"""What workers have counted, also those whose processes are gone. Pure.

The total of several workers that falls because one of them begins anew looks as if all of them had: whoever
follows it takes what the others told before for new. So what a worker told last is kept when it does.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

Totals = int | float | Mapping[str, Any]
"""A number that only grows, or a mapping of such."""
_Key = TypeVar("_Key", bound=Hashable)


class PastTotals(Generic[_Key]):
    """Of what has begun anew since, by what it is the total of."""

    def __init__(self) -> None:
        self._last: dict[int, Mapping[_Key, Totals]] = {}
        """What each worker told last."""
        self._past: dict[_Key, Totals] = {}

    def take(self, number: int, told: Mapping[_Key, Totals]) -> None:
        """What this worker tells now; what it does not tell any more has ended."""
        for key, before in self._last.get(number, {}).items():
            if key not in told or _has_fallen(before, told[key]):
                self._past[key] = self.added_to(key, before)
        self._last[number] = dict(told)

    def added_to(self, key: _Key, totals: Totals) -> Totals:
        """With what is past of it."""
        past = self._past.get(key)
        total: Totals = totals if past is None else added_up([totals, past])
        return total

    def keep(self, keys: Collection[_Key]) -> None:
        """Forget everything else."""
        self._past = {key: past for key, past in self._past.items() if key in keys}
        self._last = {
            number: {key: totals for key, totals in told.items() if key in keys}
            for number, told in self._last.items()
        }


def added_up(values: Sequence[Any]) -> Any:
    """Numbers as their sum, mappings key by key."""
    if isinstance(values[0], Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: added_up([value[key] for value in values if key in value]) for key in keys}
    return sum(values)


def _has_fallen(before: Any, now: Any) -> bool:
    """Whether any number of it has."""
    if isinstance(before, Mapping):
        return any(key not in now or _has_fallen(value, now[key]) for key, value in before.items())
    return bool(now < before)
