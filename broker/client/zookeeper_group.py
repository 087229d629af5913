"""Membership of a group that meets in ZooKeeper: no node of the cluster takes part in it.

`run` is the membership: one task, owned by the caller. The member registers, watches who else is
registered, the brokers and the topics, and on every change that alters its share stops reading, lets go of
its partitions and claims those of the new share. What another still owns is tried again when it is let go,
or after `rebalance_backoff_ms`: all members see the same change and come to the same result, each in its
own time.

A partition is read only while its owner znode is this member's. Whatever raises a doubt about that (the
connection is down, the znode was touched, the process stood still) is told at once by `doubted`, before it is
known whether the znode is still there: then nothing may be handed out until `assured`. A session that ended
takes all owner znodes with it: `lost`. All three are plain functions, so nothing happens between the news and
its effect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from broker.client.backoff import is_retriable
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_assignment import register, share_of, stream_name, topics_of
from broker.client.zookeeper_registry import GroupRegistry
from broker.client.zookeeper_settings import ZooKeeperGroupSettings, new_consumer_id
from broker.clock import Clock, SystemClock
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError, SessionState
from broker.errors import BrokerError, CoordinationError
from broker.telemetry import logger
from broker.types import TopicPartition

StreamCounts = Mapping[str, int]
"""How many streams read each topic."""
PatternStreams = tuple[TopicPattern, int]
"""How many streams read, together, all topics that match."""

_LEAVE_TIMEOUT_MS = 3_000
"""How long a member that leaves waits for a connection that is down."""
_LEAVE_PAUSE_MS = 50

_log = logger("zookeeper_group")


class RebalanceFailedError(BrokerError):
    """A new member did not get its share within the retries it has; what is in its way is named."""


class ShareListener(Protocol):
    """Who reads the partitions that a member of a group is given."""

    async def claimed(self, share: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """These partitions are claimed, each for the stream of that number. Returns where the group is in
        them; those it never read are left out.

        Raises BrokerError: they are claimed again, later.
        """
        ...

    def assigned(self, share: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, each for the stream of that number, from there on."""
        ...

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading the partitions, and commit: when this returns they may be another's."""
        ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading the partitions: they may be another's already."""
        ...

    def doubted(self) -> None:
        """Hand nothing out and fetch nothing: what was assigned may be lost."""
        ...

    def assured(self) -> None:
        """What was assigned, and was not told lost since, still is: go on."""
        ...


