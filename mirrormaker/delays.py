"""Figures about flights that the demo and its Spark job share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """Delays of one carrier at one airport; sums in minutes, over the flights that have that figure."""

    flights: int
    departed: int
    departure_delay_sum: int
    arrived: int
    arrival_delay_sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What one topic holds: records, and different rows among them."""

    records: int
    rows: int
