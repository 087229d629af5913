"""Whatever becomes of a leader's writes: everybody whom ZooKeeper calls in sync has what was committed.

The leader's machine runs against a model of the state znode, of a controller that changes the state too and
whose orders come late, and of followers whose logs are prefixes of the leader's. Writes may succeed, fail, be
refused, take effect without anybody being told, or take effect long after they were given up.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.errors import ProtocolError
from broker.replication.follower_progress import LagBounds
from broker.replication.partition import Assignment, IsrChange, Partition
from broker.types import BrokerId, LeaderEpoch, TopicPartition

LEADER, *FOLLOWERS = REPLICAS = tuple(map(BrokerId, (1, 2, 3)))
BOUNDS = LagBounds(time_ms=100)


@dataclass(slots=True)
class Stored:
    """The state znode."""

    isr: tuple[BrokerId, ...]
    leader_epoch: int = 0
    version: int = 0

    def write(self, change: IsrChange) -> bool:
        if change.partition_epoch != self.version:
            return False
        self.isr, self.version = change.isr, self.version + 1
        return True

    def order(self) -> Assignment:
        return Assignment(
            leader=LEADER,
            leader_epoch=LeaderEpoch(self.leader_epoch),
            isr=self.isr,
            replicas=REPLICAS,
            partition_epoch=self.version,
        )


class LeaderAmongWrites(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.stored = Stored(isr=REPLICAS)
        self.machine = Partition(TopicPartition("t", 0), LEADER, log_end_offset=0)
        self.ends = dict.fromkeys(FOLLOWERS, 0)
        self.fetching: dict[BrokerId, int] = {}
        """Where the leader's log ended when a follower fetched in its epoch."""
        self.orders: list[Assignment] = []
        self.late: list[IsrChange] = []
        self.high_watermark = 0
        self.machine.lead(self.stored.order(), now_ms=0)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.machine.appended(self.machine.log_end_offset + count)

    @rule(milliseconds=st.sampled_from([1, 60, 150]))
    def time_goes_by(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.machine.give_up_waiting(BOUNDS, now_ms=self.now_ms)

    @rule(follower=st.sampled_from(FOLLOWERS))
    def fetch(self, follower: BrokerId) -> None:
        self.machine.fetched(follower, self.ends[follower], broker_epoch=1, now_ms=self.now_ms)
        self.fetching[follower] = self.machine.log_end_offset

    @rule(follower=st.sampled_from(FOLLOWERS), count=st.integers(1, 4))
    def receive(self, follower: BrokerId, count: int) -> None:
        end = self.ends[follower]
        self.ends[follower] = max(end, min(end + count, self.fetching.get(follower, 0)))

    @rule(outcome=st.sampled_from(["told", "untold", "lost", "late"]))
    def write(self, outcome: str) -> None:
        machine = self.machine
        change = machine.propose(
            joining=machine.candidates(BOUNDS),
            leaving=machine.laggards(BOUNDS, now_ms=self.now_ms),
            bounds=BOUNDS,
        )
        if change is None:
            return
        match outcome:
            case "told":
                self._told(change, is_done=self.stored.write(change))
            case "untold":
                self.stored.write(change)
            case "late":
                self.late.append(change)

    def _told(self, change: IsrChange, *, is_done: bool) -> None:
        """What the driver does: where the write was refused, it reads what there is."""
        machine, stored = self.machine, self.stored
        if is_done:
            machine.isr_written(change.isr, change.partition_epoch + 1, change.leader_epoch)
        elif stored.leader_epoch == change.leader_epoch:
            machine.isr_written(stored.isr, stored.version, change.leader_epoch)
        else:
            machine.isr_superseded(change)

    @precondition(lambda self: self.late)
    @rule()
    def late_write_arrives(self) -> None:
        self.stored.write(self.late.pop(0))

    @rule(left=st.sets(st.sampled_from(FOLLOWERS)), is_new_epoch=st.booleans())
    def controller_writes(self, left: set[BrokerId], is_new_epoch: bool) -> None:
        stored = self.stored
        if is_new_epoch:
            stored.leader_epoch += 1
            stored.isr = tuple(replica for replica in stored.isr if replica not in left)
        stored.version += 1
        self.orders.append(stored.order())

    @precondition(lambda self: self.orders)
    @rule()
    def order_comes(self) -> None:
        with suppress(ProtocolError):  # it is older than what this leader has written
            self.machine.lead(self.orders.pop(), now_ms=self.now_ms)
        self.orders.clear()

    @invariant()
    def everybody_in_sync_has_what_is_committed(self) -> None:
        committed = self.machine.high_watermark
        assert self.high_watermark <= committed <= self.machine.log_end_offset
        self.high_watermark = committed
        for follower in self.stored.isr:
            assert follower == LEADER or self.ends[follower] >= committed


LeaderAmongWrites.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLeaderAmongWrites = LeaderAmongWrites.TestCase
