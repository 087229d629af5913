"""Fair shares: how flows divide what they pass through. Pure.

Weighted max-min: all flows grow together, each by its weight, until one has what it wants or something it
passes through is full; those stop, the others go on. So nobody who wants little gets less than that because
others want much, and what one leaves goes to the others.

A place that a single flow passes through only bounds what that flow wants. Flows are taken in the order of
what they want by weight, so that none is looked at before it may have all of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirrormaker.plan.simulation.limits import UNLIMITED

_CLOSE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Flow:
    """What wants to pass: bytes per second wanted, weight, and the narrow places on its way by number."""

    wanted: float
    weight: float
    places: tuple[int, ...]


def fair_shares(flows: Sequence[Flow], sizes: Mapping[int, float]) -> list[float]:
    """What each flow gets, in bytes per second. `sizes` are those of the places."""
    passing: dict[int, list[int]] = {place: [] for place in sizes}
    for number, flow in enumerate(flows):
        if flow.wanted > 0:
            for place in flow.places:
                passing[place].append(number)
    wanted = [_wanted_alone(flow, passing, sizes) for flow in flows]
    shared = {
        place: _Room(sizes[place], sum(flows[number].weight for number in through if wanted[number] > 0))
        for place, through in passing.items()
        if len(through) > 1
    }
    shares = [0.0] * len(flows)
    growing = dict.fromkeys(number for number, want in enumerate(wanted) if want > 0)
    by_level = sorted(growing, key=lambda number: -wanted[number] / flows[number].weight)
    while growing:
        level, narrowest = _narrowest(shared)
        stopping = []
        while by_level and wanted[by_level[-1]] <= level * flows[by_level[-1]].weight * _CLOSE:
            number = by_level.pop()
            if number in growing:
                stopping.append(number)
        for number in stopping or [each for each in passing[narrowest] if each in growing]:
            shares[number] = min(wanted[number], level * flows[number].weight)
            del growing[number]
            for place in flows[number].places:
                if place in shared:
                    shared[place].stop(flows[number].weight, shares[number])
    return shares


@dataclass(slots=True)
class _Room:
    """A place that several flows pass through: what is left, and the weight of those that still grow."""

    size: float
    weight: float
    taken: float = 0.0

    def stop(self, weight: float, share: float) -> None:
        """One of them has got its share."""
        self.taken += share
        self.weight -= weight
        if self.weight < 1e-9:
            self.weight = 0.0


def _wanted_alone(flow: Flow, passing: Mapping[int, Sequence[int]], sizes: Mapping[int, float]) -> float:
    """What it wants, as far as the places that nobody else passes through let it."""
    return min(flow.wanted, *(sizes[place] for place in flow.places if len(passing[place]) == 1), UNLIMITED)


def _narrowest(shared: Mapping[int, _Room]) -> tuple[float, int]:
    """How far all can grow until the first place is full, and which that is."""
    level, narrowest = UNLIMITED, -1
    for place, room in shared.items():
        if room.weight > 0:
            at = max(room.size - room.taken, 0.0) / room.weight
            if at < level:
                level, narrowest = at, place
    return level, narrowest