class ZooKeeperMember:
    """One member of one group. `run` it as a task, `close` it to leave. The session is the caller's."""

    def __init__(
        self,
        coordination: Coordination,
        group_id: str,
        settings: ZooKeeperGroupSettings,
        *,
        subscription: StreamCounts | PatternStreams,
        listener: ShareListener,
        clock: Clock | None = None,
    ) -> None:
        """Raises ValueError for ids that cannot name a znode."""
        consumer_id = settings.consumer_id or new_consumer_id()
        for what, name in (("group", group_id), ("consumer", consumer_id)):
            if not paths.is_name(name):
                raise ValueError(f"{name!r} cannot be the id of a {what}: it names a znode")
        self.group_id = group_id
        self.settings = settings
        self.members = 0
        """Of the group, as of when this one last looked; 0: it has not."""
        self.registry = GroupRegistry(coordination, group_id, consumer_id, settings.names)
        self._coordination = coordination
        self._subscription = subscription
        self._listener = listener
        self._clock = clock or SystemClock()
        self._share: dict[TopicPartition, int] | None = None
        """What is assigned to the listener; None while nothing is, or something of it was lost."""
        self._news = asyncio.Event()
        """Set when there is something to look at."""
        self._changed = False
        """The group, or what it reads, is perhaps not what it was when it was last looked at."""
        self._certainty = 0
        """Counts what raised doubts: whoever began before the last of them must not assign anything."""
        self._trouble = ""
        """What made the last attempt fail, where no obstacle did."""
        self._closing = False
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._watches: dict[str, Callable[[], None]] = {}
        self._owner_watches: list[Callable[[], None]] = []
        self._beat: asyncio.TimerHandle | None = None

    @property
    def consumer_id(self) -> str:
        """What this member is known by in its group."""
        return self.registry.consumer_id

    @property
    def share(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns and reads."""
        return frozenset(self._share or ())

    async def run(self) -> None:
        """Be a member until `close`.

        Raises RebalanceFailedError when the first share is not to be had; later ones are waited for. Raises
        what the listener raised and no other attempt mends.
        """
        self._ended.clear()
        end_states = self._coordination.on_state(self._session_changed)
        self._watch_group()
        self._listen_to_itself(asyncio.get_running_loop().time())
        self._change()
        try:
            while not self._closing:
                await self._news.wait()
                if not self._closing:
                    await self._settle()
        finally:
            try:
                await self._leave()
            finally:
                end_states()
                self._end_watches()
                self._ended.set()
                self._settled.set()

    async def close(self) -> None:
        """Give up the partitions, leave the group, and return when `run` has ended."""
        self._closing = True
        self._news.set()
        await self._ended.wait()

    def subscribe(self, subscription: StreamCounts) -> None:
        """Read other topics, in place of others that were named; the group rebalances."""
        self._subscription = subscription
        self._change()

    async def settled(self) -> None:
        """Return when this member has got its first share, or `run` has ended."""
        await self._settled.wait()

    # Until this member has its share

    async def _settle(self) -> None:
        failures = 0
        while not self._closing:
            self._changed = False
            self._news.clear()
            try:
                obstacles = await self._rebalance()
            except SessionLostError:
                return  # its return is news
            except CoordinationError as error:
                obstacles = self._failed(error)
            except BrokerError as error:
                if not is_retriable(error):
                    raise
                obstacles = self._failed(error)
            if obstacles is None:
                return
            failures += 1
            exhausted = failures > self.settings.rebalance_retries_max
            if exhausted:
                self._report(failures, obstacles)
            with contextlib.suppress(SessionLostError):
                await self._let_go()
                await self._wait_for(obstacles, for_ever=exhausted and bool(obstacles))
            if self._changed or exhausted:
                failures = 0

    async def _rebalance(self) -> Sequence[str] | None:
        """One attempt; None when this member has its share, else the znodes that were in the way.

        Raises BrokerError.
        """
        certainty = self._certainty
        registration = register(self._subscription, self._clock.now_ms())
        if not await self.registry.register(registration):
            return [self.registry.id_path]
        share = await self._computed_share()
        if share == self._share and await self._still_owns_all():
            self._assure(certainty)
            return None
        await self._let_go()
        names = {partition: stream_name(self.consumer_id, stream) for partition, stream in share.items()}
        if obstacles := await self.registry.claim(names):
            return obstacles
        positions = await self._listener.claimed(share)
        self._assign(share, positions, certainty)
        return None

    async def _computed_share(self) -> dict[TopicPartition, int]:
        registrations = await self.registry.registrations()
        if self.consumer_id not in registrations:
            raise SessionLostError(f"{self.registry.id_path} is gone")
        self.members = len(registrations)
        existing = await self._existing_topics()
        internal_too = self.settings.internal_topics
        mine = topics_of(registrations[self.consumer_id], existing, internal_too=internal_too)
        self._watch_topics(mine)
        topics = await self.registry.replicas(mine)
        try:
            return share_of(self.consumer_id, registrations, topics, internal_too=internal_too)
        except ValueError as error:
            raise CoordinationError(f"group {self.group_id}: {error}") from error

    async def _existing_topics(self) -> Collection[str]:
        if isinstance(self._subscription, Mapping):
            return self._subscription.keys()
        return await self.registry.topics()

    async def _still_owns_all(self) -> bool:
        """Whether all of the share is still owned; what is not is told lost."""
        if lost := await self.registry.lost():
            reason = "owner znodes are gone"
            _log.warning("group_partitions_lost", **self._names, count=len(lost), reason=reason)
            self._listener.lost(lost)
        return not lost

    def _assure(self, certainty: int) -> None:
        if certainty != self._certainty:
            raise SessionLostError("something happened meanwhile")
        self._listener.assured()

    def _assign(
        self, share: dict[TopicPartition, int], positions: Mapping[TopicPartition, int], certainty: int
    ) -> None:
        """Nothing is awaited between the last look at what is certain and the assignment."""
        if certainty != self._certainty:
            raise SessionLostError("something happened while partitions were claimed")
        self._share = share
        self._owner_watches = [
            self._coordination.watch_data(path, self._doubt) for path in self.registry.owner_paths()
        ]
        _log.info("group_share_taken", **self._names, partitions=len(share))
        self._listener.assigned(share, positions)
        self._listener.assured()
        self._settled.set()

    async def _let_go(self) -> None:
        """Stop reading, commit, and let others own what this member owned."""
        try:
            if self._share:
                await self._listener.revoked(self._share.keys())
        finally:
            self._share = None
            self._end_owner_watches()
            await self.registry.release()

    def _failed(self, error: BrokerError) -> Sequence[str]:
        self._trouble = str(error)
        _log.warning("group_rebalance_failed", **self._names, error=self._trouble)
        return ()

    def _report(self, tries: int, obstacles: Sequence[str]) -> None:
        """All retries are used up. Raises RebalanceFailedError for a new member."""
        text = f"{self.consumer_id} has no share in group {self.group_id} after {tries} tries"
        if not self._settled.is_set():
            reason = f"in its way: {', '.join(obstacles)}" if obstacles else self._trouble
            raise RebalanceFailedError(f"{text}; {reason}")
        _log.error("group_rebalance_given_up", **self._names, tries=tries, obstacles=list(obstacles))

    async def _wait_for(self, obstacles: Sequence[str], *, for_ever: bool) -> None:
        """Until these znodes are gone, the group changes or, unless `for_ever`, the backoff is over."""
        ends = [self._coordination.watch_data(path, self._news.set) for path in obstacles]
        try:
            async with asyncio.timeout(None if for_ever else self.settings.rebalance_backoff_ms / 1000):
                while not self._changed and not self._closing:
                    if obstacles and not await self.registry.any_exists(obstacles):
                        return
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            return
        finally:
            for end in ends:
                end()

    async def _leave(self) -> None:
        """The session is another's, too: what cannot be told it now would stay for as long as it lasts."""
        loop, session_id = asyncio.get_running_loop(), self._coordination.session_id
        deadline = loop.time() + _LEAVE_TIMEOUT_MS / 1000
        while True:
            try:
                await self._let_go()
                await self.registry.unregister()
                return
            except CoordinationError as error:
                if self._coordination.session_id != session_id or loop.time() >= deadline:
                    _log.info("group_not_left", **self._names, error=str(error))
                    return
            await asyncio.sleep(_LEAVE_PAUSE_MS / 1000)

    # What is watched

    def _watch_group(self) -> None:
        for path in (self.registry.ids_path, paths.BROKER_IDS):
            self._watches[path] = self._coordination.watch_children(path, self._change)
        if not isinstance(self._subscription, Mapping):
            self._watches[paths.TOPICS] = self._coordination.watch_children(paths.TOPICS, self._change)

    def _watch_topics(self, topics: Collection[str]) -> None:
        """Watch those that are read for new partitions; a topic that was named also for its creation."""
        wanted = {paths.topic(topic) for topic in topics}
        watched = {path for path in self._watches if path.startswith(f"{paths.TOPICS}/")}
        for path in watched - wanted:
            self._watches.pop(path)()
        for path in wanted - watched:
            self._watches[path] = self._coordination.watch_data(path, self._change)

    def _listen_to_itself(self, before: float) -> None:
        """Notice when this process stood still: what it owned may be another's since."""
        loop = asyncio.get_running_loop()
        pause_max = self.settings.pause_max_ms / 1000
        if loop.time() - before > pause_max:
            self._doubt()
        self._beat = loop.call_later(pause_max / 4, self._listen_to_itself, loop.time())

    def _end_watches(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._end_owner_watches()
        while self._watches:
            self._watches.popitem()[1]()

    def _end_owner_watches(self) -> None:
        while self._owner_watches:
            self._owner_watches.pop()()

    def _change(self) -> None:
        self._changed = True
        self._news.set()

    def _doubt(self) -> None:
        self._certainty += 1
        self._listener.doubted()
        self._change()

    def _session_changed(self, state: SessionState) -> None:
        match state:
            case _ if self._ended.is_set():
                return
            case SessionState.CONNECTED:
                self._change()
            case SessionState.SUSPENDED:
                self._certainty += 1
                self._listener.doubted()
            case SessionState.LOST:
                self._certainty += 1
                self._lose_all()

    def _lose_all(self) -> None:
        """The session has ended: its owner znodes are gone, or will be before another session begins."""
        lost, self._share = self._share, None
        self.registry.forget_claims()
        self._end_owner_watches()
        if lost:
            _log.warning("group_partitions_lost", **self._names, count=len(lost), reason="the session ended")
            self._listener.lost(lost.keys())

    @property
    def _names(self) -> dict[str, str]:
        return {"group": self.group_id, "consumer": self.consumer_id}
