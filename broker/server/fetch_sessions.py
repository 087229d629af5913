"""Incremental fetch sessions (KIP-227): what a client asked for and was told before need not be said again.

A full fetch (epoch 0) may open a session; the fetches that follow name only the partitions that changed on
the client's side, and their answers only those that changed on ours: with records, an error, or another high
watermark, last stable offset or log start offset than was told last. Each fetch of a session carries the next
epoch, so a lost answer is noticed. An epoch of -1 ends the session, 0 with its id opens another in its place.

Partitions stand in the order in which they are to be served: those that got records go to the end, so that
byte limits starve nobody. A session belongs to the principal that opened it; others cannot see it.

The cache holds `slots_max` sessions. When it is full a new one takes the place of the session that was silent
for longest, if for more than `eviction_ms`; else of the least valuable among those that exist for so long, if
that is worth less. A privileged one, that is a follower's, may also replace a younger one of another client.
Privileged sessions are worth more than others, then those with more partitions. Who gets no session goes on
with full fetches.

Pure; one for a node, owned by its event loop.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
FIRST_EPOCH = 1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
IDS_FROM = 13
"""First version of Fetch that names topics by id."""
PARTITIONS_MAX = 500_000
"""Partitions in all sessions together, some 400 bytes each; who would exceed it gets no session."""


_Key: TypeAlias = tuple[str | int, int]
"""Topic name, or id as a number, and partition."""
_NOTHING_TOLD = (-1, -1, -1)


class FetchedPartition:
    """One partition of a fetch: what is wanted of it, and, in a session, what was told of it last.

    `topic` is empty while no topic has the id that was asked for.
    """

    __slots__ = ("key", "noted", "told", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: UUID, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.key = _key(topic, topic_id, wanted.partition)
        """What identifies it in its session."""
        self.wanted = wanted
        self.noted: object = None
        """What a reader keeps of it from one fetch of a session to the next."""
        self.told = _NOTHING_TOLD
        """High watermark, last stable offset and log start offset of the last answer."""

    def ask(self, wanted: FetchPartition) -> None:
        """Something else is wanted of it. Who has come to another leader epoch since may have dropped what it
        was told in the one before: a follower does.
        """
        if wanted.current_leader_epoch != self.wanted.current_leader_epoch:
            self.told = _NOTHING_TOLD
        self.wanted = wanted

    def is_told(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bool:
        """Whether the last answer said just this."""
        return self.told == (high_watermark, last_stable_offset, log_start_offset)

    def must_tell(self, answer: PartitionData) -> bool:
        """Whether an incremental answer has to hold this one."""
        return bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
            or not self.is_told(answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
        )

    def tell(self, answer: PartitionData) -> None:
        """Remember what the client is being told; after an error, or when histories part, everything is to be
        told again.
        """
        is_void = answer.error_code or answer.diverging_epoch.epoch >= 0
        high_watermark = -1 if is_void else answer.high_watermark
        self.told = (high_watermark, answer.last_stable_offset, answer.log_start_offset)


class Asker(NamedTuple):
    """Who fetches: a session is his alone, and keeps to one way of naming topics."""

    principal: Hashable
    is_by_id: bool
    is_privileged: bool


class _Worth(NamedTuple):
    """What sessions are compared by when one has to go; the smallest goes."""

    is_privileged: bool
    partition_count: int
    session_id: int


class FetchSession:
    """One session; `epoch` is what its next fetch must carry."""

    __slots__ = (
        "asker",
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "session_id",
        "worth",
    )

    def __init__(
        self,
        session_id: int,
        asker: Asker,
        partitions: dict[_Key, FetchedPartition],
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.asker = asker
        self.partitions = partitions
        self.epoch = FIRST_EPOCH
        self.created_ms = self.last_used_ms = now_ms
        self.worth = _Worth(asker.is_privileged, len(partitions), session_id)

    def update(self, request: FetchRequest, name_of: Callable[[FetchTopic], str]) -> None:
        """Take in which partitions are new, changed, or wanted no longer."""
        partitions = self.partitions
        for partition in _listed(request, name_of):
            key = partition.key
            known = partitions.get(key)
            if known is None:
                partitions[key] = partition
            else:
                known.ask(partition.wanted)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                partitions.pop(_key(topic.topic, topic.topic_id, number), None)


class FetchTurn(NamedTuple):
    """One fetch as the sessions understand it: what is to be read, in this order, and for whom."""

    asker: Asker
    partitions: Sequence[FetchedPartition]
    session: FetchSession | None = None
    """Whose next answer this is; None for a full fetch."""
    epoch: int = FINAL_EPOCH
    """The session's epoch after this fetch; FULL_EPOCH: may open a session."""


