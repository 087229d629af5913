"""How records cross: guarantee, copy mode, codec, batches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Delivery(Enum):
    """What a crash may do to records on their way: AT_LEAST_ONCE may double, AT_MOST_ONCE may lose,
    EXACTLY_ONCE does neither.
    """

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"
    AT_MOST_ONCE = "at_most_once"


class CopyMode(Enum):
    """How batches cross: AUTO as they are wherever that is exact, SHALLOW never decoded, DEEP always decoded
    and built anew.
    """

    AUTO = "auto"
    SHALLOW = "shallow"
    DEEP = "deep"


class Compression(Enum):
    """The codec that batches have at the destination; PRESERVE is the one that they came with."""

    PRESERVE = "preserve"
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Isolation(Enum):
    """Which records of the source's transactions are copied."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Membership(Enum):
    """Where the processes of a route agree on who copies what."""

    COORDINATOR = "coordinator"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """Small batches gathered into bigger ones; that decodes them."""

    bytes: int | None = None
    """Size that batches are gathered up to, and that those which are made record by record come in; left out,
    it follows from the round trip.
    """
    linger_ms: int | None = None
    """How long a batch waits for more; left out, it follows from the round trip."""
