"""Fair shares: how flows divide what they pass through. Pure.

Weighted max-min: all flows grow together, each by its weight, until one has what it wants or something it
passes through is full; those stop, the others go on. So nobody who wants little gets less than that because
others want much, and what one leaves goes to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CLOSE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Flow:
    """What wants to pass: bytes per second wanted, weight, and the narrow places on its way by number."""

    wanted: float
    weight: float
    places: tuple[int, ...]


def fair_shares(flows: Sequence[Flow], sizes: Mapping[int, float]) -> list[float]:
    """What each flow gets, in bytes per second. `sizes` are those of the places."""
    shares = [0.0] * len(flows)
    open_places = {
        place: [0.0, 0.0] for place in sizes
    }  # taken by those that have stopped; weight of the others
    for flow in flows:
        for place in flow.places:
            open_places[place][1] += flow.weight
    growing = [number for number, flow in enumerate(flows) if flow.wanted > 0]
    for number in set(range(len(flows))) - set(growing):
        _stop(flows[number], 0.0, open_places)
    while growing:
        level, narrowest = _narrowest(open_places, sizes)
        content = [
            number for number in growing if flows[number].wanted <= level * flows[number].weight * _CLOSE
        ]
        stopping = content or [number for number in growing if narrowest in flows[number].places]
        for number in stopping:
            flow = flows[number]
            shares[number] = min(flow.wanted, level * flow.weight)
            _stop(flow, shares[number], open_places)
        stopped = set(stopping)
        growing = [number for number in growing if number not in stopped]
    return shares


def _narrowest(places: Mapping[int, list[float]], sizes: Mapping[int, float]) -> tuple[float, int]:
    """How far all can grow until the first place is full, and which that is."""
    level, narrowest = float("inf"), -1
    for place, (taken, weight) in places.items():
        if weight > 0:
            at = max(sizes[place] - taken, 0.0) / weight
            if at < level:
                level, narrowest = at, place
    return level, narrowest


def _stop(flow: Flow, share: float, places: Mapping[int, list[float]]) -> None:
    for place in flow.places:
        entry = places[place]
        entry[0] += share
        entry[1] -= flow.weight
        if entry[1] < 1e-9:
            entry[1] = 0.0
