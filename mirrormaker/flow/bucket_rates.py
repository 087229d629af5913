"""How much work a bucket is, and how the members of a route's group tell each other. Pure.

A member measures the bytes a second of the buckets that it has, smooths them, and tells them in steps of a
fifth or so: a figure that hardly changes does not change at all. With its share it is told those of all
buckets, so that whoever leads next knows them, also those of a member that died.

Both travel as JSON, {"rates": {BUCKET: BYTES A SECOND}} with the subscription, and with the assignment
{"rates": {...}, "members": N}. A member that tells nothing has buckets that count by their partitions alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SMOOTHING_MS = 30_000
"""What was measured so long ago counts for a third of what is measured now."""
STEPS_PER_DOUBLING = 4
IDLE_BYTES_PER_SECOND = 4096
"""What a partition counts at least: idle ones are shared out by their number."""

_RATE_MAX = 1 << 53
_BUCKET_DIGITS_MAX = 9

Rates = Mapping[int, int]
"""Bytes a second by bucket; idle ones are left out."""


def quantised(bytes_per_second: float) -> int:
    """The nearest of the figures that are told; 0 for next to nothing."""
    if bytes_per_second < IDLE_BYTES_PER_SECOND:
        return 0
    return round(2 ** (round(math.log2(bytes_per_second) * STEPS_PER_DOUBLING) / STEPS_PER_DOUBLING))


class RateMeter:
    """Smoothed rates of the buckets at hand, out of running totals."""

    def __init__(self) -> None:
        self._totals: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._at_ms: int | None = None

    def measure(self, totals: Mapping[int, int], now_ms: int) -> None:
        """Take the running totals of bytes by bucket; one that fell has begun anew."""
        if self._at_ms is not None and now_ms > self._at_ms:
            weight = 1 - math.exp((self._at_ms - now_ms) / SMOOTHING_MS)
            for bucket in totals.keys() & self._totals.keys():
                self._take(bucket, totals[bucket] - self._totals[bucket], now_ms - self._at_ms, weight)
        self._rates = {bucket: rate for bucket, rate in self._rates.items() if bucket in totals}
        self._totals, self._at_ms = dict(totals), now_ms

    def _take(self, bucket: int, moved: int, elapsed_ms: int, weight: float) -> None:
        if moved < 0:
            return
        measured, known = moved * 1000 / elapsed_ms, self._rates.get(bucket)
        self._rates[bucket] = measured if known is None else known + (measured - known) * weight

    def rates(self) -> dict[int, int]:
        """As they are told, of buckets that have been measured."""
        return {bucket: quantised(rate) for bucket, rate in sorted(self._rates.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """What the leader knew when it shared the buckets out."""

    rates: Rates = field(default_factory=dict)
    members: int = 0


def encode_rates(rates: Rates) -> bytes:
    """For the subscription."""
    return json.dumps({"rates": rates}, separators=(",", ":")).encode()


def decode_rates(data: bytes | None) -> dict[int, int]:
    """What a member tells; nothing where it tells nothing that can be read."""
    return _rates_of(_decode(data))


def encode_load(load: GroupLoad) -> bytes:
    """For the assignment."""
    return json.dumps({"rates": load.rates, "members": load.members}, separators=(",", ":")).encode()


def decode_load(data: bytes | None) -> GroupLoad:
    """What the leader tells."""
    told = _decode(data)
    members = told.get("members") if isinstance(told, dict) else None
    return GroupLoad(rates=_rates_of(told), members=members if isinstance(members, int) else 0)


def _decode(data: bytes | None) -> Any:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None


def _rates_of(told: Any) -> dict[int, int]:
    rates = told.get("rates") if isinstance(told, dict) else None
    if not isinstance(rates, dict):
        return {}
    return {
        int(bucket): rate
        for bucket, rate in rates.items()
        if bucket.isdecimal() and len(bucket) <= _BUCKET_DIGITS_MAX
        if isinstance(rate, int) and 0 <= rate <= _RATE_MAX
    }
