"""Access rules about topics and groups, as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC, GROUP = 2, 3
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccessRule:
    """One rule, by Kafka's codes for resources, pattern types, operations and permissions."""

    resource: int = TOPIC
    name: str
    pattern_type: int = LITERAL
    principal: str
    host: str
    operation: int
    permission: int
