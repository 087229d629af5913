"""What the routes from one cluster to another share: the limit of the way between them, in fair parts. Pure.

The tree of shares (see `shares`), each node by bytes:

    link                   its limit
      route                weight: its priority; its limit
        in danger          what the source will soon delete: four times as much as either of
        new | old records  as much for the one as for the other; old ones have `catch_up_bytes_per_second`
          topic            all alike
            lane           all alike

So a busy topic, or one of many partitions, takes nothing from the others, and what an outage left behind
leaves half of the route to what comes now. What the source is about to delete goes before both: its route
gets four times its priority then, unless all of that stands, and `catch_up_bytes_per_second` is not for it.
What one does not use goes to the others. All routes of a process on one link are stepped on one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from broker.rates import RateWindows, WindowedRate
from mirrormaker.flow.bandwidth.ahead import TopicDemand, active_count, ahead_bytes, room_left
from mirrormaker.flow.bandwidth.appetite import Appetite
from mirrormaker.flow.bandwidth.bucket import Bucket
from mirrormaker.flow.bandwidth.shares import Share
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.room import NO_BOUND, FetchTurn, Kind, Room, TopicKey, TopicRoom
from mirrormaker.topology.model import RouteName

DANGER_WEIGHT = 4
"""What is in danger weighs so much more: its partitions in their route, and the route on its link."""
LEAVES_KEPT = 256
CONTENDED_PARTITIONS_MAX = 1_000
"""With more partitions a fetch that names all of them, in the order of their topics, costs more than it is
worth.
"""
_RATE_WINDOWS = RateWindows(count=10, size_ms=1000)


class LinkBandwidth:
    """The way between two clusters; its limit is set from outside, and so are those of its routes."""

    def __init__(self, now_ms: int) -> None:
        self._bucket = Bucket(None, now_ms)
        self._root = Share(bucket=self._bucket)
        self.appetite = Appetite(self._root)
        self.routes: dict[RouteName, RouteBandwidth] = {}
        """On it, by name."""
        self._sent = WindowedRate(_RATE_WINDOWS)
        self.bytes = 0
        """Sent by all routes, since the start."""

    @property
    def limit(self) -> float | None:
        """Bytes a second that this process may send; None: no limit."""
        return self._bucket.rate

    def set_limit(self, limit: float | None, now_ms: int, part: float = 1.0) -> None:
        """From now on, of which this process may use `part`; 0 lets nothing pass."""
        self._bucket.set_rate(limit, now_ms, part)

    def rate(self, now_ms: int) -> float:
        """Bytes a second that were sent lately."""
        return self._sent.per_second(now_ms)

    def join(self, name: RouteName, terms: RouteTerms, on_admitted: Callable[[], None]) -> RouteBandwidth:
        """A route begins to send. `on_admitted`: pieces that had been refused may go now."""
        route = RouteBandwidth(self, Share(self._root), terms, on_admitted)
        self.routes[name] = route
        return route

    def leave(self, name: RouteName) -> None:
        """A route has ended; what of it waited does not any more."""
        route = self.routes.pop(name, None)
        if route is not None:
            route.forget_all()

    @property
    def is_idle(self) -> bool:
        """Whether no route is on it."""
        return not self.routes

    def admit(self, now_ms: int) -> None:
        """Let pass what may, in fair turns."""
        while (leaf := self._root.next_leaf(now_ms)) is not None:
            assert isinstance(leaf, LaneShare)
            if leaf.lane.next_to_send() is None:
                leaf.leave()  # it has nothing to send any more
            else:
                leaf.serve(leaf.size, now_ms)
                leaf.route.admitted(leaf)

    def opens_at_ms(self, now_ms: int) -> int | None:
        """When something that waits may pass; None: nothing does, or not before a limit changes."""
        return self._root.opens_at_ms(now_ms)

    def count(self, size: int, now_ms: int) -> None:
        """So many bytes were sent."""
        self.bytes += size
        self._sent.record(size, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTerms:
    """What holds for one route at the moment."""

    limit: float | None = None
    """Of all processes that run it."""
    part: float = 1.0
    """Of that limit, for this process."""
    priority: int = 5
    catch_up_limit: float | None = None
    """Of all processes."""
    catch_up_part: float = 1.0
    ahead_ms: int = 500
    """It fetches so much ahead of what it may send and the destination has acknowledged: no more, or the way
    from its source would be used beyond the limit, and new records would stand behind old ones here. Topics
    that hold less than their part may come to as much again (see `ahead`).
    """
    is_behind: Callable[[Partition, int], bool] = lambda _partition, _now_ms: False
    """Whether what comes next of a partition are old records."""
    is_in_danger: Callable[[Partition], bool] = lambda _partition: False
    """Whether the source will soon delete what comes next of it."""

    @property
    def own_limit(self) -> float | None:
        """Of this process."""
        return None if self.limit is None else self.limit * self.part

    @property
    def own_catch_up_limit(self) -> float | None:
        """Of this process."""
        return None if self.catch_up_limit is None else self.catch_up_limit * self.catch_up_part


class LaneShare(Share):
    """A lane among those of its topic."""

    __slots__ = ("is_admitted", "lane", "route", "size")

    def __init__(self, parent: Share, route: RouteBandwidth, lane: Lane) -> None:
        super().__init__(parent)
        self.route = route
        self.lane = lane
        self.size = 0
        """Of the piece that waits, or was admitted."""
        self.is_admitted = False


class _Class:
    """New records of a route, old ones, or those in danger: topics and their lanes."""

    def __init__(
        self, parent: Share, route: RouteBandwidth, bucket: Bucket | None = None, *, weight: float = 1.0
    ) -> None:
        self._route = route
        self.share = Share(parent, weight=weight, bucket=bucket)
        self._topics: dict[str, Share] = {}
        self._lanes: dict[Lane, LaneShare] = {}
        self._kept_max = LEAVES_KEPT

    def lane(self, lane: Lane) -> LaneShare:
        """The leaf of the lane."""
        leaf = self._lanes.get(lane)
        if leaf is None:
            if len(self._lanes) >= self._kept_max:
                self._forget_idle()
            topic = self._topics.get(lane.destination.topic)
            if topic is None:
                topic = self._topics[lane.destination.topic] = Share(self.share)
            leaf = self._lanes[lane] = LaneShare(topic, self._route, lane)
        return leaf

    def start_behind(self, topic: str, size: int) -> float:
        """The start tag of what would come of a topic behind so many bytes (see `Share`)."""
        share = self._topics.get(topic)
        return (Share(self.share) if share is None else share).start_behind(size)

    def find(self, lane: Lane) -> LaneShare | None:
        return self._lanes.get(lane)

    def leaves(self) -> Iterable[LaneShare]:
        return self._lanes.values()

    def _forget_idle(self) -> None:
        """Lanes come and go with the partitions of the process: keep those that mean something."""
        self._lanes = {
            lane: leaf
            for lane, leaf in self._lanes.items()
            if leaf.is_waiting
            or not (lane.partition.is_released or (leaf.is_forgettable and not leaf.is_admitted))
        }
        kept = {lane.destination.topic for lane in self._lanes}
        self._topics = {name: share for name, share in self._topics.items() if name in kept}
        self._kept_max = max(LEAVES_KEPT, 2 * len(self._lanes))


class RouteBandwidth:
    """One route on a link: the `Pace` of its machine."""

    def __init__(
        self, link: LinkBandwidth, share: Share, terms: RouteTerms, on_admitted: Callable[[], None]
    ) -> None:
        self.throttled_ms = 0
        """Time in which pieces were ready and had to wait for a limit."""
        self.bytes = 0
        """Sent since the route began."""
        self._link = link
        self._share = share
        self._terms = terms
        self._on_admitted = on_admitted
        self._bucket = share.bucket = Bucket(None, 0)
        self._old_bucket = Bucket(None, 0)
        self._classes = {
            Kind.NEW: _Class(share, self),
            Kind.OLD: _Class(share, self, self._old_bucket),
            Kind.ENDANGERED: _Class(share, self, weight=DANGER_WEIGHT),
        }
        self.appetite = Appetite(share)
        self.catch_up_appetite = Appetite(self._classes[Kind.OLD].share)
        self._admitted: list[Lane] = []
        self._sent = WindowedRate(_RATE_WINDOWS)
        self._asks = False
        """Whether a piece is being asked for: then nobody need be told."""
        self._waits_since_ms: int | None = None

    def change(self, terms: RouteTerms, now_ms: int) -> None:
        """Other terms from now on."""
        self._terms = terms
        self._share.weight = terms.priority
        self._bucket.set_rate(terms.limit, now_ms, terms.part)
        self._old_bucket.set_rate(terms.catch_up_limit, now_ms, terms.catch_up_part)

    @property
    def terms(self) -> RouteTerms:
        """What holds now."""
        return self._terms

    @property
    def limit(self) -> float | None:
        """The least of the limits of route and link; None: none."""
        limits = [limit for limit in (self._terms.own_limit, self._link.limit) if limit is not None]
        return min(limits, default=None)

    def rate(self, now_ms: int) -> float:
        """Bytes a second that were sent lately."""
        return self._sent.per_second(now_ms)

    @property
    def is_waiting(self) -> bool:
        """Whether a piece of it waits for its turn or for a limit."""
        return self._share.is_waiting

    # ---- `Pace`

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        """Whether the chunk goes now. If not, the lane is in `take_admitted` once it may."""
        if self._is_free:
            self._count(chunk.size, now_ms)
            return True
        leaf = self._admitted_leaf(lane)
        if leaf is None:
            leaf = self._wait(lane, chunk, now_ms)
        if leaf is None:
            return False
        leaf.is_admitted = False
        if leaf.size != chunk.size:
            leaf.spend(chunk.size - leaf.size, now_ms)
        self._count(chunk.size, now_ms)
        return True

    def take_admitted(self, now_ms: int) -> list[Lane]:
        """Lanes that were refused and may go now."""
        self._link.admit(now_ms)
        self._note_waiting(now_ms)
        if not self._admitted:
            return []
        taken, self._admitted = self._admitted, []
        return taken

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When limits let more pass, though nothing else happens."""
        if self._admitted:
            return now_ms
        if not self._share.is_waiting:
            return None
        opens_at_ms = self._link.opens_at_ms(now_ms)
        return None if opens_at_ms is None else max(opens_at_ms, now_ms + 1)

    def room(self, partitions: Iterable[Partition], fetchers: int, now_ms: int) -> Room:
        """What one of so many fetches at a time may bring, given what `partitions`, all of the route, have
        buffered.
        """
        limit = self.limit
        old_limit = self._terms.own_catch_up_limit
        if limit is None and old_limit is None:
            return NO_BOUND
        topics: dict[TopicKey, TopicDemand] = {}
        for partition in partitions:
            key = self.kind(partition, now_ms), partition.lanes[0].destination.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = TopicDemand()
            topic.partitions += 1
            topic.buffered += partition.buffered_bytes
            if partition.source_end > partition.position and partition.may_fetch(now_ms):
                topic.has_more = True
        ahead_ms = self._terms.ahead_ms
        old_limits = [each for each in (limit, old_limit) if each is not None]
        old = {key: topic for key, topic in topics.items() if key[0] is Kind.OLD}
        new = {key: topic for key, topic in topics.items() if key[0] is not Kind.OLD}
        old_left = room_left(ahead_bytes(min(old_limits), ahead_ms), old, fetchers)
        new_left = None if limit is None else room_left(ahead_bytes(limit, ahead_ms), new, fetchers)
        rooms = {key: TopicRoom(old_left.of(key), turn) for key, turn in self._fetch_turns(old)}
        for key, turn in self._fetch_turns(new):
            rooms[key] = TopicRoom(None if new_left is None else new_left.of(key), turn)
        return Room(
            answer_bytes=None if new_left is None else new_left.answer_bytes + old_left.answer_bytes,
            topics=rooms,
            is_contended=(
                self._share.is_waiting
                and sum(topic.partitions for topic in topics.values()) <= CONTENDED_PARTITIONS_MAX
                and active_count(topics.values()) > 1
            ),
        )

    def kind(self, partition: Partition, now_ms: int) -> Kind:
        """What comes next of the partition."""
        if self._terms.is_in_danger(partition):
            return Kind.ENDANGERED
        return Kind.OLD if self._terms.is_behind(partition, now_ms) else Kind.NEW

    def _fetch_turns(self, topics: Mapping[TopicKey, TopicDemand]) -> Iterator[tuple[TopicKey, FetchTurn]]:
        """What is fetched next of a topic is sent behind what is buffered of it: whose that is, in order."""
        buffered = dict.fromkeys(Kind, 0)
        for (kind, _), topic in topics.items():
            buffered[kind] += topic.buffered
        for key, topic in topics.items():
            kind, name = key
            group = self._classes[kind]
            start = group.share.start_behind(buffered[kind])
            yield key, (kind is Kind.OLD, start, group.start_behind(name, topic.buffered))

    # ---- turns

    @property
    def _is_free(self) -> bool:
        """Whether nothing limits it: then nobody waits, and turns are not kept."""
        terms = self._terms
        return (
            self._link.limit is None
            and terms.limit is None
            and terms.catch_up_limit is None
            and not self._share.is_waiting
        )

    def _admitted_leaf(self, lane: Lane) -> LaneShare | None:
        for group in self._classes.values():
            leaf = group.find(lane)
            if leaf is not None and leaf.is_admitted:
                return leaf
        return None

    def _wait(self, lane: Lane, chunk: Chunk, now_ms: int) -> LaneShare | None:
        """Wait for its turn, which may be now."""
        group = self._classes[self.kind(lane.partition, now_ms)]
        for other in self._classes.values():
            former = None if other is group else other.find(lane)
            if former is not None and former.is_waiting:
                former.leave()
        leaf = group.lane(lane)
        leaf.size = chunk.size
        if not leaf.is_waiting:
            leaf.wait()
        self._asks = True
        self._link.admit(now_ms)
        self._asks = False
        if leaf.is_admitted:
            self._admitted.remove(lane)
            return leaf
        self._note_waiting(now_ms)
        return None

    def admitted(self, leaf: LaneShare) -> None:
        """The leaf had its turn."""
        leaf.is_admitted = True
        self._admitted.append(leaf.lane)
        if not self._asks:
            self._on_admitted()

    def forget_all(self) -> None:
        """Nothing of the route waits any more."""
        for group in self._classes.values():
            for leaf in group.leaves():
                if leaf.is_waiting:
                    leaf.leave()

    def _count(self, size: int, now_ms: int) -> None:
        self.bytes += size
        self._sent.record(size, now_ms)
        self._link.count(size, now_ms)

    def _note_waiting(self, now_ms: int) -> None:
        if self._waits_since_ms is not None:
            self.throttled_ms += now_ms - self._waits_since_ms
        self._waits_since_ms = now_ms if self._share.is_waiting else None
