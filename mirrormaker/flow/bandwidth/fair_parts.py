"""Parts of something scarce, for those who want different amounts of it: weighted max-min. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What one of them could use, and how much it counts beside others that want more than there is."""

    part: float
    weight: float = 1.0


def fair_parts(wants: Mapping[Key, Want], total: float) -> dict[Key, float]:
    """Nobody gets more than it wants; who gets less gets, by weight, as much as anybody else."""
    left, weights = total, sum(want.weight for want in wants.values())
    parts: dict[Key, float] = {}
    for key, want in sorted(wants.items(), key=lambda item: item[1].part / item[1].weight):
        parts[key] = max(min(want.part, left * want.weight / weights), 0.0)
        left -= parts[key]
        weights -= want.weight
    return parts
