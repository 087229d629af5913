"""Positions of a route that its group at the source keeps, and where to start without one.

With a position the id of its topic is stored, so that a topic of the same name that was created later is not
taken for it, what the route's delivery wants to be remembered, and where copies go (`position_note`). A
position counts wherever they go: one that goes on to another topic than before is told of, and stored
anew before anything is copied there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, OffsetsRefusedError
from broker.client.operations import READ
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.books import Written
from mirrormaker.flow.delivery import AtLeast, KnownStart
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.lane_note import uneven_note
from mirrormaker.flow.passed_over import Moves
from mirrormaker.flow.position_note import Led, led_elsewhere, read_note, write_note
from mirrormaker.flow.positions import Place
from mirrormaker.flow.start import start_offsets_found
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.flow.trouble import Trouble, refused
from mirrormaker.missing_rights import explained
from mirrormaker.topology.model import PartitionPolicy, Start, StartPosition

FIRST_TIMEOUT_MS = 2_000
"""How long the leaders of partitions that have no position may take to be found: others wait for that."""

_OF_A_PARTITION = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Refusals of a position that say nothing about the member or its group."""

_log = logger("positions")


class StartingPoint(NamedTuple):
    """Where copying of a partition begins, and what was stored along with it."""

    lanes: LanePositions
    """One for all, where it names only one."""
    note: str = ""
    leader_epoch: int = -1
    """Of the record before, where that is known."""
    destinations: tuple[TopicPartition, ...] = ()
    """What the lanes lead to; empty where it names only one."""
    former: tuple[FormerLanes, ...] = ()
    """See `Partition`."""
    former_position: int | None = None
    """Where copying stood in another topic, whose name this one has now; None: it is the same."""
    names_topic: bool = False
    """It was stored along with the id of the topic that there is now."""
    lost: tuple[int, int] | None = None
    """Offsets that were copied, of which the source has none any more; the second is exclusive."""
    stored: int | None = None
    """The group's position, where this goes on behind it."""
    was_spread: bool = False
    """Records were shared out by another policy as it was stored."""

    def placed(self, assignment: Assignment) -> Assignment:
        """The assignment from here on, over the lanes that this was found for."""
        return replace(
            assignment,
            destinations=self.destinations or assignment.destinations,
            position=min(self.lanes),
            lane_positions=self.lanes if self.destinations else (),
            leader_epoch=self.leader_epoch,
            former=self.former,
        )


class StoredPosition(NamedTuple):
    """What the group keeps of a partition."""

    offset: int
    topic_id: TopicId
    note: str = ""
    leader_epoch: int = -1


class PositionKeeper(Protocol):
    """A member of the group, as far as it stores positions."""

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...


FindWritten = Callable[[Collection[TopicPartition], Mapping[TopicPartition, Place]], Awaitable[Written]]
"""What is written of these, of which the group has no position, but the destination of some. Raises
BrokerError.
"""


