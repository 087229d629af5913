"""Archiving a segment before retention deletes it: the port, and what is known of an archived segment.

`SegmentArchive` is what a node asks for; `url_archive` is the one that comes with it, any other is named by
`log.archive.class`. The contract is one sentence: when `store` returned, the segment may be deleted.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Protocol
from uuid import UUID

from broker.errors import BrokerError, ConfigurationError
from broker.storage.transactions import AbortedTransaction
from broker.types import BrokerId, TopicPartition


class ArchiveError(BrokerError):
    """An archive could not be reached, or what is in it is not what was put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment to be archived: offsets up to, not including, `next_offset`; `size` in bytes.

    `aborted` holds every aborted transaction with records in the segment. `chunks` reads the bytes of the
    `.log` file from the start; each call reads anew. It blocks and raises StorageError.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    base_offset: int
    next_offset: int
    size: int
    max_timestamp_ms: int
    aborted: tuple[AbortedTransaction, ...]
    chunks: Callable[[], Iterator[bytes]]


class SegmentArchive(Protocol):
    """Where segments go before they are deleted. Called in threads, one segment of a partition at a time.

    Made with the arguments (url, cluster_id=, broker_id=). Raises ConfigurationError when the url is not one
    that it can use.
    """

    def store(self, segment: SealedSegment) -> None:
        """Return once the segment is safe. It may be there already, whole or in part, from an earlier call
        or from another replica. Raises ArchiveError; StorageError when the segment cannot be read.
        """
        ...


def load_archive(class_path: str, url: str, *, cluster_id: str, broker_id: BrokerId) -> SegmentArchive:
    """An archive of class `class_path` (MODULE:CLASS). Raises ConfigurationError when there is no such class,
    or it refuses the url.
    """
    try:
        made = pkgutil.resolve_name(class_path)(url, cluster_id=cluster_id, broker_id=broker_id)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigurationError([f"log.archive.class: {class_path} cannot be made: {error}"]) from error
    archive: SegmentArchive = made
    return archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is known of an archived segment; stored after the segment's bytes, so it says that all are there.

    `crc32c` is that of all the bytes.
    """

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    next_offset: int
    size: int
    crc32c: int
    max_timestamp_ms: int
    archived_ms: int
    broker_id: BrokerId
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def path(self) -> str:
        """Where the files of the segment are below the archive's URL, without suffix."""
        return segment_path(
            self.cluster_id, self.topic_partition, self.topic_id, self.base_offset, self.next_offset
        )

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def encode(self) -> bytes:
        """As JSON, one name a line, to be read by people too."""
        fields = asdict(self) | {"topic_id": str(self.topic_id)}
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, place: str) -> Manifest:
        """The inverse. Raises ArchiveError that names `place`."""
        try:
            fields = json.loads(data)
            aborted = tuple(AbortedTransaction(*entry) for entry in fields.pop("aborted"))
            manifest = cls(**fields | {"topic_id": UUID(fields["topic_id"]), "aborted": aborted})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ArchiveError(f"{place} is no manifest of a segment: {error}") from error
        return manifest


def segment_path(
    cluster_id: str, topic_partition: TopicPartition, topic_id: UUID, base_offset: int, next_offset: int
) -> str:
    """CLUSTER_ID/TOPIC/TOPIC_ID/PARTITION/FIRST-NEXT; names of a partition sort as their offsets do."""
    topic, partition = topic_partition
    return f"{cluster_id}/{topic}/{topic_id}/{partition}/{base_offset:020d}-{next_offset:020d}"
