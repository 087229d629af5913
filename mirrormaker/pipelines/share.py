"""A daemon's part in a pipeline that several daemons have in their files: one of them runs it.

They are members of a group at the pipeline's cluster (`mirror-pipeline/NAME`), and the one that is given the
first partition of the control topic holds the pipeline. It keeps it for as long as it is a member; when it
ends, is killed, or is not heard of for a session, the group gives the pipeline to another, which reads what
has become of the last run (`run_marks`) and goes on there. A daemon that is in doubt whether it still holds
the pipeline ends its run, as another may have begun one; the process of one that stands still ends itself
(`tenure`).

Where daemons cannot agree, for want of rights, each holds the pipeline. Owned by the daemon's event loop;
`run` it as a task until `close`.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import asdict, dataclass
from typing import Protocol

from broker.client.assignors import CooperativeStickyAssignor
from broker.client.backoff import Backoff
from broker.client.cluster import Cluster
from broker.client.group import GroupMember
from broker.client.group_settings import GroupSettings
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.signal import Signal
from mirrormaker.pipelines.run_marks import RunMark, claim_key, mark_key, read_mark, why_to_stand_by
from mirrormaker.reconcile.control import CONTROL_TOPIC, Claim, Standing, read_claim, standing_of
from mirrormaker.topology.model import ClusterSpec, PipelineName

SESSION_TIMEOUT_MS = 20_000
"""A daemon that was not heard of for so long is not waited for."""
HEARTBEAT_INTERVAL_MS = 1_000
GIVE_WAY_MS = 5_000
"""How long a daemon stays out of the group that lets others try; these hear of it with their heartbeats."""
REBALANCE_TIMEOUT_MS = 60_000
TIMEOUT_MS = 15_000
LOOK_INTERVAL_MS = 250
RETRY_BACKOFF = Backoff(initial_ms=200, max_ms=10_000)
UNKNOWN_YET = "it is not known yet whether another daemon runs it"
PRIZE = TopicPartition(CONTROL_TOPIC, 0)
"""Whoever has this in the pipeline's group holds the pipeline."""
_CANNOT_AGREE = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

_log = logger("pipelines")


def group_of(pipeline: PipelineName) -> str:
    """The group in which daemons agree on who runs it."""
    return f"mirror-pipeline/{pipeline}"


def client_id(daemon_id: str) -> str:
    """What the group has a daemon as, and commands on its `data_dir`."""
    return f"mirrormaker-pipeline/{daemon_id}"


class Attendant(Protocol):
    """Who runs the pipeline while it is held."""

    def look_again(self) -> None:
        """It is held now, or is not any more."""
        ...

    def extend(self, until_ms: float | None) -> None:
        """While it is held: until when that is certain, on the clock of `time.monotonic`; None: for good."""
        ...

    async def drop(self, *, gently: bool) -> None:
        """Return when nothing of it runs here."""
        ...


class PipelineShare(Protocol):
    """What a keeper has to know of it."""

    @property
    def is_held(self) -> bool:
        """Whether this daemon is to run the pipeline."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it is not."""
        ...

    @property
    def mark(self) -> RunMark | None:
        """How the last run stands, while it is held."""
        ...

    async def note(self, due_ms: int, *, is_over: bool) -> None:
        """Tell of the run for `due_ms`. Raises BrokerError."""
        ...

    def give_way(self) -> None:
        """Let others try."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareWish:
    """What a daemon's file says of the pipeline."""

    cluster: ClusterSpec
    generation: int
    digest: str
    is_bound: bool
    """See `run_marks.is_bound`."""
    claims: bool = True
    """Whether it says by which file the pipeline is run, and heeds what others say; commands do as asked."""


class OwnPipeline:
    """A `PipelineShare` that nobody shares: there is no cluster to agree at."""

    is_held = True
    reason = None
    mark: RunMark | None = None

    async def note(self, due_ms: int, *, is_over: bool) -> None:
        """See `PipelineShare`; nobody is told."""

    def give_way(self) -> None:
        """See `PipelineShare`; there are no others."""