class GroupPositions:
    """Of one member of the group. `on_event` is told what a person should know, `on_trouble` of partitions
    that the route may not begin; `find_led` tells where copies of a topic go, None: that cannot be stored.
    `note_forgotten` keeps what is passed over, as the source has forgotten a position. Raises BrokerError.
    """

    def __init__(
        self,
        source: Cluster,
        member: PositionKeeper,
        start: StartPosition,
        on_event: Callable[..., None],
        find_written: FindWritten,
        on_trouble: Callable[[Trouble], None],
        find_led: Callable[[str], Led | None],
        note_forgotten: Callable[[Moves], Awaitable[None]],
    ) -> None:
        self._source = source
        self._member = member
        self._start = start
        self._on_event = on_event
        self._find_written = find_written
        self._on_trouble = on_trouble
        self._find_led = find_led
        self._note_forgotten = note_forgotten
        self._not_started: dict[TopicPartition, str] = {}
        """Why partitions are left out that cannot be asked about."""

    @property
    def not_started(self) -> dict[TopicPartition, str]:
        """Why partitions were left out, unless it has been told as a trouble."""
        return self._not_started

    async def go_on(
        self, known: Mapping[TopicPartition, KnownStart | None]
    ) -> dict[TopicPartition, StartingPoint]:
        """Where the delivery knows, else where the group does, else where a new route starts. Raises
        BrokerError.
        """
        points = {
            source: _point_of(at)._replace(names_topic=self.topic_id(source.topic) != NO_TOPIC_ID)
            for source, at in known.items()
            if isinstance(at, Place)
        }
        await self.tell(points)
        anew = [source for source, at in known.items() if at is Start.EARLIEST]
        first = await self.first(anew, Start.EARLIEST)
        points |= {source: point._replace(former_position=0) for source, point in first.items()}
        others = {source: at for source, at in known.items() if at is None or isinstance(at, AtLeast)}
        kept = {source: at.place for source, at in others.items() if at is not None}
        stored = await self.starting_points(others, kept)
        further = {
            source: _point_of(at.place)._replace(names_topic=stored[source].names_topic)
            for source, at in others.items()
            if at is not None and source in stored and min(stored[source].lanes) <= min(at.place.lanes)
        }
        await self.tell(further)
        return points | stored | further

    async def starting_points(
        self,
        partitions: Collection[TopicPartition],
        kept: Mapping[TopicPartition, Place] = MappingProxyType({}),
    ) -> dict[TopicPartition, StartingPoint]:
        """Where to start each partition: at the group's position, else where it was copied last by what is
        written, else where a new route does; left out where the source does not tell. `kept`: where the
        destination says that some are. Raises BrokerError.
        """
        points: dict[TopicPartition, StartingPoint] = {}
        former: dict[TopicPartition, int] = {}
        stored = await self._member.committed(partitions)
        for source, position in stored.items():
            beside = read_note(position.metadata)
            if beside.is_of(self.topic_id(source.topic)):
                point = StartingPoint((position.offset,), beside.note, position.leader_epoch)
                points[source] = point._replace(
                    names_topic=beside.names(self.topic_id(source.topic)),
                    was_spread=beside.led is not None and beside.led.spread is not self._spread(source.topic),
                )
            else:
                former[source] = position.offset
        await self._lead(points, stored)
        fresh = frozenset(partitions) - points.keys() - former.keys()
        written = Written()
        if fresh:  # a source forgets positions along with their topic, and those of groups that rest
            try:
                written = await self._find_written(fresh, kept)
            except BrokerError as error:
                self._leave(fresh, error)
                fresh = frozenset()
            former |= written.former
        for source, point in (await self.first(former, Start.EARLIEST)).items():
            points[source] = point._replace(former_position=former[source])
        begun = fresh - former.keys() - written.stood.keys()
        found = await self.first(begun - written.sent_farther, self._start)
        found |= await self.first(begun & written.sent_farther, Start.LATEST)
        await self._note_passed(found, written.forgotten)
        for source, place in written.stood.items():
            self._not_started.pop(source, None)
            found[source] = _point_of(place)._replace(names_topic=self.topic_id(source.topic) != NO_TOPIC_ID)
        self._tell_forgotten(found, written)
        await self._begin(found)
        return points | found

    def _tell_forgotten(self, points: Mapping[TopicPartition, StartingPoint], written: Written) -> None:
        """Those of the `points` that had been copied before."""
        for source, point in points.items():
            copied_to, goes_on = written.forgotten.get(source), "start"
            if source in written.stood:
                copied_to, goes_on = min(point.lanes), "there"
            elif source in written.sent_farther:
                goes_on = "end"
            if copied_to is not None:
                self._on_event(
                    "position_forgotten", partition=str(source), copied_to=copied_to, goes_on=goes_on
                )

    async def _note_passed(
        self, points: dict[TopicPartition, StartingPoint], forgotten: Mapping[TopicPartition, int]
    ) -> None:
        """`forgotten`: how far some of the `points` had been copied. What they pass over is noted before they
        begin; they are left out where that cannot be.
        """
        passed = {each: (forgotten[each], points[each].lanes[0]) for each in points.keys() & forgotten.keys()}
        try:
            await self._note_forgotten(passed)
        except BrokerError as error:
            self._leave(passed, error)
            for source in passed:
                del points[source]

    def _leave(self, partitions: Collection[TopicPartition], error: BrokerError) -> None:
        """It cannot be told where these start, and they are asked for again."""
        _log.info("partitions_not_started", partitions=len(partitions), error=str(error))
        self._not_started |= dict.fromkeys(partitions, str(error))

    async def _lead(
        self,
        points: dict[TopicPartition, StartingPoint],
        stored: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Have the positions of these say where copies go now, as far as they do not. Those that are refused
        are told of and left out. Raises BrokerError.
        """
        found = {source.topic: self._find_led(source.topic) for source in points}
        now = {topic: led for topic, led in found.items() if led is not None}
        unsaid = {
            source: self._kept_at(source, point)
            for source, point in points.items()
            if source.topic in now and not _leads_to(stored[source], now[source.topic])
        }
        was = led_elsewhere({source: stored[source].metadata for source in points}, now)
        await self._store_or_leave(points, unsaid)
        for topic, led in was.items():
            self._on_event("copies_go_elsewhere", topic=topic, before=led.topic, now=now[topic].topic)

    def _kept_at(self, source: TopicPartition, point: StartingPoint) -> StoredPosition:
        """A position that somebody else has set names no topic before more was copied."""
        topic_id = self.topic_id(source.topic) if point.names_topic else NO_TOPIC_ID
        return StoredPosition(point.lanes[0], topic_id, point.note, point.leader_epoch)

    async def tell(self, points: Mapping[TopicPartition, StartingPoint]) -> None:
        """Have the group know where the delivery is, for whoever looks at its lag: a process that was killed
        may have got no further than to deliver.
        """
        if not points:
            return
        try:
            stored = await self._member.committed(points)
            told = {source: self._copy_of(source, point) for source, point in points.items()}
            behind = {
                source: position
                for source, position in told.items()
                if source not in stored or not self._says(source, stored[source], position)
            }
            if behind:
                await self.store(behind)
        except BrokerError as error:
            self._on_event("positions_not_told", partitions=len(points), error=str(error))

    def _copy_of(self, source: TopicPartition, point: StartingPoint) -> StoredPosition:
        spread = self._spread(source.topic)
        place = Place(point.lanes, destinations=point.destinations, former=point.former, spread=spread)
        return StoredPosition(
            min(point.lanes), self.topic_id(source.topic), uneven_note(place), point.leader_epoch
        )

    def _spread(self, topic: str) -> PartitionPolicy:
        led = self._find_led(topic)
        return PartitionPolicy.SAME if led is None else led.spread

    def _says(self, source: TopicPartition, stored: OffsetAndMetadata, position: StoredPosition) -> bool:
        """Whether that is stored, of whichever topic, and where copies go."""
        led = self._find_led(source.topic)
        same = (stored.offset, read_note(stored.metadata).note) == (position.offset, position.note)
        return same and (led is None or _leads_to(stored, led))

    async def _begin(self, points: dict[TopicPartition, StartingPoint]) -> None:
        """Where the group gets a position is stored before anything is copied: a later start must not find a
        later end of the source, and a route that has a position is known to write its topics. Partitions
        whose position is refused are told of and left out.
        """
        await self._store_or_leave(
            points, {source: self._copy_of(source, point) for source, point in points.items()}
        )

    async def _store_or_leave(
        self, points: dict[TopicPartition, StartingPoint], stored: Mapping[TopicPartition, StoredPosition]
    ) -> None:
        """Store these; partitions of which the source refuses that are told of, and taken out of `points`.
        Raises BrokerError.
        """
        if not stored:
            return
        try:
            await self.store(stored)
        except OffsetsRefusedError as error:
            if not _OF_A_PARTITION.issuperset(error.refused.values()):
                raise
            for source, code in error.refused.items():
                self._tell_refused(source, points.pop(source), code)

    def _tell_refused(self, source: TopicPartition, point: StartingPoint, code: ErrorCode) -> None:
        error = explained(ProtocolError(code), self._source.name, source.topic, READ)
        trouble = refused(source, point.lanes[0], error, "source")
        if trouble is not None:
            self._on_trouble(trouble)
        else:
            self._on_event("partition_not_started", partition=str(source), error=error.message)

    async def first(
        self, partitions: Collection[TopicPartition], start: StartPosition
    ) -> dict[TopicPartition, StartingPoint]:
        """Where `start` is. A partition that cannot be asked about is told of and left out."""
        starts = await start_offsets_found(self._source, start, partitions, timeout_ms=FIRST_TIMEOUT_MS)
        for source in starts.found:
            self._not_started.pop(source, None)
        for source, error in starts.failures.items():
            self._tell_not_started(source, str(error))
        return {source: StartingPoint((offset,)) for source, offset in starts.found.items()}

    def _tell_not_started(self, source: TopicPartition, error: str) -> None:
        """It is tried again and again, and told of once."""
        if self._not_started.get(source) != error:
            self._not_started[source] = error
            self._on_event("partition_not_started", partition=str(source), error=error)

    async def store(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Raises BrokerError, as when this is a member no longer."""
        await self._member.commit(
            {
                source: OffsetAndMetadata(
                    offset=position.offset,
                    metadata=write_note(position.topic_id, position.note, self._find_led(source.topic)),
                    leader_epoch=position.leader_epoch,
                )
                for source, position in positions.items()
            }
        )

    def topic_id(self, topic: str) -> TopicId:
        """The id of the topic that has the name now, NO_TOPIC_ID where the source does not tell."""
        known = self._source.topics.get(topic)
        return known.topic_id if known is not None else NO_TOPIC_ID


def _point_of(place: Place) -> StartingPoint:
    return StartingPoint(
        place.lanes,
        leader_epoch=place.leader_epoch,
        destinations=place.destinations,
        former=place.former,
    )


def _leads_to(stored: OffsetAndMetadata, led: Led) -> bool:
    was = read_note(stored.metadata).led
    return was is not None and was.is_at(led)
