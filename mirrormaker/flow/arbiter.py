"""What a route does about partitions that cannot go on: its policies, carried out.

- `fail`: the route ends as soon as what is in flight is settled, and says why; `failure` is set.
- `pause_partition`: the partition stands, and whoever looks at the halts of the route sees why, until
  somebody releases it. What passes by itself is only told of: such a partition is tried again anyway. What
  cannot cross is between the two: the halt is taken back when it has crossed after all.
- `skip_and_record`: what is left out is noted at the destination, and only then copying goes on behind it. So
  it is with a partition that has been released. (Obstacles are noted by the intake itself: see `obstacles`.)

Heartbeats are nobody's records, and policies are not about them: they go on at what there is, without a word
or a note. What passes by itself, as a missing right, is told of, and waited for.

Owned by the event loop of the route's copier; its tasks live in the copier's task group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, assert_never

from broker.client.operations import WRITE
from broker.errors import BrokerError, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow.courses import Course, course_of
from mirrormaker.flow.facts import Fact, ObstacleMet, PartitionPaused, PartitionRecovered
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.trouble import (
    ANOTHER_LOG,
    NO_POSITION,
    OBSTACLES,
    PASSING,
    WHOLE_TOPIC,
    Trouble,
    TroubleKind,
    gap,
    place_name,
    policy_for,
    refused,
)
from mirrormaker.missing_rights import explained
from mirrormaker.topology.model import FailurePolicy, RouteSpec

SETTLE_TIMEOUT_MS = 30_000
"""How long the destination may take to answer for what was read of a log that is gone."""
_OF_A_PLACE = ANOTHER_LOG | {TroubleKind.SOURCE_GAP}
"""What the source lacks, or is not as it was, at one offset: met only there."""
HEARTBEATS_POLICY = FailurePolicy.PAUSE_PARTITION
"""Of what they cannot go on behind, whatever the route's own policies say."""


class Halts(Protocol):
    """Where it is kept which partitions of the route stand, for people and for the time after a restart."""

    def standing(self, source: TopicPartition) -> Trouble | None:
        """Why it stands, whether or not it has been released since."""
        ...

    def is_released(self, trouble: Trouble) -> bool:
        """Whether somebody has said to go on behind this."""
        ...

    async def tell(self, trouble: Trouble, *, stops_route: bool) -> None:
        """It stands from now on. Raises BrokerError."""
        ...

    async def take_back(self, source: TopicPartition) -> None:
        """It stands no more. Raises BrokerError."""
        ...


class Notes(Protocol):
    """Where it is noted what is left out for good."""

    async def write(self, trouble: Trouble, on_failure: Callable[[BrokerError], None]) -> None:
        """Return when that is safe, however long it takes; `on_failure` is told of the first failure."""
        ...


