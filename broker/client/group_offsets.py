"""Offsets that a group has committed: read and written at its coordinator, inside a membership or outside of
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from broker.client.backoff import Retries
from broker.client.cluster import Cluster
from broker.client.coordinator import CoordinatorLink
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

COMMIT_BYTES_MAX = 512 << 10
"""Of a request, as its batch will be at the coordinator: half of what that takes unless set otherwise."""
_OFFSET_BYTES = 80
"""Of a stored offset, besides the names and the text in it."""
_FIRST_COMMIT_VERSION_WITH_MEMBERS = 1
_FIRST_FETCH_VERSION_WITH_ALL_PARTITIONS = 2
_FIRST_FETCH_VERSION_WITH_STABILITY = 7
_FIRST_FETCH_VERSION_WITH_GROUPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A committed position: the offset of the next record to consume, a note, and the epoch of the record
    before it.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """On whose behalf offsets are committed; as it stands here: on nobody's, for a group without members."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NO_MEMBERSHIP = Membership()


class OffsetsRefusedError(ProtocolError):
    """A coordinator refused offsets, each for its own reason, of which the first is told, or the first that
    passes by itself. Those of the commit that are not among `refused` it has stored.
    """

    def __init__(self, refused: Mapping[TopicPartition, ProtocolError]) -> None:
        first = min(refused.values(), key=lambda error: not error.code.retriable)
        super().__init__(first.code, first.message)
        self.errors = refused

    @property
    def refused(self) -> Mapping[TopicPartition, ErrorCode]:
        """Why each of them was refused."""
        return {partition: error.code for partition, error in self.errors.items()}


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    membership: Membership = NO_MEMBERSHIP,
    timeout_ms: float = 30_000,
) -> None:
    """Store the offsets, trying for `timeout_ms`; each is stored by itself. Those of a request are one batch
    for the coordinator, which takes no more than `max.message.bytes` of its topic: they are sent in several.

    Raises ProtocolError with the first code that no further attempt mends: ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID tell a member that it is no longer one.
    """
    if not offsets:
        return
    link = CoordinatorLink(cluster, group_id)
    retries = cluster.retries(timeout_ms)
    refused: dict[TopicPartition, ProtocolError] = {}
    for part in _requests_of(group_id, offsets):
        try:
            await _commit_trying(link, group_id, part, membership, retries)
        except OffsetsRefusedError as error:
            refused |= error.errors
    if refused:
        raise OffsetsRefusedError(refused)


def _requests_of(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[Mapping[TopicPartition, OffsetAndMetadata]]:
    part: dict[TopicPartition, OffsetAndMetadata] = {}
    total = 0
    for partition, position in offsets.items():
        size = _OFFSET_BYTES + len(group_id) + len(partition.topic) + len(position.metadata.encode())
        if part and total + size > COMMIT_BYTES_MAX:
            yield part
            part, total = {}, 0
        part[partition] = position
        total += size
    yield part


async def _commit_trying(
    link: CoordinatorLink,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership,
    retries: Retries,
) -> None:
    while True:
        try:
            await _commit(link, group_id, offsets, membership)
            return
        except BrokerError as error:
            await retries.pause(error)


async def fetch_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    membership: Membership = NO_MEMBERSHIP,
    awaits_transactions: bool = True,
    timeout_ms: float = 30_000,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the group committed for the partitions (None: for all that it ever did); those without a commit
    are left out.

    Offsets of open transactions are waited for, unless what was committed before is wanted. Asked on behalf
    of a member of the consumer protocol, who may be out or behind: STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID.
    Raises ProtocolError, ConnectionFailedError, RequestTimedOutError.
    """
    if partitions is not None and not partitions:
        return {}
    link = CoordinatorLink(cluster, group_id)
    retries = cluster.retries(timeout_ms)
    while True:
        try:
            return await _fetch(link, group_id, partitions, membership, is_stable=awaits_transactions)
        except BrokerError as error:
            await retries.pause(error)


async def _commit(
    link: CoordinatorLink,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership,
) -> None:
    connection = await link.connection()
    version = connection.version_of(OffsetCommitRequest)
    if version < _FIRST_COMMIT_VERSION_WITH_MEMBERS:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} keeps offsets of groups in ZooKeeper only"
        )
    topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for partition, position in offsets.items():
        topics[partition.topic].append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=listed) for name, listed in topics.items()],
    )
    response = await link.request(request, version)
    refused: dict[TopicPartition, ProtocolError] = {}
    for topic in response.topics:
        for stored in topic.partitions:
            partition = TopicPartition(topic.name, stored.partition_index)
            try:
                link.check(stored.error_code, f"offset of group {group_id} for {partition}")
            except ProtocolError as error:
                refused[partition] = error
    if refused:
        raise OffsetsRefusedError(refused)


async def _fetch(
    link: CoordinatorLink,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    membership: Membership,
    *,
    is_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    connection = await link.connection()
    version = connection.version_of(OffsetFetchRequest)
    if partitions is None and version < _FIRST_FETCH_VERSION_WITH_ALL_PARTITIONS:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} cannot list all offsets of a group"
        )
    request = _fetch_request(group_id, partitions, membership, version, is_stable=is_stable)
    response = await link.request(request, version)
    code = response.groups[0].error_code if response.groups else response.error_code
    link.check(code, f"offsets of group {group_id}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, stored in _stored(response):
        link.check(stored.error_code, f"offset of group {group_id} for {partition}")
        if stored.committed_offset >= 0:
            found[partition] = OffsetAndMetadata(
                offset=stored.committed_offset,
                metadata=stored.metadata or "",
                leader_epoch=stored.committed_leader_epoch,
            )
    return found


def _fetch_request(
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    membership: Membership,
    version: int,
    *,
    is_stable: bool,
) -> OffsetFetchRequest:
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = _numbers_by_topic(partitions)
    require_stable = is_stable and version >= _FIRST_FETCH_VERSION_WITH_STABILITY
    if version < _FIRST_FETCH_VERSION_WITH_GROUPS:
        listed = topics and [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=listed, require_stable=require_stable)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=membership.member_id or None,
        member_epoch=membership.generation,
        topics=topics
        and [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return topics


def _stored(
    response: OffsetFetchResponse,
) -> Iterator[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    """Every partition of an answer, in either of its two forms."""
    for topic in response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition
    for group in response.groups:
        for grouped in group.topics:
            for stored in grouped.partitions:
                yield TopicPartition(grouped.name, stored.partition_index), stored
