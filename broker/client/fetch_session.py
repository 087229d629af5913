"""A consumer's side of an incremental fetch session (KIP-227): only what changed is asked for, only what
changed is told. Pure.

The node keeps what was asked last of each partition. A request names those that are new or are to be read
from elsewhere, and those that are not wanted any more; an answer leaves out partitions of which nothing is
new. So a fetch of a thousand partitions of which ten have records costs about what one of ten does.

Anything unclear ends the session: the next request is a full one, which closes what the node may have kept.
A node that gives no session is asked in full each time. There is one request at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch
from broker.client.metadata import ClusterMetadata
from broker.errors import ErrorCode
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from broker.wire.messages.fetch import FetchRequest, FetchResponse, ForgottenTopic

SESSIONS_FROM = 7
NO_SESSION = 0
FULL_EPOCH = 0
FIRST_EPOCH = 1
EPOCH_MAX = 2**31 - 1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Of a whole answer: that say no more than that the session is gone."""


class FetchSession:
    """Of one connection, or of several to one node in turn."""

    __slots__ = ("_epoch", "_id", "_known", "_metadata", "_version", "added", "names")

    def __init__(self) -> None:
        self.added: frozenset[TopicPartition] = frozenset()
        """What the last request asked for and the one before it did not."""
        self.names: Mapping[TopicId, str] = {}
        """Of the topics, by their ids: answers from version 13 on tell no more."""
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[TopicPartition, PartitionPosition] = {}
        """What the node was asked last."""
        self._metadata: ClusterMetadata | None = None
        self._version = -1

    @property
    def is_open(self) -> bool:
        """Whether the next answer may leave partitions out."""
        return self._epoch != FULL_EPOCH

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionPosition]:
        """Those of the last request, in effect."""
        return self._known

    def request(
        self,
        wanted: Sequence[PartitionPosition],
        terms: FetchTerms,
        metadata: ClusterMetadata,
        version: int,
    ) -> FetchRequest:
        """The next request; it ends with `answered` or `lost`.

        Other metadata, or another version, begin anew: leader epochs, ids, or the way of naming topics may be
        others.
        """
        if metadata is not self._metadata or version != self._version:
            self.lost()
            self._metadata, self._version = metadata, version
            self.names = metadata.topic_names
        if not self.is_open:
            self._known = {position.topic_partition: position for position in wanted}
            self.added = frozenset(self._known)
            request = build_fetch(wanted, terms, metadata, version)
        else:
            request = self._changes(wanted, terms, metadata, version)
        if version >= SESSIONS_FROM:
            request.session_id, request.session_epoch = self._id, self._epoch
        return request

    def answered(self, response: FetchResponse) -> bool:
        """Whether the answer is one to the request; if not, the session is gone, and is to be asked anew."""
        if response.error_code:
            self.lost()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            return response.error_code not in SESSION_ERRORS
        if response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FULL_EPOCH
        else:
            self._id = response.session_id
            self._epoch = FIRST_EPOCH if self._epoch == EPOCH_MAX else self._epoch + 1
        return True

    def lost(self) -> None:
        """There was no answer, or it cannot be told what the node keeps."""
        self._epoch = FULL_EPOCH

    def _changes(
        self, wanted: Sequence[PartitionPosition], terms: FetchTerms, metadata: ClusterMetadata, version: int
    ) -> FetchRequest:
        known = self._known
        changed: list[PartitionPosition] = []
        added: list[TopicPartition] = []
        for position in wanted:
            former = known.get(position.topic_partition)
            if former is None:
                added.append(position.topic_partition)
            elif (
                former.offset == position.offset
                and former.max_bytes == position.max_bytes
                and former.leader_epoch == position.leader_epoch
            ):
                continue
            known[position.topic_partition] = position
            changed.append(position)
        self.added = frozenset(added)
        request = build_fetch(changed, terms, metadata, version)
        if len(known) > len(wanted):
            request.forgotten_topics_data = self._forget(wanted, metadata)
        return request

    def _forget(self, wanted: Sequence[PartitionPosition], metadata: ClusterMetadata) -> list[ForgottenTopic]:
        gone = self._known.keys() - {position.topic_partition for position in wanted}
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic_partition in gone:
            del self._known[topic_partition]
            by_topic[topic_partition.topic].append(topic_partition.partition)
        return [
            ForgottenTopic(topic=name, topic_id=_id_of(metadata, name), partitions=sorted(numbers))
            for name, numbers in by_topic.items()
        ]


def _id_of(metadata: ClusterMetadata, name: str) -> TopicId:
    topic = metadata.topics.get(name)
    return topic.topic_id if topic is not None else NO_TOPIC_ID
