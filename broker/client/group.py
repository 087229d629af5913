"""Membership of a consumer group by the classic protocol: join, sync, heartbeat, leave; consuming is somebody
else's.

`run` is the membership: one task, owned by the caller. Each turn of its loop is one generation: revoke what
must be given up, join, sync (computing the assignment when elected leader), tell what was assigned, and wait
until a heartbeat, changed metadata or the caller says to join again. Heartbeats run beside the callbacks, so
a slow `on_revoked` keeps its partitions for as long as the rebalance timeout. An owner that was thrown out is
told by `on_lost`: by then the partitions may be another's, and commits are refused. A member that keeps its
partitions while it joins again (KIP-429) beats beside the join too: `is_in_doubt` tells when it is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from broker.client.assignors import Assignment, Assignor, RangeAssignor
from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.client.group_offsets import Membership, OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.group_protocol import describe_subscription
from broker.client.group_settings import GroupSettings
from broker.client.group_share import GroupShare
from broker.client.group_topics import GroupTopics
from broker.client.heartbeats import Heartbeats
from broker.client.member_requests import MemberRequests
from broker.client.subscription import PartitionsCallback, Subscription
from broker.client.turns import Turn, Turns
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition
from broker.wire.messages.join_group import JoinGroupResponse

_THROWN_OUT = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)

_log = logger("group")


class GroupMember:
    """One member of one group. `run` it as a task, `close` it to leave."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        *,
        subscription: Subscription,
        on_assigned: PartitionsCallback,
        on_revoked: PartitionsCallback,
        on_lost: PartitionsCallback | None = None,
        assignors: Sequence[Assignor] = (RangeAssignor(),),
    ) -> None:
        """`on_revoked` may still commit; `on_lost` (by default the same function) cannot. All are awaited one
        at a time.
        """
        if not assignors:
            raise ValueError("a member needs an assignor")
        self.settings = settings
        self.is_leader = False
        self.problem: str | None = None
        """Why it takes part in no generation: what its last attempt to join ended with, and it tries on."""
        self._cluster = cluster
        self._topics = GroupTopics(cluster, subscription)
        self._share = GroupShare(
            settings.group_id,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost or on_revoked,
        )
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = all(assignor.cooperative for assignor in assignors)
        self._membership = Membership(instance_id=settings.instance_id)
        self._lane = cluster.new_lane("member")
        self._requests = MemberRequests(cluster, settings, lane=self._lane)
        self._turns = Turns()
        self._heartbeats = Heartbeats(settings, self._requests, self._turns, self._retry_delay_ms)
        self._settled = asyncio.Event()
        self._takes_part = False
        """In a generation, from its sync to the next join: a group goes on without a member that does not
        join, and before that it has no other generation.
        """
        self._former_leader: str | None = None
        """Who leads, as a static member was told that may be back in the place that it had before."""
        self._synced_at = 0.0
        """When it last asked for its share, on the event loop's clock."""
        self._is_aside = False
        self._for_good = False
        self._ended = asyncio.Event()
        self._ended.set()
        self._joining: asyncio.Timeout | None = None
        self._looking: asyncio.Timeout | None = None
        """At the metadata."""

    @property
    def group_id(self) -> str:
        return self.settings.group_id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member has."""
        return self._share.partitions

    @property
    def assignment_user_data(self) -> bytes | None:
        """What the leader's assignor told this member beside its partitions."""
        return self._share.user_data

    @property
    def membership(self) -> Membership:
        """On whose behalf a transaction commits this member's positions."""
        return self._membership

    @property
    def member_id(self) -> str:
        """The id the coordinator gave, empty before."""
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """The generation this member takes part in, -1 while it takes part in none."""
        return self._membership.generation

    @property
    def is_in_doubt(self) -> bool:
        """Whether others may have its partitions: the coordinator has not been heard of for a session, or
        does not wait any longer for it to join.
        """
        if self._takes_part:
            return self._heartbeats.is_in_doubt
        return bool(self.assignment) and self._heartbeats.may_be_out

    @property
    def sure_until_ms(self) -> float:
        """Until when nobody else has its partitions, on the event loop's clock: that of `time.monotonic`. Not
        before it was assigned any.
        """
        return self._heartbeats.sure_until_ms

    async def run(self) -> None:
        """Be a member until `close`. Raises what no rejoining mends: ProtocolError, or what a callback
        raised.

        A coordinator that cannot be reached is tried again for as long as this runs.
        """
        self._ended.clear()
        try:
            failures = 0
            while self._turns.asked is not Turn.CLOSE:
                try:
                    if self._is_aside:
                        await self._turns.wait_for_any()
                        continue
                    async with self._heartbeats_beside_a_join():
                        assignment = await self._join()
                    failures, self.problem = 0, None
                    if assignment is not None:
                        await self._take_part(assignment)
                except BrokerError as error:
                    failures += 1
                    await self._recover(error, failures)
            await self._share.give_up(self.assignment)
            await self._leave()
        except BrokerError as error:
            _log.warning("group_membership_failed", group=self.group_id, error=str(error))
            await self._lose("the membership failed")
            raise
        finally:
            self._ended.set()
            self._settled.set()
            await self._cluster.release_lane(self._lane)

    async def close(self, *, for_good: bool = False) -> None:
        """Give up the partitions, leave the group, and return when `run` has ended.

        A static member stays in the group until its session times out, but for one that leaves `for_good`.
        """
        self._for_good |= for_good
        self._turns.ask(Turn.CLOSE)
        for under_way in (self._joining, self._looking):
            if under_way is not None:
                under_way.reschedule(asyncio.get_running_loop().time())
        await self._ended.wait()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription; the group rebalances. Raises ValueError as
        `SubscriptionPattern.chooser`.
        """
        self._topics.subscribe(subscription)
        self.request_rejoin()

    def look_every(self, interval_ms: int) -> None:
        """Look for new topics and partitions so often from the next look on."""
        self.settings = replace(self.settings, metadata_max_age_ms=interval_ms)

    def request_rejoin(self) -> None:
        """Join again: what this member tells the others has changed."""
        self._turns.ask(Turn.REJOIN)

    def stand_aside(self) -> None:
        """Give up the partitions, by `on_lost`, and leave the group until `come_back`: others get them.

        A static member does not leave: its partitions are others' when its session has timed out.
        """
        self._is_aside = True
        self._turns.ask(Turn.LOST)

    def come_back(self) -> None:
        """Join the group again after `stand_aside`."""
        self._is_aside = False
        self._turns.ask(Turn.REJOIN)

    async def settled(self) -> None:
        """Return when this member has adopted the assignment of a generation, or `run` has ended."""
        await self._settled.wait()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions on behalf of this member.

        Raises ProtocolError ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID when it is a member
        no longer: then the partitions may be another's, and its positions are not stored.
        """
        if self.generation < 0:
            raise ProtocolError(
                ErrorCode.ILLEGAL_GENERATION, f"not a member of group {self.group_id} at the moment"
            )
        membership = self._membership
        try:
            await commit_offsets(
                self._cluster,
                self.group_id,
                offsets,
                membership=membership,
                timeout_ms=self.settings.session_timeout_ms,
            )
        except ProtocolError as error:
            if error.code in _THROWN_OUT and self._takes_part and membership is self._membership:
                self._turns.ask(Turn.LOST)  # while joining it is that answer which tells
            raise

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored for the partitions; those without a commit are left out.

        Raises as `fetch_offsets`.
        """
        return await fetch_offsets(self._cluster, self.group_id, partitions)

    # One generation

    async def _take_part(self, assignment: Assignment) -> None:
        """From the answer to SyncGroup until it is time to join again, or to leave."""
        self._takes_part = True
        try:
            async with self._heartbeats.running(lambda: self._membership, self._synced_at):
                await self._spend_generation(assignment)
        finally:
            self._takes_part = False
        if self._is_aside:
            await self._leave()

    async def _spend_generation(self, assignment: Assignment) -> None:
        before = self.assignment
        try:
            await self._adopt(assignment)
        except BrokerError as error:
            is_kept = self._cooperative and self._is_sure_to_join_again(error)
            await self._fail_to_take_up(before & self.assignment if is_kept else frozenset())
            raise
        self._settled.set()
        if self._former_leader is not None and self._cooperative and await self._is_out_of_date():
            self._turns.ask(Turn.REJOIN)
        turn = await self._next_turn()
        if turn is Turn.LOST:
            await self._lose("it stands aside" if self._is_aside else "thrown out of the group")
        elif not self._cooperative:
            await self._share.give_up(self.assignment)

    def _is_sure_to_join_again(self, error: BrokerError) -> bool:
        """Whether nobody else can have the partitions of a generation that ends with `error` before that."""
        is_rebalance = isinstance(error, ProtocolError) and error.code is ErrorCode.REBALANCE_IN_PROGRESS
        is_out = self._turns.asked is Turn.LOST or self._heartbeats.is_in_doubt
        return (is_rebalance or is_retriable(error)) and not is_out

    async def _fail_to_take_up(self, kept: frozenset[TopicPartition]) -> None:
        """Lose all partitions but these."""
        if kept:
            await self._share.keep(kept, self.member_id)
        else:
            await self._lose("its partitions could not be taken up")

    async def _adopt(self, assignment: Assignment) -> None:
        partitions = frozenset(assignment.partitions)
        self._share.user_data = assignment.user_data
        if not self.assignment <= partitions:
            await self._share.give_up(self.assignment - partitions)
            self._turns.ask(Turn.REJOIN)  # so that the new owners can be given them (KIP-429)
        _log.info(
            "group_generation_adopted",
            group=self.group_id,
            member=self.member_id,
            generation=self.generation,
            partitions=len(partitions),
            leader=self.is_leader,
        )
        await self._share.take_up(partitions - self.assignment)

    async def _lose(self, reason: str) -> None:
        """The membership is gone: tell the owner, and forget generation and assignment."""
        self._be_named(self.member_id)
        await self._share.lose(reason, self.member_id)

    async def _next_turn(self) -> Turn:
        """Wait until the generation ends, looking at the metadata now and then."""
        while self._turns.asked is None:
            try:
                async with asyncio.timeout(self.settings.metadata_max_age_ms / 1000):
                    await self._turns.wait()
            except TimeoutError:
                await self._look_at_metadata()
        return self._turns.asked

    async def _look_at_metadata(self) -> None:
        """Nobody waits for a node that does not answer once the member is to be closed."""
        try:
            async with asyncio.timeout(None) as self._looking:
                have_changed = await self._topics.have_changed(is_leader=self.is_leader)
        except TimeoutError:
            return
        except BrokerError as error:
            if not is_retriable(error):
                raise
            _log.info("group_metadata_not_refreshed", group=self.group_id, error=str(error))
            return
        finally:
            self._looking = None
        if have_changed:
            self._turns.ask(Turn.REJOIN)

    # Joining

    async def _join(self) -> Assignment | None:
        """Become part of a generation; this member's share of it, or None when closed meanwhile.

        Raises BrokerError.
        """
        self._turns.clear()
        self._settled.clear()
        try:
            async with asyncio.timeout(None) as self._joining:
                return await self._join_and_sync()
        except TimeoutError:
            if self._turns.asked is not Turn.CLOSE:
                raise
            return None
        finally:
            self._joining = None

    @asynccontextmanager
    async def _heartbeats_beside_a_join(self) -> AsyncIterator[None]:
        if not self.assignment:
            yield
            return
        lane = self._cluster.new_lane("heartbeats")
        requests = MemberRequests(self._cluster, self.settings, lane=lane)
        try:
            async with self._heartbeats.beside_a_join(lambda: self._membership, requests):
                yield
        finally:
            await self._cluster.release_lane(lane)

    async def _join_and_sync(self) -> Assignment:
        await self._topics.choose()
        is_unknown_static = self.settings.instance_id is not None and not self.member_id
        joined = await self._ask_to_join()
        self._membership = Membership(
            member_id=joined.member_id,
            generation=joined.generation_id,
            instance_id=self.settings.instance_id,
        )
        self._heartbeats.joined()
        self.is_leader = joined.leader == joined.member_id
        may_be_back = is_unknown_static and (joined.skip_assignment or not self.is_leader)
        self._former_leader = joined.leader if may_be_back else None
        assignments = await self._topics.hand_out(joined, self._assignors) if self.is_leader else {}
        self._synced_at = asyncio.get_running_loop().time()
        return await self._requests.sync(joined, assignments)

    async def _ask_to_join(self) -> JoinGroupResponse:
        protocols = [
            describe_subscription(
                assignor,
                self._topics.chosen,
                owned=self.assignment,
                generation=self.generation,
                rack_id=self.settings.rack_id,
            )
            for assignor in self._assignors.values()
        ]
        return await self._requests.join(self.member_id, protocols, on_member_id=self._be_named)

    async def _is_out_of_date(self) -> bool:
        """Whether a static member that is back in its place, as it was, should join again, by its id now.
        Kafka's coordinators do not look at what it wants that it did not before, or at what its topics have
        got since; nor do those before 3.2 tell a leader that it leads, but name the id that it had.
        """
        try:
            async with asyncio.timeout(None) as self._looking:
                metadata = await self._cluster.refresh(self._topics.chosen)
                members = await self._requests.members()
        except TimeoutError:
            return False  # it is to be closed
        except BrokerError as error:
            _log.info("group_not_described", group=self.group_id, error=str(error))
            return True
        finally:
            self._looking = None
        shared_out = {partition for member in members for partition in member.assignment}
        return (
            not shared_out.issuperset(metadata.topic_partitions(self._topics.chosen))
            or any(partition.topic not in self._topics.chosen for partition in self.assignment)
            or self._former_leader not in {member.member_id for member in members}
        )

    def _be_named(self, member_id: str) -> None:
        """Have this id, and no generation."""
        self._membership = Membership(member_id=member_id, instance_id=self.settings.instance_id)

    async def _recover(self, error: BrokerError, failures: int) -> None:
        """After a failed join: get ready for the next. Raises `error` when it is fatal."""
        code = error.code if isinstance(error, ProtocolError) else None
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                await self._lose("the coordinator does not know this member")
                self._membership = Membership(instance_id=self.settings.instance_id)
            case ErrorCode.ILLEGAL_GENERATION:
                await self._lose("the generation is over")
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case _ if is_retriable(error):
                self.problem = str(error)
                _log.info("group_join_retried", group=self.group_id, error=self.problem)
                if self._heartbeats.may_be_out:
                    await self._lose("no coordinator within the session timeout")
            case _:
                raise error
        await self._rest(failures)

    async def _rest(self, failures: int) -> None:
        """Wait before the next attempt, or until `close`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._retry_delay_ms(failures) / 1000):
                await self._turns.wait_for_close()

    def _retry_delay_ms(self, failures: int) -> float:
        return self._cluster.backoff.delay_ms(failures, self._cluster.random)

    # Leaving

    async def _leave(self) -> None:
        """Tell the coordinator that this member is gone, unless it is to come back; a failure is only
        logged.
        """
        comes_back = not self.settings.leave_on_close or self.settings.instance_id is not None
        if not self.member_id or (comes_back and not self._for_good):
            return
        try:
            await self._requests.leave(self.member_id)
        except BrokerError as error:
            _log.info("group_not_left", group=self.group_id, member=self.member_id, error=str(error))
        self._membership = Membership()