class FetchSessions:
    """The sessions of one node; times are monotonic milliseconds.

    `draw_id` makes up ids, from 1 to SESSION_ID_MAX; one that is taken is drawn again.
    """

    def __init__(self, *, slots_max: int, eviction_ms: int, draw_id: Callable[[], int]) -> None:
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._draw_id = draw_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The one used least recently first."""
        self._for_all: list[_Worth] = []
        """Those that any new session may replace, the least valuable first."""
        self._for_privileged: list[_Worth] = []
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    @property
    def keeps_any(self) -> bool:
        """Whether there is room for sessions at all."""
        return self._slots_max > 0

    def begin(
        self, request: FetchRequest, asker: Asker, *, name_of: Callable[[FetchTopic], str], now_ms: int
    ) -> FetchTurn:
        """What a request asks for; `name_of` gives a topic's name, empty when it is not known.

        Raises ProtocolError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        epoch = request.session_epoch
        if epoch in (FULL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._close(request.session_id, asker)
            return FetchTurn(asker=asker, partitions=list(_listed(request, name_of)), epoch=epoch)
        session = self._sessions.get(request.session_id)
        if session is None or session.asker.principal != asker.principal:
            raise ProtocolError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no session {request.session_id}"
            )
        if session.epoch != epoch:
            raise ProtocolError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session.session_id} is at epoch {session.epoch}, not {epoch}",
            )
        if session.asker.is_by_id != asker.is_by_id:
            raise ProtocolError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"session {session.session_id} was opened by a version that names topics otherwise",
            )
        return self._continue(session, request, asker, name_of, now_ms)

    def finish(
        self, turn: FetchTurn, answers: Iterable[PartitionData | None], *, now_ms: int
    ) -> tuple[int, list[tuple[FetchedPartition, PartitionData]]]:
        """Session id and partitions of the response, out of an answer for each of the turn's partitions: None
        where a session has nothing to say.

        Raises ProtocolError INVALID_FETCH_SESSION_EPOCH when the session went on meanwhile.
        """
        session = turn.session
        told = [
            (partition, answer)
            for partition, answer in zip(turn.partitions, answers, strict=True)
            if answer is not None and (session is None or partition.must_tell(answer))
        ]
        if session is not None and session.epoch != turn.epoch:
            raise ProtocolError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"another fetch of session {session.session_id} came before this one was answered",
            )
        if session is None and turn.epoch == FULL_EPOCH and told:
            session = self._open(turn, now_ms)
        if session is None:
            return NO_SESSION, told
        order = session.partitions
        for partition, answer in told:
            partition.tell(answer)
            key = partition.key
            if answer.records and key in order:
                order[key] = order.pop(key)
        return session.session_id, told

    def _continue(
        self,
        session: FetchSession,
        request: FetchRequest,
        asker: Asker,
        name_of: Callable[[FetchTopic], str],
        now_ms: int,
    ) -> FetchTurn:
        self.partition_count -= len(session.partitions)
        session.update(request, name_of)
        self.partition_count += len(session.partitions)
        if not session.partitions:
            self._remove(session)
            return FetchTurn(asker=asker, partitions=())
        if self.partition_count > PARTITIONS_MAX:
            self._remove(session)
            raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "sessions hold too many partitions")
        self._touch(session, now_ms)
        session.epoch = FIRST_EPOCH if session.epoch == EPOCH_MAX else session.epoch + 1
        partitions = list(session.partitions.values())
        return FetchTurn(asker=asker, partitions=partitions, session=session, epoch=session.epoch)

    def _open(self, turn: FetchTurn, now_ms: int) -> FetchSession | None:
        """A session for the turn's partitions, if there is room or can be made."""
        size = len(turn.partitions)
        if self.partition_count + size > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(
            _Worth(turn.asker.is_privileged, size, 0), now_ms
        ):
            return None
        session_id = self._draw_id()
        while session_id in self._sessions:
            session_id = self._draw_id()
        partitions = {partition.key: partition for partition in turn.partitions}
        session = self._sessions[session_id] = FetchSession(session_id, turn.asker, partitions, now_ms)
        self.partition_count += len(partitions)
        self._touch(session, now_ms)
        return session

    def _evict(self, proposed: _Worth, now_ms: int) -> bool:
        """Make room for a session of such worth; False when every other one is to be kept."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._remove(oldest)
            return True
        replaceable = self._for_privileged if proposed.is_privileged else self._for_all
        if not replaceable or proposed < replaceable[0]:
            return False
        self._remove(self._sessions[replaceable[0].session_id])
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        self._sessions.move_to_end(session.session_id)
        session.last_used_ms = now_ms
        is_old = now_ms - session.created_ms > self._eviction_ms
        is_privileged = session.asker.is_privileged
        worth = _Worth(is_privileged, len(session.partitions), session.session_id)
        for replaceable, belongs in (
            (self._for_all, is_old),
            (self._for_privileged, is_old or not is_privileged),
        ):
            if worth != session.worth or not belongs:
                _discard(replaceable, session.worth)
            if belongs and not _holds(replaceable, worth):
                insort(replaceable, worth)
        session.worth = worth

    def _close(self, session_id: int, asker: Asker) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.asker.principal == asker.principal:
            self._remove(session)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self.partition_count -= len(session.partitions)
        _discard(self._for_all, session.worth)
        _discard(self._for_privileged, session.worth)


def is_from_node(request: FetchRequest) -> bool:
    """Whether another node follows this one, or says that it does."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def _listed(request: FetchRequest, name_of: Callable[[FetchTopic], str]) -> Iterator[FetchedPartition]:
    """The partitions that a request names, in its order."""
    for topic in request.topics:
        name = name_of(topic)
        for partition in topic.partitions:
            yield FetchedPartition(name, topic.topic_id, partition)


def _key(topic: str, topic_id: UUID, number: int) -> _Key:
    return (topic_id.int or topic, number)


def _holds(ordered: list[_Worth], worth: _Worth) -> bool:
    place = bisect_left(ordered, worth)
    return place < len(ordered) and ordered[place] == worth


def _discard(ordered: list[_Worth], worth: _Worth) -> None:
    place = bisect_left(ordered, worth)
    if place < len(ordered) and ordered[place] == worth:
        del ordered[place]
