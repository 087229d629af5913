"""What leaders know a producer by. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.types import NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """An id and its epoch; sequence numbers count per identity and partition."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, -1)