class Arbiter:
    """See the module. `begin` before anything is met."""

    def __init__(
        self,
        route: RouteSpec,
        halts: Halts,
        notes: Notes,
        *,
        on_event: Callable[..., None],
        on_failure: Callable[[], None],
    ) -> None:
        """`on_event` takes a name and details for people. `on_failure` is to end the route's copying."""
        self.route = route
        self.failure: Trouble | None = None
        """Why the route must not go on."""
        self._halts = halts
        self._notes = notes
        self._on_event = on_event
        self._on_failure = on_failure
        self._passing: dict[TopicPartition, TroubleKind] = {}
        """What has been told of and is waited for."""
        self._refusals: dict[TopicPartition, Trouble] = {}
        """What the destination has refused something of these with last, since it took something."""
        self._under_way: dict[TopicPartition, Trouble | None] = {}
        """What is seen to, or taken back."""
        self._met_meanwhile: dict[TopicPartition, Trouble] = {}
        """Whoever tells of a trouble may do so only once."""
        self._awaiting: set[TopicPartition] = set()
        """Partitions that have yet to come past what they stood in front of."""
        self._settling: dict[Partition, asyncio.Event] = {}
        """Partitions of which what is on its way is waited for."""
        self._early: list[Trouble] = []
        """Met before `begin`."""
        self._machine: FlowMachine | None = None
        self._tasks: asyncio.TaskGroup
        self._on_going_on: Callable[[Trouble], None]
        self._store: Callable[[TopicPartition], Awaitable[None]]
        self._is_copied_still: Callable[[str], Awaitable[bool]]
        self._find_start: Callable[[TopicPartition], Awaitable[int]]

    def refusal(self, source: TopicPartition) -> Trouble | None:
        """What is waited for since the destination has refused records of it, or to commit them."""
        trouble = self._refusals.get(source)
        return trouble if trouble is not None and self._passing.get(source) is trouble.kind else None

    def is_misshapen(self, topic: str) -> bool:
        """Whether the topic has other partitions at the destination, and waits for that to change."""
        return self._passing.get(TopicPartition(topic, WHOLE_TOPIC)) is TroubleKind.PARTITION_MISMATCH

    def begin(
        self,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        on_going_on: Callable[[Trouble], None],
        store: Callable[[TopicPartition], Awaitable[None]],
        is_copied_still: Callable[[str], Awaitable[bool]],
        find_start: Callable[[TopicPartition], Awaitable[int]],
    ) -> None:
        """`on_going_on` is called once the machine goes on behind a trouble; `store` then has the position
        stored, as far as that can be done in time. `is_copied_still`: whether a topic that was made anew is
        to be copied as it is now. `find_start`: the oldest offset that the source has. Raises BrokerError.
        """
        self._machine, self._tasks, self._on_going_on = machine, tasks, on_going_on
        self._store, self._is_copied_still, self._find_start = store, is_copied_still, find_start
        early, self._early = self._early, []
        for trouble in early:
            self.meet(trouble)

    def meet(self, trouble: Trouble) -> None:
        """A partition, or a topic (partition -1), has run into this. Telling twice is the same as once."""
        source, machine = trouble.source, self._machine
        if machine is None:
            self._early.append(trouble)
            return
        if source in self._under_way:
            self._met_meanwhile[source] = trouble
            return
        if self._passing.get(source) is trouble.kind:
            return
        partition = machine.partitions.get(source)
        if partition is not None and partition.trouble is not None:
            return
        is_heartbeats = source.topic == HEARTBEATS_TOPIC
        policy = HEARTBEATS_POLICY if is_heartbeats else policy_for(trouble.kind, self.route.on)
        course = course_of(trouble.kind, policy, is_released=self._is_released(trouble))
        if trouble.kind not in PASSING:
            machine.halt(trouble, is_final=course is Course.LEAVE_OUT)
        if not is_heartbeats or course is Course.WAIT:
            machine.counts.troubles[trouble.kind] += 1
            self._tell_met(trouble, policy)
        match course:
            case Course.STOP_ROUTE:
                self._start(self._fail(trouble), source, trouble)
            case Course.WAIT:
                self._passing[source] = trouble.kind
            case Course.STAND_AND_TRY:
                self._passing[source] = trouble.kind
                self._start(self._stand_and_try(trouble), source, trouble)
            case Course.STAND:
                self._start(self._stand(trouble), source, trouble)
            case Course.LEAVE_OUT:
                self._start(self._go_on(trouble), source, trouble)
            case _:
                assert_never(course)

    def _tell_met(self, trouble: Trouble, policy: FailurePolicy) -> None:
        is_known = trouble.source.partition != WHOLE_TOPIC and trouble.position != NO_POSITION
        self._on_event(
            "trouble_met",
            reason=trouble.kind.value,
            policy=policy.value,
            partition=place_name(trouble.source),
            offset=trouble.position if is_known else None,
            problem=trouble.problem,
        )

    def _is_released(self, trouble: Trouble) -> bool:
        """Whether it is to go on behind this, as heartbeats always are."""
        return trouble.source.topic == HEARTBEATS_TOPIC or self._halts.is_released(trouble)

    def take_fact(self, fact: Fact) -> None:
        """What the machine tells may be a trouble, or the end of one."""
        match fact:
            case PartitionPaused():
                to, error = fact.destination, ProtocolError(fact.error)
                error = explained(error, self.route.destination, to.topic, WRITE)
                trouble = refused(fact.source, fact.offset, error, f"destination {to}")
                if trouble is not None:
                    if fact.said is not None:
                        trouble = replace(trouble, problem=f"destination: {fact.said}")
                    self._refusals[fact.source] = trouble
                    self.meet(trouble)
            case ObstacleMet():
                self.meet(fact.trouble)
            case PartitionRecovered():
                if not (fact.at_source and self.refusal(fact.source) is not None):
                    self.passed(fact.source)
                self._look_whether_passed(fact.source)

    def joined(self, sources: Iterable[TopicPartition]) -> None:
        """Partitions have been taken over: those that stood go on to stand."""
        assert self._machine is not None
        sources = set(sources)
        whole = {TopicPartition(source.topic, WHOLE_TOPIC) for source in sources}
        for source in sources | whole:
            trouble, partition = self._halts.standing(source), self._machine.partitions.get(source)
            if trouble is None:
                continue
            if trouble.kind in PASSING:  # it will be met again, should it not have passed
                if source not in self._under_way:
                    self._start(self._take_back(source), source)
            elif partition is not None and (
                trouble.position == partition.position or self.goes_on_behind(source, partition.position)
            ):
                if trouble.kind in OBSTACLES and not self._is_released(trouble):
                    self._machine.halt(trouble)  # and tried at once
                else:
                    self.meet(trouble)
            elif partition is not None and self._is_awaited(trouble, partition):
                self._awaiting.add(source)
            elif self._is_left(source, trouble) or self._is_back(trouble):
                self._start(self._take_back(source), source)
            else:
                self._look_whether_passed(source)

    def goes_on_behind(self, source: TopicPartition, position: int) -> bool:
        """Whether somebody has said to go on behind what the source lost, and the partition begins in front
        of that: its position went back with the source's log.
        """
        stood = self._halts.standing(source)
        if stood is None or stood.kind is not TroubleKind.SOURCE_TRUNCATED:
            return False
        return position < stood.position and self._halts.is_released(stood)

    def left(self, sources: Iterable[TopicPartition], *, at_once_again: bool = False) -> None:
        """Partitions have been given up: what they had met may have passed when they come back.
        `at_once_again`: they are not another's meanwhile, and what the destination refuses is waited for as
        before.
        """
        self.acknowledged()
        for source in sources:
            if not (at_once_again and self.refusal(source) is not None):
                self.passed(source)
            self._met_meanwhile.pop(source, None)
            self._awaiting.discard(source)

    def stored(self) -> None:
        """Positions have been: what partitions stood in front of may lie behind them, as it has crossed."""
        for source in self._awaiting - self._under_way.keys():
            self._awaiting.discard(source)
            self._look_whether_passed(source)  # which awaits it again while it has not

    def passed(self, source: TopicPartition) -> None:
        """What was told of a partition, or of a topic as a whole, is no more: it would be news again."""
        self._passing.pop(source, None)
        self._refusals.pop(source, None)
        self.found(source)

    def found(self, source: TopicPartition) -> None:
        """A topic is there: that another process took it for deleted is over, if it is copied here."""
        stood = self._halts.standing(source)
        if stood is not None and self._machine is not None and self._is_back(stood):
            self._start(self._take_back(source), source)

    def look_again(self) -> None:
        """Some may have been released, or what was written of those that stand may be gone. What the machine
        has not told of yet is met then.
        """
        if self._machine is None:
            return
        for partition in list(self._machine.partitions.values()):
            trouble = partition.trouble or partition.obstacle
            if trouble is None or partition.source in self._under_way:
                continue
            is_met = trouble is partition.trouble or self._passing.get(partition.source) is trouble.kind
            if self._is_released(trouble):
                self._machine.halt(trouble, is_final=True)
                self._start(self._go_on(trouble), partition.source, trouble)
            elif is_met and self._halts.standing(partition.source) is None:
                stand = self._stand_and_try if trouble.kind in OBSTACLES else self._stand
                self._start(stand(trouble), partition.source, trouble)

    def _is_awaited(self, trouble: Trouble, partition: Partition) -> bool:
        """Whether a partition has yet to come past what it stood in front of: it began before that, as after
        a process that was killed, and may be refused something else there. What is only fetched may be
        refused yet, also where its position is stored before it is sent.
        """
        is_before = min(partition.committed, partition.acknowledged) <= trouble.position
        return is_before and trouble.kind in OBSTACLES

    def _is_left(self, source: TopicPartition, trouble: Trouble) -> bool:
        """Whether the partition has been sent elsewhere since, as by a seek, past what it stood for; or gone
        on behind it by a process that was killed before the halt was taken back.
        """
        assert self._machine is not None
        partition = self._machine.partitions.get(source)
        is_free = partition is not None and partition.trouble is None and source not in self._under_way
        return is_free and (trouble.kind in _OF_A_PLACE or self._halts.is_released(trouble))

    def _is_back(self, trouble: Trouble) -> bool:
        """Whether a topic that was taken for deleted is copied again, and is the one that it was."""
        assert self._machine is not None
        if trouble.kind is not TroubleKind.TOPIC_DELETED or trouble.source in self._under_way:
            return False
        topic = trouble.source.topic
        here = [each for source, each in self._machine.partitions.items() if source.topic == topic]
        return bool(here) and not any(
            each.trouble is not None and each.trouble.kind is TroubleKind.TOPIC_RECREATED for each in here
        )

    def _look_whether_passed(self, source: TopicPartition) -> None:
        """A partition that stood in front of an obstacle may have left it behind."""
        assert self._machine is not None
        stood, partition = self._halts.standing(source), self._machine.partitions.get(source)
        if stood is None or stood.kind not in OBSTACLES or source in self._under_way:
            return
        if partition is None or partition.obstacle is not None:
            return
        if self._is_awaited(stood, partition):
            self._awaiting.add(source)
        else:
            self._start(self._take_back(source), source)

    def _has_passed(self, trouble: Trouble) -> bool:
        """An obstacle that is tried may pass while it is told of."""
        assert self._machine is not None
        partition = self._machine.partitions.get(trouble.source)
        if trouble.kind not in OBSTACLES or partition is None:
            return False
        return partition.obstacle is None or partition.obstacle.position != trouble.position

    # ---- tasks

    def _start(
        self, task: Coroutine[None, None, None], source: TopicPartition, trouble: Trouble | None = None
    ) -> None:
        if self.failure is not None:  # the route ends: what else is met is met again when it is resumed
            task.close()
            return
        self._under_way[source] = trouble
        self._tasks.create_task(self._carry_out(task, source), name=f"trouble of {source}")

    async def _carry_out(self, task: Coroutine[None, None, None], source: TopicPartition) -> None:
        try:
            await task
        finally:
            seen_to, met = self._under_way.pop(source), self._met_meanwhile.pop(source, None)
        if met is not None and self.failure is None and self._is_news(met, seen_to):
            self.meet(met)

    def _is_news(self, met: Trouble, seen_to: Trouble | None) -> bool:
        """Whether what was met while another was seen to is another, and not yet passed."""
        assert self._machine is not None
        if seen_to is not None and (met.kind, met.position) == (seen_to.kind, seen_to.position):
            return False
        partition = self._machine.partitions.get(met.source)
        if met.kind not in OBSTACLES or partition is None:
            return True
        return partition.obstacle is not None and partition.obstacle.position == met.position

    async def _fail(self, trouble: Trouble) -> None:
        await self._tell(trouble, stops_route=True)
        self.failure = trouble
        self._on_failure()

    async def _stand(self, trouble: Trouble) -> None:
        assert self._machine is not None
        await self._tell(trouble, stops_route=False)
        if trouble.kind is TroubleKind.TOPIC_RECREATED:  # it was deleted before, which has been told
            await self._take_back(TopicPartition(trouble.source.topic, WHOLE_TOPIC))
        if self._halts.is_released(trouble) and not self._has_passed(trouble):  # released as it was told
            self._machine.halt(trouble, is_final=True)
            await self._go_on(trouble)

    async def _stand_and_try(self, trouble: Trouble) -> None:
        await self._stand(trouble)
        if self._has_passed(trouble):
            await self._take_back(trouble.source)

    async def _tell(self, trouble: Trouble, *, stops_route: bool) -> None:
        """A destination that does not take it keeps nothing from standing."""
        try:
            await self._halts.tell(trouble, stops_route=stops_route)
        except BrokerError as error:
            self._on_event("halt_not_told", partition=place_name(trouble.source), error=str(error))

    async def _go_on(self, trouble: Trouble) -> None:
        """Note what is left out, for as long as it takes, and go on behind it."""
        assert self._machine is not None
        met_by = self._machine.partitions.get(trouble.source)
        if trouble.kind is TroubleKind.SOURCE_GAP:
            trouble = await self._grown(trouble)
        if trouble.source.topic != HEARTBEATS_TOPIC:
            await self._note(trouble)
        is_anew = trouble.kind is TroubleKind.TOPIC_RECREATED
        is_copied = not is_anew or await self._is_copied_still(trouble.source.topic)
        self._passing.pop(trouble.source, None)
        if trouble.kind is TroubleKind.SOURCE_TRUNCATED and met_by is not None:
            await self._settle(met_by)
            if met_by.is_released:  # it may have come back from behind that, and what it met is news
                self._under_way[trouble.source] = None
                return
        if not is_copied or self._is_given_up(trouble):
            return
        partition = self._machine.partitions.get(trouble.source)
        self._machine.go_on(trouble)
        self._on_going_on(trouble)
        await self._store(trouble.source)  # whoever is next would ask once more
        if self._is_given_up(trouble, partition):
            return
        await self._take_back(trouble.source)
        if is_anew:
            await self._take_back(TopicPartition(trouble.source.topic, WHOLE_TOPIC))

    async def _grown(self, met: Trouble) -> Trouble:
        """A gap as it is by now, as far as the source tells: it deletes on while a partition stands."""
        with suppress(BrokerError):
            start = await self._find_start(met.source)
            if start > met.resume_at:
                return gap(met.source, met.position, start)
        return met

    async def _settle(self, partition: Partition) -> None:
        """Have what was read of a log that is gone arrive, as far as that can be in time: whoever writes down
        where records went takes what comes later for the log that there is now.
        """
        self._settling[partition] = asyncio.Event()
        self.acknowledged()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_MS / 1000):
                await self._settling[partition].wait()
        del self._settling[partition]

    def acknowledged(self) -> None:
        """Something has arrived, or was given up."""
        for partition, is_settled in self._settling.items():
            if not any(lane.queue for lane in partition.lanes):
                is_settled.set()

    async def _note(self, trouble: Trouble) -> None:
        place = place_name(trouble.source)
        await self._notes.write(
            trouble, lambda error: self._on_event("skip_not_noted", partition=place, error=str(error))
        )

    def _is_given_up(self, trouble: Trouble, had: Partition | None = None) -> bool:
        """Whether the partition was given up meanwhile, and whoever has it next goes on behind the trouble.
        `had`: it went on already, and may have come back since from before that.
        """
        assert self._machine is not None
        if trouble.source.partition == WHOLE_TOPIC:
            return False
        partition = self._machine.partitions.get(trouble.source)
        if partition is None:
            return True
        return had is not None and partition is not had and partition.position == trouble.position

    async def _take_back(self, source: TopicPartition) -> None:
        if self._halts.standing(source) is None:
            return
        try:
            await self._halts.take_back(source)
        except BrokerError as error:
            self._on_event("halt_not_taken_back", partition=place_name(source), error=str(error))
