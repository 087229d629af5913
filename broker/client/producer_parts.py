"""What a program may plug into a producer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.client.encoders import Encoder
from broker.client.event_handler import EventHandler
from broker.client.partitioner import Partitioner


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerParts:
    """What a program may plug into a producer; without them records are taken as they are."""

    partitioner: Partitioner | None = None
    """None: by the murmur2 hash of the key, as Java's clients; sticky without a key."""
    key_encoder: Encoder | None = None
    value_encoder: Encoder | None = None
    handlers: Sequence[EventHandler] = ()
    """Called in this order at each stage."""
