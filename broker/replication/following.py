"""What one fetcher task follows from one leader: what it asks for next, and what the answers mean. Pure.

A partition that is followed is in one of three states:

    READY    asked for in every request
    PAUSED   its log waits for the disk: not asked for until `advanced` or `back_off`
    RESTING  something failed, or it is copied too fast: asked for again once its time has come

Rules. All READY partitions are asked for in one request, within an incremental fetch session (KIP-227): a
request names only those whose question changed, and forgets those that are not READY. Every question carries
the leader epoch that this node was told (KIP-320) and the epoch of its last record (KIP-595), so that the
leader fences who is not up to date, and says where the histories part. An answer counts only while the
partition is as it was when it was asked for: `Followed` is made anew whenever a partition gets another epoch,
and whoever works on an answer asks `is_current` after each time it let others have their turn. A partition
that fails rests, for longer each time, and never holds back another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from broker.errors import ErrorCode
from broker.types import BrokerId, Buffer, LeaderEpoch, TopicId, TopicPartition
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

BACKOFF_MS_MIN = 20
"""First rest after a refusal that is over as soon as the leader has its orders too; each further one is twice
as long, up to `replica.fetch.backoff.ms`.
"""

PAUSED_WAIT_MS = 5
"""How long a leader lets a question wait while the disk works on a partition that is not in it."""

_NO_SESSION = 0
_FULL_EPOCH = 0
_FIRST_EPOCH = 1
_EPOCH_MAX = 0x7FFFFFFF

_SESSION_ERRORS = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
_SOON_OVER = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class _State(Enum):
    READY = "ready"
    PAUSED = "paused"
    RESTING = "resting"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBounds:
    """Bounds of a follower's requests; each field names its setting."""

    bytes_min: int = 1
    """`replica.fetch.min.bytes`."""
    wait_ms_max: int = 500
    """`replica.fetch.wait.max.ms`."""
    partition_bytes_max: int = 1_048_576
    """`replica.fetch.max.bytes`."""
    response_bytes_max: int = 10_485_760
    """`replica.fetch.response.max.bytes`."""
    backoff_ms: int = 1_000
    """`replica.fetch.backoff.ms`."""


class Position(NamedTuple):
    """Where a follower's log is: its end, the epoch of its last record (-1: none known), and its start."""

    end_offset: int
    last_epoch: int
    start_offset: int


class EpochEnd(Protocol):
    """The end of an epoch, exclusive."""

    @property
    def epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class EpochEnds(Protocol):
    """What a log knows of its epochs."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The newest epoch that is not above `epoch`, and where it ends; -1 when unknown."""
        ...


