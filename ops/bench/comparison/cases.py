"""What is measured, and what a measurement gives; both travel between processes as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from broker.records.batch import Codec

RECORD_SIZES = (100, 1_000, 100_000)
CODECS = (Codec.NONE, Codec.SNAPPY, Codec.ZSTD)
PARTITION_COUNTS = (1, 100)


class Client(StrEnum):
    """Who sends the load. `PREBUILT` replays requests that were encoded before, over several connections."""

    LIBRDKAFKA = "librdkafka"
    PREBUILT = "prebuilt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table. `batch_size` counts for `PREBUILT`; librdkafka makes batches of up to 1 MB."""

    record_size: int
    client: Client = Client.LIBRDKAFKA
    codec: Codec = Codec.NONE
    partitions: int = 1
    acks: int = 1
    flush: bool = False
    """Whether every acknowledgement waits for the disk (`flush.messages=1`)."""
    batch_size: int = 0
    replicas: int = 1

    @property
    def title(self) -> str:
        parts = [f"{_size(self.record_size)}", self.codec.name.lower(), f"{self.partitions}p"]
        if self.batch_size:
            parts.append(f"batch {_size(self.batch_size)}")
        if self.acks == 0:
            parts.append(f"acks={self.acks}")
        if self.flush:
            parts.append("flush")
        return " ".join(parts)

    @property
    def goal(self) -> float:
        """Share of Apache Kafka's MB/s."""
        if self.replicas > 1:
            return 0.8
        return 1.0 if self.record_size >= 1_000 else 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measurement: bytes of record values, and what they took on the server, or on all nodes together."""

    bytes: int
    seconds: float
    cpu_seconds: float
    leader_cpu_seconds: float = 0.0
    """Of the node that leads the only partition."""

    @classmethod
    def from_json(cls, text: str) -> Figure:
        """What a child printed."""
        return cls(**json.loads(text))

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def cpu_per_gigabyte(self) -> float:
        return self.cpu_seconds / self.bytes * 1e9

    @property
    def leader_cpu_per_gigabyte(self) -> float:
        return self.leader_cpu_seconds / self.bytes * 1e9

    def follower_cpu_per_gigabyte(self, followers: int) -> float:
        """What one of the followers of the only partition used."""
        return (self.cpu_seconds - self.leader_cpu_seconds) / followers / self.bytes * 1e9

    @property
    def busy(self) -> float:
        """Share of its core that the server used: well below 1, the client or the disk set the pace."""
        return self.cpu_seconds / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Both directions of a case."""

    produce: Figure
    fetch: Figure

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """What a child printed."""
        figures = json.loads(text)
        return cls(produce=Figure(**figures["produce"]), fetch=Figure(**figures["fetch"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From handing a record to the client until its acknowledgement, in ms; `rate` is records/s achieved."""

    rate: float
    median_ms: float
    p99_ms: float
    cpu_seconds: float
    seconds: float

    @classmethod
    def from_json(cls, text: str) -> Latency:
        """What a child printed."""
        return cls(**json.loads(text))


class Node(NamedTuple):
    """A process that is loaded; on 127.0.0.1, with its place in the cluster plus 1 as its broker id."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything one child process needs to know to load a cluster."""

    nodes: Sequence[Node]
    topic: str
    seconds: float
    case: Case
    records_per_second: int
    """Where latency is measured."""

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        plan = json.loads(text)
        case, nodes = plan.pop("case"), plan.pop("nodes")
        return cls(
            **plan,
            nodes=[Node(*node) for node in nodes],
            case=Case(**{**case, "client": Client(case["client"]), "codec": Codec(case["codec"])}),
        )


def all_cases() -> Sequence[Case]:
    """The table: the whole matrix with acks=1, then acks=0, then flushes, then prebuilt requests."""
    matrix = [
        Case(record_size=size, codec=codec, partitions=partitions)
        for partitions in PARTITION_COUNTS
        for codec in CODECS
        for size in RECORD_SIZES
    ]
    plain = [case for case in matrix if case.codec is Codec.NONE and case.partitions == 1]
    unacknowledged = [replace(case, acks=0) for case in plain]
    flushed = [replace(case, flush=True) for case in plain[1:]]
    prebuilt = [
        Case(
            client=Client.PREBUILT,
            record_size=record_size,
            codec=codec,
            partitions=partitions,
            batch_size=batch_size,
        )
        for record_size, codec, partitions, batch_size in (
            (100, Codec.NONE, 1, 16_000),
            (1_000, Codec.NONE, 1, 16_000),
            (1_000, Codec.NONE, 100, 16_000),
            (1_000, Codec.SNAPPY, 1, 16_000),
            (100, Codec.NONE, 1, 900_000),
            (1_000, Codec.NONE, 1, 900_000),
            (1_000, Codec.SNAPPY, 1, 900_000),
            (100_000, Codec.NONE, 1, 101_000),
        )
    ]
    return [*matrix, *unacknowledged, *flushed, *prebuilt]


def few_cases() -> Sequence[Case]:
    """One of each kind, to see that everything works."""
    return [
        Case(record_size=1_000),
        Case(record_size=1_000, codec=Codec.ZSTD, partitions=100),
        Case(record_size=1_000, acks=0),
        Case(record_size=1_000, flush=True),
        Case(client=Client.PREBUILT, record_size=1_000, batch_size=16_000),
    ]


def replicated_cases() -> Sequence[Case]:
    """Three replicas, all of which have to have a record before it is acknowledged."""
    plain = [
        Case(record_size=size, codec=codec, partitions=partitions)
        for partitions in (1, 12)
        for codec in (Codec.NONE, Codec.SNAPPY, Codec.LZ4)
        for size in (100, 1_000, 16_000, 100_000)
    ]
    prebuilt = [
        Case(client=Client.PREBUILT, record_size=1_000, partitions=partitions, batch_size=16_000)
        for partitions in (1, 12)
    ]
    return [replace(case, replicas=3, acks=-1) for case in (*plain, *prebuilt)]


def _size(count: int) -> str:
    return f"{count} B" if count < 1_000 else f"{count // 1_000} KB"
