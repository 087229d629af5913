"""A request on its way, as its connection knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from broker.wire.registry import Api


@dataclass(slots=True, kw_only=True)
class InFlight:
    """A request that waits for its answer."""

    api: Api[Any]
    version: int
    correlation_id: int
    deadline: float
    """On the event loop's clock, in seconds."""
    timeout_ms: float
    answer: asyncio.Future[Any]