_Key = tuple[TopicId, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Followed:
    """One partition in one leader epoch."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    position: Position
    leader_high_watermark: int = -1
    """-1: the leader has not told yet."""
    refusals: int = 0
    """How often in a row it had to rest."""
    _state: _State = _State.READY

    @property
    def lag(self) -> int:
        """How many offsets this log ends below the leader's high watermark."""
        return max(self.leader_high_watermark - self.position.end_offset, 0)

    @property
    def is_caught_up(self) -> bool:
        """Whether this log is known to have all that is committed."""
        return 0 <= self.leader_high_watermark <= self.position.end_offset


class Append(NamedTuple):
    """Store these records, none perhaps; then take over the leader's high watermark and log start."""

    followed: Followed
    records: Buffer
    high_watermark: int
    log_start_offset: int


class Diverged(NamedTuple):
    """The leader's `epoch` ended at `end_offset`, and this log goes on: cut it (`cut_offset`), ask again."""

    followed: Followed
    epoch: int
    end_offset: int


class Overrun(NamedTuple):
    """This log ends beyond the leader's and no epoch tells where they part: keep what is committed."""

    followed: Followed
    high_watermark: int


class Restart(NamedTuple):
    """The leader has nothing any more of what comes next here: begin anew where its log starts."""

    followed: Followed
    log_start_offset: int
    high_watermark: int


class Refused(NamedTuple):
    """The leader does not serve the partition for now; it rests."""

    followed: Followed
    code: ErrorCode


Step = Append | Diverged | Overrun | Restart | Refused
_Question = tuple[LeaderEpoch, Position]


def cut_offset(leader: EpochEnd, own: EpochEnds, log_end_offset: int) -> int:
    """Where to cut a log whose leader says that one of its epochs ended at `leader.end_offset` (KIP-279).

    An epoch that both know ended where it ended first. Of one that only the leader knows, nothing can be
    here: what is newer than the newest own epoch below it goes, and the next answer tells the next cut.
    """
    end = own.end_offset_for(leader.epoch, log_end_offset)
    if 0 <= end.epoch < leader.epoch:
        return min(end.end_offset, log_end_offset)
    if end.epoch == leader.epoch:
        return min(leader.end_offset, end.end_offset, log_end_offset)
    return min(leader.end_offset, log_end_offset)


class Following:
    """See the module's description; times are monotonic milliseconds."""

    def __init__(self, local: BrokerId, bounds: FetchBounds) -> None:
        self._local = local
        self._bounds = bounds
        self._followed: dict[_Key, Followed] = {}
        self._changed: set[_Key] = set()
        """Whose question, or state, may not be what the session holds."""
        self._resting_until_ms: dict[_Key, int] = {}
        self._idle: set[_Key] = set()
        """Those that are not READY."""
        self._session_id = _NO_SESSION
        self._session_epoch = _FULL_EPOCH
        self._asked: dict[_Key, _Question] = {}
        """What the leader was asked last for each partition of the session."""

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Followed]:
        return iter(list(self._followed.values()))

    # Which partitions

    def follow(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        position: Position,
    ) -> Followed:
        """Follow a partition from `position` on; what is under way for it in another epoch counts no more."""
        key = (topic_id, topic_partition.partition)
        followed = self._followed[key] = Followed(
            topic_partition=topic_partition, topic_id=topic_id, leader_epoch=leader_epoch, position=position
        )
        self._resting_until_ms.pop(key, None)
        self._idle.discard(key)
        self._changed.add(key)
        return followed

    def forget(self, followed: Followed) -> None:
        """Follow it no longer."""
        key = _key(followed)
        if self._followed.get(key) is followed:
            del self._followed[key]
            self._resting_until_ms.pop(key, None)
            self._idle.discard(key)
            self._changed.add(key)

    def is_current(self, followed: Followed) -> bool:
        """Whether the partition is still followed, in the same epoch."""
        return self._followed.get(_key(followed)) is followed

    # What became of the answers

    def advanced(self, followed: Followed, position: Position) -> None:
        """Its log is at `position` now: go on from there."""
        if self.is_current(followed):
            followed.position = position
            followed.refusals = 0
            self._set_state(followed, _State.READY)

    def pause(self, followed: Followed) -> None:
        """Do not ask for it until it is told to go on, or to rest."""
        if self.is_current(followed):
            self._set_state(followed, _State.PAUSED)

    def back_off(
        self, followed: Followed, position: Position, now_ms: int, *, is_soon_over: bool = False
    ) -> None:
        """Let it rest: its log is at `position`, and could not take what came, or nothing came."""
        if not self.is_current(followed):
            return
        rest_ms = self._bounds.backoff_ms
        if is_soon_over:
            rest_ms = min(BACKOFF_MS_MIN << min(followed.refusals, 16), rest_ms)
        followed.position = position
        followed.refusals += 1
        self._set_state(followed, _State.RESTING)
        self._resting_until_ms[_key(followed)] = now_ms + rest_ms

    def hold(self, followed: Followed, until_ms: int) -> None:
        """Do not ask for it before, though nothing is wrong."""
        if self.is_current(followed) and followed._state is _State.READY:
            self._set_state(followed, _State.RESTING)
            self._resting_until_ms[_key(followed)] = until_ms

    def _set_state(self, followed: Followed, state: _State) -> None:
        key = _key(followed)
        followed._state = state
        if state is _State.READY:
            self._idle.discard(key)
        else:
            self._idle.add(key)
        self._resting_until_ms.pop(key, None)
        self._changed.add(key)

    # Requests and answers

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """What to ask the leader now, None while no partition is READY. `broker_epoch` is this node's own."""
        self._wake_rested(now_ms)
        if len(self._idle) == len(self._followed):
            return None
        if not self._is_in_session:
            return self._full_request(broker_epoch, now_ms)
        wanted, forgotten = [], []
        for key in self._changed:
            followed = self._followed.get(key)
            if followed is not None and followed._state is _State.READY:
                if self._asked.get(key) != (question := _question(followed)):
                    self._asked[key] = question
                    wanted.append(followed)
            elif self._asked.pop(key, None) is not None:
                forgotten.append(key)
        self._changed.clear()
        return self._request(broker_epoch, wanted, forgotten, now_ms)

    def next_due_ms(self) -> int | None:
        """When the next partition has rested, None when none rests."""
        return min(self._resting_until_ms.values(), default=None)

    def lost_session(self) -> None:
        """The connection is gone, or the session: the next request is a full one, and closes what is left."""
        self._session_epoch = _FULL_EPOCH

    def answered(self, response: FetchResponse, now_ms: int) -> list[Step]:
        """What an answer without an error of its own means, partition by partition."""
        if self._session_epoch == _FULL_EPOCH:
            self._session_id = response.session_id
        if self._session_id != _NO_SESSION:
            self._session_epoch = (
                _FIRST_EPOCH if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1
            )
        steps = []
        for topic in response.responses:
            for answer in topic.partitions:
                key = (TopicId(topic.topic_id), answer.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed._state is not _State.READY or not self._is_for(key, followed):
                    continue
                step = _step(followed, answer)
                if isinstance(step, Refused):
                    self.back_off(followed, followed.position, now_ms, is_soon_over=step.code in _SOON_OVER)
                elif isinstance(step, Append):
                    followed.leader_high_watermark = step.high_watermark
                steps.append(step)
        return steps

    @property
    def _is_in_session(self) -> bool:
        return self._session_epoch != _FULL_EPOCH

    def _is_for(self, key: _Key, followed: Followed) -> bool:
        """Whether an answer is for the partition as it is now."""
        asked = self._asked.get(key)
        return (
            asked is not None
            and asked[0] == followed.leader_epoch
            and asked[1].end_offset == followed.position.end_offset
        )

    def _wake_rested(self, now_ms: int) -> None:
        for key, until_ms in list(self._resting_until_ms.items()):
            if until_ms <= now_ms:
                self._set_state(self._followed[key], _State.READY)

    def _full_request(self, broker_epoch: int, now_ms: int) -> FetchRequest:
        ready = [followed for followed in self._followed.values() if followed._state is _State.READY]
        self._asked = {_key(followed): _question(followed) for followed in ready}
        self._changed.clear()
        return self._request(broker_epoch, ready, (), now_ms)

    def _request(
        self, broker_epoch: int, wanted: Iterable[Followed], forgotten: Iterable[_Key], now_ms: int
    ) -> FetchRequest:
        bounds = self._bounds
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._local, replica_epoch=broker_epoch),
            max_wait_ms=self._wait_ms(now_ms),
            min_bytes=bounds.bytes_min,
            max_bytes=bounds.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(wanted),
            forgotten_topics_data=_forgotten(forgotten),
        )

    def _wait_ms(self, now_ms: int) -> int:
        """How long the leader may let the question wait: no partition is to wait for it that is not in it."""
        wait_ms = self._bounds.wait_ms_max
        if len(self._idle) > len(self._resting_until_ms):
            wait_ms = min(wait_ms, PAUSED_WAIT_MS)
        if (due_ms := self.next_due_ms()) is not None:
            wait_ms = min(wait_ms, max(due_ms - now_ms, 1))
        return wait_ms

    def _topics(self, wanted: Iterable[Followed]) -> list[FetchTopic]:
        topics: dict[TopicId, FetchTopic] = {}
        for followed in wanted:
            topic = topics.get(followed.topic_id)
            if topic is None:
                topic = topics[followed.topic_id] = FetchTopic(topic_id=followed.topic_id)
            position = followed.position
            topic.partitions.append(
                FetchPartition(
                    partition=followed.topic_partition.partition,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=position.end_offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.start_offset,
                    partition_max_bytes=self._bounds.partition_bytes_max,
                )
            )
        return list(topics.values())


