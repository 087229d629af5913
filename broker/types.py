"""Identifiers that could be swapped by mistake, and the few value types that every layer shares."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
"""Logical position of a record in a partition; -1 where the protocol says "unknown"."""
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", UUID)

NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER = BrokerId(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))

_NOT_IN_HOSTS = re.compile(r"[\s,/\[\]]")

Buffer = bytes | bytearray | memoryview
"""What record bytes travel in; a memoryview is never copied on the hot paths."""


class TopicPartition(NamedTuple):
    """One partition of one topic, ordered by name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class HostPort(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Read `host:port` or `[ipv6]:port`. Raises ValueError that names the text."""
        host, separator, port = text.strip().rpartition(":")
        if not separator or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is not host:port")
        if "," in text:
            raise ValueError(f"{text!r} is not one host:port but several")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if _NOT_IN_HOSTS.search(host) or (":" in host and not _is_ipv6(host)):
            raise ValueError(f"{text!r} is not host:port")
        return cls(host, int(port))


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
