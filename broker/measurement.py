"""What commands that measure send, and what they tell of it."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from broker.latencies import Latencies

PAYLOADS = 64
"""Different values that are sent in turn."""
PERCENTILES = (50.0, 95.0, 99.0, 99.9)
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What went through in which time; `size` counts the bytes of keys and values."""

    count: int
    size: int
    seconds: float
    latencies: Latencies | None = None

    @property
    def document(self) -> dict[str, Any]:
        """All figures by name."""
        seconds = max(self.seconds, 1e-9)
        figures: dict[str, Any] = {
            "records": self.count,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.count / seconds, 1),
            "megabytes_per_second": round(self.size / MEGABYTE / seconds, 3),
        }
        if self.latencies is not None:
            figures["latency_ms"] = {
                "mean": round(self.latencies.mean_ms, 3),
                **{f"p{each:g}": round(self.latencies.percentile_ms(each), 3) for each in PERCENTILES},
                "max": round(self.latencies.max_ms, 3),
            }
        return figures

    @property
    def lines(self) -> Sequence[str]:
        """All figures for eyes."""
        figures = self.document
        lines = [
            f"{self.count} records, {self.size / MEGABYTE:.2f} MB in {self.seconds:.3f} s: "
            f"{figures['records_per_second']:.0f} records/s, {figures['megabytes_per_second']:.2f} MB/s"
        ]
        if self.latencies is not None:
            times = ", ".join(f"{name} {value:.2f}" for name, value in figures["latency_ms"].items())
            lines.append(f"latency in ms: {times}")
        return lines


def payloads_of(size: int) -> list[bytes]:
    """Letters, so that codecs find something to do; `PAYLOADS` values of so many bytes."""
    letters = random.Random(size)
    return [bytes(letters.choices(string.ascii_uppercase.encode(), k=size)) for _ in range(PAYLOADS)]


async def pace(due: float) -> None:
    """Wait until then, by `perf_counter`."""
    early = due - perf_counter()
    if early > 0:
        await asyncio.sleep(early)