def is_session_error(code: int) -> bool:
    """Whether an error of a whole answer says no more than that the session is gone."""
    return code in _SESSION_ERRORS


def _key(followed: Followed) -> _Key:
    return followed.topic_id, followed.topic_partition.partition


def _question(followed: Followed) -> _Question:
    return followed.leader_epoch, followed.position


def _forgotten(keys: Iterable[_Key]) -> list[ForgottenTopic]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return [ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]


def _step(followed: Followed, answer: PartitionData) -> Step:
    code = answer.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return _out_of_range(followed, answer)
    if code:
        return Refused(followed, ErrorCode.of(code))
    diverging = answer.diverging_epoch
    if diverging.epoch >= 0 or diverging.end_offset >= 0:
        return Diverged(followed, diverging.epoch, diverging.end_offset)
    return Append(followed, answer.records or b"", answer.high_watermark, answer.log_start_offset)


def _out_of_range(followed: Followed, answer: PartitionData) -> Step:
    end, start, high_watermark = followed.position.end_offset, answer.log_start_offset, answer.high_watermark
    if end < start:
        return Restart(followed, start, high_watermark)
    if 0 <= start <= high_watermark < end:
        return Overrun(followed, high_watermark)
    return Refused(followed, ErrorCode.OFFSET_OUT_OF_RANGE)
