"""The replicas of one topic that are copied under a replication quota: `*`, or PARTITION:BROKER pairs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.settings import Kind, SettingType

_EVERY = "*"
_PAIR = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledReplicas:
    """All replicas of the topic, or those in `pairs` of partition and broker."""

    every: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def holds(self, partition: int, broker: int) -> bool:
        """Whether the partition's replica on the broker is one of them."""
        return self.every or (partition, broker) in self.pairs

    @classmethod
    def parse(cls, text: str) -> ThrottledReplicas:
        """As topics are told. Raises ValueError."""
        if text.strip() == _EVERY:
            return cls(every=True)
        parts = [part.strip() for part in text.split(",") if part.strip()]
        matches = [(part, _PAIR.fullmatch(part)) for part in parts]
        strange = [part for part, match in matches if match is None]
        if strange:
            raise ValueError(f"expected {_EVERY} or a list of PARTITION:BROKER, not {strange[0]!r}")
        return cls(pairs=frozenset((int(match[1]), int(match[2])) for _, match in matches if match))

    def render(self) -> str:
        """The inverse of `parse`."""
        return _EVERY if self.every else ",".join(f"{part}:{broker}" for part, broker in sorted(self.pairs))


THROTTLED_REPLICAS = Kind(
    type=SettingType.LIST, parse=ThrottledReplicas.parse, render=ThrottledReplicas.render
)
NOTHING_THROTTLED = ThrottledReplicas()
