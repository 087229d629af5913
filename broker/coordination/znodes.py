"""What the znodes hold, as frozen values with their JSON codecs.

Each type writes the newest version of its format and reads every older one, whose missing fields get their
defaults. `decode` takes the path only to name it: bytes that are not what they should be raise
CoordinationError.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self
from uuid import UUID

from broker.coordination.document import INT32_MAX, Document, to_json
from broker.errors import CoordinationError
from broker.types import NO_LEADER, NO_TOPIC_ID, BrokerId, HostPort, LeaderEpoch, TopicId, TopicPartition

Assignment = Mapping[int, tuple[BrokerId, ...]]
"""Partition -> replicas, the preferred one first."""


EPOCH_MAX = INT32_MAX >> 1
"""No number of elections leads there: what is beyond was not written by a node, and would soon not fit."""
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Their numbers on the wire are their places here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one listener of a broker is reached."""

    listener: str
    host: str
    port: int
    security_protocol: str

    @property
    def address(self) -> HostPort:
        return HostPort(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerZnode:
    """`/brokers/ids/N`, ephemeral."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = -1
    features: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        first = next((e for e in self.endpoints if e.security_protocol == "PLAINTEXT"), None)
        return to_json(
            {
                "version": 5,
                "host": first.host if first else None,
                "port": first.port if first else -1,
                "endpoints": [f"{e.listener}://{HostPort(e.host, e.port)}" for e in self.endpoints],
                "listener_security_protocol_map": {e.listener: e.security_protocol for e in self.endpoints},
                "rack": self.rack,
                "jmx_port": -1,
                "timestamp": str(self.timestamp_ms),
                "features": dict(self.features),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        protocols = document.text_map("listener_security_protocol_map")
        endpoints = tuple(_parse_endpoint(text, protocols, path) for text in document.texts("endpoints"))
        if not endpoints:
            endpoints = (
                Endpoint(
                    listener="PLAINTEXT",
                    host=document.text("host"),
                    port=document.small("port"),
                    security_protocol="PLAINTEXT",
                ),
            )
        return cls(
            endpoints=endpoints,
            rack=document.optional_text("rack"),
            timestamp_ms=document.integer("timestamp", -1),
            features=document.text_map("features"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicZnode:
    """`/brokers/topics/T`: id and replicas; `adding` and `removing` hold what a reassignment under way
    changes.
    """

    topic_id: TopicId
    partitions: Assignment
    adding: Assignment = field(default_factory=dict)
    removing: Assignment = field(default_factory=dict)

    def encode(self) -> bytes:
        return to_json(
            {
                "version": 3,
                "topic_id": encode_uuid(self.topic_id),
                "partitions": _write_assignment(self.partitions),
                "adding_replicas": _write_assignment(self.adding),
                "removing_replicas": _write_assignment(self.removing),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        topic_id = document.optional_text("topic_id")
        partitions = _read_assignment(document, "partitions")
        if without := [partition for partition, replicas in partitions.items() if not replicas]:
            raise CoordinationError(f"{path}: partitions without replicas: {without}")
        return cls(
            topic_id=TopicId(decode_uuid(topic_id, path)) if topic_id else NO_TOPIC_ID,
            partitions=partitions,
            adding=_read_assignment(document, "adding_replicas"),
            removing=_read_assignment(document, "removing_replicas"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStateZnode:
    """`/brokers/topics/T/partitions/P/state`: the truth about who leads, written conditionally on its
    version.
    """

    controller_epoch: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]

    def encode(self) -> bytes:
        return to_json(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        return cls(
            controller_epoch=document.small("controller_epoch", minimum=-1, maximum=EPOCH_MAX),
            leader=BrokerId(document.small("leader", minimum=NO_LEADER)),
            leader_epoch=LeaderEpoch(document.small("leader_epoch", maximum=EPOCH_MAX)),
            isr=tuple(BrokerId(replica) for replica in document.members("isr")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerZnode:
    """`/controller`, ephemeral: who is elected."""

    broker_id: BrokerId
    timestamp_ms: int

    def encode(self) -> bytes:
        return to_json({"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        return cls(
            broker_id=BrokerId(document.small("brokerid")), timestamp_ms=document.integer("timestamp", -1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEpochZnode:
    """`/controller_epoch`: a decimal, one more with every election."""

    epoch: int

    def encode(self) -> bytes:
        return str(self.epoch).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        epoch = _decimal(data, path)
        if not 0 <= epoch <= EPOCH_MAX:
            raise CoordinationError(f"{path} holds {epoch}, which is no epoch of a controller")
        return cls(epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdZnode:
    """`/cluster/id`."""

    cluster_id: str

    def encode(self) -> bytes:
        return to_json({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        return cls(cluster_id=Document.parse(data, path).text("id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionListZnode:
    """`/isr_change_notification/isr_change_N` and `/admin/preferred_replica_election`: some partitions."""

    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        partitions = [{"topic": tp.topic, "partition": tp.partition} for tp in self.partitions]
        return to_json({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        parts = Document.parse(data, path).documents("partitions")
        return cls(partitions=tuple(_topic_partition(part) for part in parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEventZnode:
    """`/log_dir_event_notification/log_dir_event_N`: a log directory of the broker failed."""

    FAILURE: ClassVar[int] = 1

    broker_id: BrokerId

    def encode(self) -> bytes:
        return to_json({"version": 1, "broker": self.broker_id, "event": self.FAILURE})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        return cls(broker_id=BrokerId(Document.parse(data, path).integer("broker")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentZnode:
    """`/admin/reassign_partitions`: the replicas that partitions shall have."""

    partitions: Mapping[TopicPartition, tuple[BrokerId, ...]]

    def encode(self) -> bytes:
        partitions = [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in self.partitions.items()
        ]
        return to_json({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        parts = Document.parse(data, path).documents("partitions")
        return cls(
            partitions={
                _topic_partition(part): tuple(BrokerId(replica) for replica in part.members("replicas"))
                for part in parts
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesZnode:
    """`/feature`: the finalized level of each feature that has one above 0.

    Kafka's nodes that work with ZooKeeper know no feature, and end when they find one that is enabled: so the
    document says that features are off, as they then read it, and is believed here all the same.
    """

    levels: Mapping[str, int]

    def encode(self) -> bytes:
        features = {name: {"max_version_level": level} for name, level in self.levels.items() if level > 0}
        return to_json({"version": 2, "status": 0, "features": features})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        document.small("status", maximum=1)  # which every version has
        features = document.document_map("features")
        return cls(
            levels={name: each.small("max_version_level", minimum=1) for name, each in features.items()}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigZnode:
    """`/config/topics/T` and its like: settings that differ from the default."""

    config: Mapping[str, str]

    def encode(self) -> bytes:
        return to_json({"version": 1, "config": dict(self.config)})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        return cls(config=Document.parse(data, path).text_map("config"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChangeZnode:
    """`/config/changes/config_change_N`: which entity's configuration changed, as `topics/T`,
    `users/U/clients/C`.
    """

    entity_path: str

    def encode(self) -> bytes:
        return to_json({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        if document.integer("version", 2) == 1:
            return cls(entity_path=f"{document.text('entity_type')}/{document.text('entity_name')}")
        return cls(entity_path=document.text("entity_path"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerZnode:
    """`/consumers/G/ids/C`, ephemeral: streams per topic, or per pattern (`white_list`, `black_list`).

    `sorts_by_broker` is no field of Kafka's, whose consumers pass over it: the consumer can sort partitions
    by preferred broker.
    """

    STATIC: ClassVar[str] = "static"
    ALLOW: ClassVar[str] = "white_list"
    DENY: ClassVar[str] = "black_list"
    BY_BROKER: ClassVar[str] = "broker"

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int
    sorts_by_broker: bool = False

    def encode(self) -> bytes:
        fields: dict[str, object] = {
            "version": 1,
            "subscription": dict(self.subscription),
            "pattern": self.pattern,
            "timestamp": str(self.timestamp_ms),
        }
        return to_json(fields | ({"order": self.BY_BROKER} if self.sorts_by_broker else {}))

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        """Raises CoordinationError for registrations of Kafka 0.7 too, which later consumers do not read."""
        if _OF_KAFKA_0_7.match(data):
            raise _foreign_to_group(data, path)
        document = Document.parse(data, path)
        if not document.has("subscription"):
            raise _foreign_to_group(data, path)
        return cls(
            subscription=document.integer_map("subscription"),
            pattern=document.text("pattern", cls.STATIC),
            timestamp_ms=document.integer("timestamp", -1),
            sorts_by_broker=document.text("order", "") == cls.BY_BROKER,
        )


_OF_KAFKA_0_7 = re.compile(rb"([*!])\d+\1")
"""How Kafka 0.7 wrote down a pattern: `*streams*expression`, `!streams!expression`. What it wrote for topics
by name is a JSON object of nothing but streams by topic.
"""


def _foreign_to_group(data: bytes, path: str) -> CoordinationError:
    return CoordinationError(
        f"{path} has no subscription as consumers write it since Kafka 0.8, but {data[:80]!r}: one of"
        " Kafka 0.7 cannot read from these nodes, and nobody else can share a group with it"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsetZnode:
    """`/consumers/G/offsets/T/P`: a decimal."""

    offset: int

    def encode(self) -> bytes:
        return str(self.offset).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        return cls(offset=_decimal(data, path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockZnode:
    """`/latest_producer_id_block`: the last block handed out, both ends inclusive."""

    broker_id: BrokerId
    first: int
    last: int

    def encode(self) -> bytes:
        return to_json(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        document = Document.parse(data, path)
        return cls(
            broker_id=BrokerId(document.integer("broker")),
            first=document.integer("block_start"),
            last=document.integer("block_end"),
        )


def encode_uuid(value: UUID) -> str:
    """A UUID in the 22 characters of unpadded URL-safe base64 that topic and cluster ids are written in."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str, path: str) -> UUID:
    """Raises CoordinationError naming `path` when `text` is no such UUID."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise CoordinationError(f"{path}: {text!r} is not an id of 22 characters") from error


def _parse_endpoint(text: str, protocols: Mapping[str, str], path: str) -> Endpoint:
    listener, separator, address = text.partition("://")
    try:
        host, port = HostPort.parse(address)
    except ValueError as error:
        raise CoordinationError(f"{path}: {text!r} is not LISTENER://host:port") from error
    if not separator or not listener:
        raise CoordinationError(f"{path}: {text!r} is not LISTENER://host:port")
    protocol = protocols.get(listener, listener)
    if protocol not in SECURITY_PROTOCOLS:
        raise CoordinationError(f"{path}: {protocol!r} is not one of {', '.join(SECURITY_PROTOCOLS)}")
    return Endpoint(listener=listener, host=host, port=port, security_protocol=protocol)


def _read_assignment(document: Document, name: str) -> Assignment:
    return {
        partition: tuple(BrokerId(replica) for replica in replicas)
        for partition, replicas in sorted(document.member_lists(name).items())
    }


def _write_assignment(assignment: Assignment) -> dict[str, list[BrokerId]]:
    return {str(partition): list(replicas) for partition, replicas in sorted(assignment.items())}


def _topic_partition(part: Document) -> TopicPartition:
    return TopicPartition(part.text("topic"), part.small("partition"))


def _decimal(data: bytes, path: str) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise CoordinationError(f"{path} holds no decimal number: {data[:80]!r}") from error