class SharedPipeline:
    """See the module. `attendant` before `run`."""

    attendant: Attendant

    def __init__(self, name: PipelineName, wish: ShareWish, daemon_id: str, host: str, clock: Clock) -> None:
        self.is_held = False
        self.reason: str | None = UNKNOWN_YET
        self.trouble: str | None = None
        """Why nobody can be asked."""
        self.mark: RunMark | None = None
        self._name = name
        self._wish = wish
        self._daemon_id = daemon_id
        self._host = host
        self._clock = clock
        self._topic: KeptTopic | None = None
        self._member: GroupMember | None = None
        self._is_settled = False
        """The group has said who has the prize."""
        self._has_prize = False
        self._is_alone = False
        """Daemons cannot agree."""
        self._gives_way = False
        self._closing = asyncio.Event()
        self._due = Signal()
        self._log = _log.bind(pipeline=name)

    def change(self, wish: ShareWish) -> None:
        """Go by this from now on."""
        self._wish = wish
        self._due.set()

    def close(self) -> None:
        """Give it up, and have `run` return."""
        self._closing.set()
        self._due.set()

    def give_way(self) -> None:
        """See `PipelineShare`: it is back in the group a little later."""
        self._gives_way = self._member is not None
        self._due.set()

    async def note(self, due_ms: int, *, is_over: bool) -> None:
        """See `PipelineShare`."""
        mark = RunMark(
            due_ms=due_ms,
            is_over=is_over,
            daemon=self._daemon_id,
            host=self._host,
            at_ms=self._clock.now_ms(),
        )
        self.mark = mark
        if self._topic is not None:
            await self._topic.put([(mark_key(self._name), asdict(mark))])

    async def run(self) -> None:
        """Take part until `close`."""
        failures = 0
        while not self._closing.is_set():
            try:
                await self._take_part()
                failures = 0
            except* (BrokerError, ConfigurationError) as group:
                failures += 1
                await self._meet(_first_of(group), failures)
            if failures:
                await self._rest(RETRY_BACKOFF.delay_ms(failures, random.random))
        await self._let_go(None)

    async def _meet(self, error: BrokerError, failures: int) -> None:
        cannot = isinstance(error, ConfigurationError) or (
            isinstance(error, ProtocolError) and error.code in _CANNOT_AGREE
        )
        if failures == 1:
            self._log.warning("pipeline_not_shared", runs=cannot or self._is_alone, error=str(error))
        self._is_alone |= cannot
        if self._is_alone:
            self.attendant.extend(None)
            await self._hold(None)
        else:
            self.trouble = str(error)
            await self._let_go(self.trouble)

    async def _rest(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._closing.wait()
        except TimeoutError:
            return

    # ---- in touch with the cluster

    async def _take_part(self) -> None:
        """Until `close`, or until the cluster is to be reached otherwise. Raises BrokerError."""
        cluster = self._wish.cluster
        async with (
            open_cluster(cluster, client_id=client_id(self._daemon_id)) as client,
            KeptTopic(client, CONTROL_TOPIC, timeout_ms=TIMEOUT_MS) as topic,
            asyncio.TaskGroup() as tasks,
        ):
            await topic.read_to_end()
            self._topic = topic
            self.trouble = None
            following = tasks.create_task(self._follow(topic), name="follow marks")
            try:
                while not self._closing.is_set() and self._wish.cluster == cluster:
                    await self._look(client, topic, tasks)
                    await self._due.wait(LOOK_INTERVAL_MS)
            finally:
                await self._leave()
                self._topic = None
                following.cancel()

    async def _follow(self, topic: KeptTopic) -> None:
        while True:
            await topic.changed()
            self._due.set()

    async def _look(self, client: Cluster, topic: KeptTopic, tasks: asyncio.TaskGroup) -> None:
        """Be a member or none, and hold the pipeline or not, as things stand."""
        why = await self._why_to_stand_by(topic)
        if why is not None:
            await self._leave()
            await self._stand_by(why)
            return
        if self._member is None:
            self._member = self._new_member(client, topic)
            tasks.create_task(self._member.run(), name=f"group of pipeline {self._name}")
        if self._gives_way:
            await self._step_back(self._member)
        mark = read_mark(topic.get(mark_key(self._name)))
        if self._has_prize and not self._member.is_in_doubt:
            self._is_alone = False
            self.attendant.extend(self._member.sure_until_ms)
            await self._hold(mark)
        elif self._member.is_in_doubt or self._is_settled:
            self._is_alone = False
            await self._stand_by(_describe_holder(mark))

    async def _why_to_stand_by(self, topic: KeptTopic) -> str | None:
        """The claim is said where it is newer than what is known."""
        wish = self._wish
        own = Claim(
            generation=wish.generation,
            digest=wish.digest,
            daemon=self._daemon_id,
            host=self._host,
            at_ms=self._clock.now_ms(),
        )
        found = await self._claim(own, topic) if wish.claims else None
        mark = read_mark(topic.get(mark_key(self._name)))
        return why_to_stand_by(own, found, mark, bound=wish.is_bound)

    async def _claim(self, own: Claim, topic: KeptTopic) -> Claim | None:
        """What holds, once ours has been said where that is to be."""
        found = read_claim(topic.get(claim_key(self._name)))
        if found is None or standing_of(own, found) is Standing.TO_CLAIM:
            await topic.put([(claim_key(self._name), asdict(own))])
            await topic.read_to_end()
            found = read_claim(topic.get(claim_key(self._name)))
        return found

    # ---- the group

    def _new_member(self, client: Cluster, topic: KeptTopic) -> GroupMember:
        async def assigned(partitions: frozenset[TopicPartition]) -> None:
            if PRIZE in partitions:
                await topic.read_to_end()  # what the one before has said last
                self._has_prize = True
            self._is_settled = True
            self._due.set()

        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            await self._lose_prize(gently=True)

        async def lost(partitions: frozenset[TopicPartition]) -> None:
            await self._lose_prize(gently=False)

        return GroupMember(
            client,
            GroupSettings(
                group_id=group_of(self._name),
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            ),
            subscription=[CONTROL_TOPIC],
            assignors=(CooperativeStickyAssignor(),),
            on_assigned=assigned,
            on_revoked=revoked,
            on_lost=lost,
        )

    async def _lose_prize(self, *, gently: bool) -> None:
        self._has_prize = False
        reason = None if self._closing.is_set() else "another daemon or command is to run it"
        await self._let_go(reason, gently=gently)

    async def _step_back(self, member: GroupMember) -> None:
        """Out of the group for a while: whoever else is in it gets the pipeline."""
        self._gives_way = False
        member.stand_aside()
        await self._rest(GIVE_WAY_MS)
        member.come_back()

    async def _leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await member.close()
        self._has_prize = self._is_settled = False

    # ---- held or not

    async def _hold(self, mark: RunMark | None) -> None:
        if self.is_held:
            return
        self.is_held, self.reason = True, None
        self.mark = mark if mark is not None else self.mark
        self._log.info("pipeline_held", due_ms=mark.due_ms if mark is not None else None)
        self.attendant.look_again()

    async def _stand_by(self, reason: str) -> None:
        if not self.is_held and reason != self.reason:
            self._log.info("pipeline_stands_by", reason=reason)
        await self._let_go(reason)

    async def _let_go(self, reason: str | None, *, gently: bool = False) -> None:
        self.reason = reason
        if not self.is_held:
            return
        self.is_held = False
        self._log.info("pipeline_let_go", reason=reason)
        self.attendant.look_again()
        await self.attendant.drop(gently=gently)


def _describe_holder(mark: RunMark | None) -> str:
    if mark is None:
        return "another daemon or command is to run it"
    return f"another daemon or command is to run it; the last run was of {mark.daemon} on {mark.host}"


def _first_of(group: BaseExceptionGroup[BrokerError]) -> BrokerError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BrokerError)
    return error
