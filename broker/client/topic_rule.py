"""Access rules about topics, as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LITERAL, PREFIXED = 3, 4


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicRule:
    """One rule, by Kafka's codes for pattern types, operations and permissions."""

    topic: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
