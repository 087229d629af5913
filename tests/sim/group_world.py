"""A simulated cluster whose clients are the members of one group; disks keep what they were told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from broker.types import TopicPartition
from tests.sim.faults import Faults
from tests.sim.machine import Machine
from tests.sim.members import SESSION_MS, Auditor, Ledger, Member
from tests.sim.scenario import Scenario
from tests.sim.world import Note, World

OFFSETS = "__consumer_offsets"
SETTLED_WITHIN_SECONDS = 60.0
STORY_SECONDS = 3.0
"""What a story asks for has happened by then."""

Story = Callable[["GroupWorld"], None]


class GroupFaults(Faults):
    """Those of members, and those of machines that lose nothing a disk was told."""

    def __init__(self, world: GroupWorld, random: Random) -> None:
        super().__init__(world, random)
        self._groups = world

    def strike(self) -> None:
        kinds = (
            self._kill,
            self._pause,
            self._cut_link,
            self._lose_answers,
            self._slow_link,
            self._reset,
            self._cut_from_zookeeper,
            self._expire,
            self._restart_in_order,
            self._elect_preferred,
        )
        if self._random.random() < 0.3:
            member = self._random.choice(self._groups.living)
            self._random.choice((self.kill_member, self.pause_member))(member)
        else:
            self._random.choice(kinds)(self._random.choice(self._world.machines))

    def kill_member(self, member: Member) -> None:
        """It ends without a word, and another one comes in its place."""
        self._world.note(member.name, "is killed")
        member.die()
        self._groups.add_member(type(member))

    def pause_member(self, member: Member) -> None:
        """It is still for longer than its session lasts, and then goes on as if nothing had happened."""
        self._world.note(member.name, "is paused")
        loop, process = self._world.loop, member.process
        loop.pause(process)
        session = SESSION_MS / 1000

        def resume() -> None:
            if process.is_paused and not process.is_dead:
                loop.resume(process)

        self._world.later((0.1, 2 * session), resume)


class GroupWorld(World):
    """Members of `kinds` share the partitions of one topic while `story`, or drawn faults, happen to them."""

    faults: GroupFaults

    def __init__(
        self,
        seed: int,
        kinds: Sequence[type[Member]],
        *,
        story: Story | None = None,
        note: Note | None = None,
    ) -> None:
        scenario = replace(
            Scenario.drawn(Random(f"group {seed}")),
            nodes=3,
            partitions=4,
            replication_factor=3,
            min_insync_replicas=1,
            flush_messages=2**63 - 1,
            producers=0,
            consumers=0,
            desks=0,
        )
        super().__init__(seed, scenario, note=note)
        self.ledger = Ledger()
        self.members: list[Member] = []
        self.auditor = Auditor(self, "auditor", self.ledger)
        for kind in kinds:
            self._new_member(kind)
        self.faults = GroupFaults(self, Random(f"faults {seed}"))
        self._story = story

    @property
    def _workers(self) -> list[Member]:  # type: ignore[override]
        return [*self.members, self.auditor]

    @property
    def living(self) -> list[Member]:
        """Members that have not left and were not killed."""
        return [each for each in self.members if not each.process.is_dead and not each.is_leaving]

    @property
    def coordinator(self) -> Machine | None:
        """The machine whose node leads the group's partition."""
        wanted = TopicPartition(OFFSETS, 0)
        for machine in self.machines:
            replica = machine.replica(wanted)
            if replica is not None and replica.machine.is_leader:
                return machine
        return None

    def add_member(self, kind: type[Member]) -> Member:
        """One more member, at work from now on."""
        member = self._new_member(kind)
        member.start(self.partitions)
        return member

    def _new_member(self, kind: type[Member]) -> Member:
        member = kind(self, f"member-{len(self.members) + 1}", self.ledger)
        self.members.append(member)
        return member

    async def _trouble(self) -> None:
        if self._story is None:
            await super()._trouble()
        else:
            await self._until(self._is_well, SETTLED_WITHIN_SECONDS, self._what_is_wrong)
            self._story(self)
            await self._rest(STORY_SECONDS)

    async def _look_back(self) -> None:
        self.auditor.audit()
        await self._until(lambda: self.auditor.is_done, SETTLED_WITHIN_SECONDS, "the offsets cannot be read")

    def _what_is_wrong(self) -> str:
        if self.is_over:
            return super()._what_is_wrong()  # the members have gone home
        held = sorted(number for member in self.living for number in member.has)
        everything = list(range(self.scenario.partitions))
        if held != everything:
            return f"members have {held}"
        if self.ledger.acknowledged.keys() != set(everything):
            return f"offsets of {sorted(self.ledger.acknowledged)} alone are stored"
        return super()._what_is_wrong()
