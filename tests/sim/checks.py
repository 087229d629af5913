"""What must hold after every step of a simulated cluster.

- One leader per epoch. - What a leader showed as committed (below its high watermark) never changes: every
other leader and follower has the same batches there, whoever leads next has all of it, and an in-sync set
always has a member with all of it. - A leader's high watermark never goes back. - Batches of an idempotent
producer are there once, in order, without a gap. - What a producer was told to be stored is committed.

The batches are told apart by offsets, leader epoch and CRC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.znodes import PartitionStateZnode
from broker.errors import ProtocolError
from broker.records.batch import BatchHeader, iterate_batches
from broker.replication.partition import Role
from broker.replication.replica import Replica
from broker.types import BrokerId, TopicPartition
from tests.sim.loop import SimulationError

if TYPE_CHECKING:
    from tests.sim.machine import Machine

READ_MAX = 1 << 24


class ViolationError(SimulationError):
    """Something that must hold does not."""


class Batch(NamedTuple):
    """One batch, as far as two of them can be told apart."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> Batch:
        return cls(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


class _Seen(NamedTuple):
    """What was last seen of a replica."""

    role: Role
    leader_epoch: int
    high_watermark: int
    log_end_offset: int


@dataclass(slots=True)
class Committed:
    """All that was committed of one partition."""

    batches: dict[int, Batch] = field(default_factory=dict)
    """By base offset."""
    end: int = 0
    leader_epoch: int = -1
    """The newest that anybody led in."""
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id, its epoch and last sequence number."""


class Checks:
    """Owned by a world, which calls `after_step` with every machine that did anything."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Committed] = {}
        self.batches_seen = 0
        self._leaders: dict[tuple[TopicPartition, int], BrokerId] = {}
        self._seen: dict[Replica, _Seen] = {}
        self._doubtful: set[tuple[BrokerId, TopicPartition]] = set()
        """Replicas in sync whose machine lost its page cache since, or before its leader heard of it."""
        self._lost: set[BrokerId] = set()
        """Whose machine lost its page cache, and which have not registered since."""
        self._isrs: dict[TopicPartition, tuple[BrokerId, ...]] = {}

    def committed(self, partition: TopicPartition) -> Committed:
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = Committed()
        return found

    # What happens

    def after_step(self, machine: Machine) -> None:
        """Look at what the step may have changed."""
        seen = self._seen
        for replica in machine.replicas:
            state = replica.machine
            before = seen.get(replica)
            if (
                before is not None
                and state.high_watermark == before.high_watermark
                and state.log_end_offset == before.log_end_offset
                and state.assignment.leader_epoch == before.leader_epoch
                and state.role is before.role
            ):
                continue
            now = _Seen(state.role, state.assignment.leader_epoch, state.high_watermark, state.log_end_offset)
            seen[replica] = now
            self._changed(machine, replica, before, now)

    def acknowledged(self, partition: TopicPartition, offset: int, crc: int) -> None:
        """A producer was told that a batch is stored and replicated."""
        batch = self.committed(partition).batches.get(offset)
        if batch is None or batch.crc != crc:
            raise ViolationError(
                f"{partition}: a batch was acknowledged at {offset}, but {batch} is committed there, "
                f"of all up to {self.committed(partition).end}"
            )

    def consumed(self, partition: TopicPartition, position: int, header: BatchHeader) -> None:
        """A consumer read a batch."""
        batch = Batch.of(header)
        if batch.base_offset != position:
            raise ViolationError(f"{partition}: {batch} was read at {position}")
        if (known := self.committed(partition).batches.get(position)) != batch:
            raise ViolationError(f"{partition}: {batch} was read where {known} is committed")

    def in_sync(self, partition: TopicPartition, state: PartitionStateZnode) -> None:
        """The in-sync set was written."""
        self._isrs[partition] = state.isr
        for broker, about in list(self._doubtful):
            if about == partition and broker not in state.isr:
                self._doubtful.discard((broker, about))
        self._doubtful.update((broker, partition) for broker in state.isr if broker in self._lost)
        self._some_replica_has_all(partition)

    def registered(self, broker: BrokerId) -> None:
        """The broker has left, and kept others from writing, what in-sync sets it may not be in."""
        self._lost.discard(broker)

    def gone(self, machine: Machine) -> None:
        """The machine's process ends now."""
        for replica in machine.replicas:
            self._seen.pop(replica, None)

    # Machines that lose their page cache

    def may_lose(self, machine: Machine) -> bool:
        """Whether the cluster promises to survive it that this machine loses what it did not flush: another
        one in sync must have kept all that it has, whatever else is wrong with it.
        """
        return not self._doubtful and all(isr != (machine.id,) for isr in self._isrs.values())

    def machine_lost(self, machine: Machine, *, flushes: bool) -> None:
        """It is about to lose what it did not flush."""
        if flushes:
            return
        self._lost.add(machine.id)
        for partition, isr in self._isrs.items():
            if machine.id in isr:
                self._doubtful.add((machine.id, partition))

    # Checks

    def _changed(self, machine: Machine, replica: Replica, before: _Seen | None, now: _Seen) -> None:
        partition = replica.topic_partition
        committed = self.committed(partition)
        if now.role is Role.LEADER:
            self._leads(machine, replica, committed, now)
            if (
                before is not None
                and before.role is Role.LEADER
                and now.high_watermark < before.high_watermark
            ):
                raise ViolationError(
                    f"{partition}: the high watermark went back from {before.high_watermark} to "
                    f"{now.high_watermark} on {machine.name}"
                )
        start = 0 if before is None else min(before.high_watermark, now.high_watermark)
        if now.high_watermark > start and now.role is not Role.OFFLINE:
            self._shows(machine, replica, committed, start, now)

    def _leads(self, machine: Machine, replica: Replica, committed: Committed, now: _Seen) -> None:
        partition, epoch = replica.topic_partition, now.leader_epoch
        leader = self._leaders.setdefault((partition, epoch), machine.id)
        if leader != machine.id:
            raise ViolationError(f"{partition}: brokers {leader} and {machine.id} lead in epoch {epoch}")
        if epoch <= committed.leader_epoch:
            return
        committed.leader_epoch = epoch
        self._has_all(machine.name, replica, committed)

    def _has_all(self, who: str, replica: Replica, committed: Committed) -> None:
        partition = replica.topic_partition
        if replica.log.log_end_offset < committed.end:
            raise ViolationError(
                f"{partition}: {who} leads in epoch {committed.leader_epoch} with a log up to "
                f"{replica.log.log_end_offset}; {committed.end} is committed"
            )
        for batch in _batches(replica, 0, committed.end):
            if committed.batches.get(batch.base_offset) != batch:
                known = committed.batches.get(batch.base_offset)
                raise ViolationError(f"{partition}: {who} leads with {batch} where {known} is committed")

    def _shows(
        self, machine: Machine, replica: Replica, committed: Committed, start: int, now: _Seen
    ) -> None:
        """A replica takes what is below its high watermark for committed."""
        partition = replica.topic_partition
        for header in _headers(replica, start, now.high_watermark):
            batch = Batch.of(header)
            if batch.base_offset < committed.end:
                known = committed.batches.get(batch.base_offset)
                if known != batch:
                    raise ViolationError(
                        f"{partition}: {machine.name} shows {batch} where {known} is committed "
                        f"({now.role.value}, epoch {now.leader_epoch})"
                    )
                continue
            if now.role is not Role.LEADER:
                raise ViolationError(
                    f"{partition}: {machine.name} takes {batch} for committed, its leader does not"
                )
            self._in_sequence(partition, committed, header)
            committed.batches[batch.base_offset] = batch
            committed.end = batch.last_offset + 1
            self.batches_seen += 1

    def _in_sequence(self, partition: TopicPartition, committed: Committed, header: BatchHeader) -> None:
        if header.producer_id < 0 or header.is_control or header.base_sequence < 0:
            return
        epoch, last = committed.sequences.get(header.producer_id, (-1, -1))
        if header.producer_epoch < epoch or (
            epoch >= 0 and header.base_sequence != (last + 1 if header.producer_epoch == epoch else 0)
        ):
            raise ViolationError(
                f"{partition}: producer {header.producer_id} has sequence {header.base_sequence} of epoch "
                f"{header.producer_epoch} at {header.base_offset}, after {last} of {epoch}"
            )
        committed.sequences[header.producer_id] = header.producer_epoch, header.last_sequence

    def _some_replica_has_all(self, partition: TopicPartition) -> None:
        isr = self._isrs[partition]
        if isr and all((broker, partition) in self._doubtful for broker in isr):
            raise ViolationError(f"{partition}: every replica in sync ({isr}) may have lost records")

    def final(self, machines: list[Machine], partitions: Iterable[TopicPartition]) -> None:
        """Nothing is under way any more: all replicas are the same."""
        for partition in partitions:
            committed = self.committed(partition)
            leader = self._leaders[partition, committed.leader_epoch]
            hosted = {machine: machine.replica(partition) for machine in machines}
            assigned = next(
                replica.machine.assignment.replicas
                for machine, replica in hosted.items()
                if replica is not None and machine.id == leader
            )
            for machine, replica in hosted.items():
                if replica is None or machine.id not in assigned:
                    continue
                self._has_all(machine.name, replica, committed)
                if replica.log.log_end_offset != committed.end:
                    raise ViolationError(
                        f"{partition}: {machine.name} ends at {replica.log.log_end_offset}, "
                        f"committed is {committed.end}"
                    )


def _headers(replica: Replica, start: int, end: int) -> list[BatchHeader]:
    if end <= start:
        return []
    headers: list[BatchHeader] = []
    while start < end:
        try:
            found = replica.read(start, max_bytes=READ_MAX, up_to=end, min_one_batch=True)
        except ProtocolError as error:
            raise ViolationError(f"{replica.topic_partition}: {start} cannot be read: {error}") from error
        if found is None:
            raise ViolationError(f"{replica.topic_partition}: nothing at {start}, below {end}")
        headers += [header for _, header in iterate_batches(found.read())]
        start = headers[-1].next_offset
    return headers


def _batches(replica: Replica, start: int, end: int) -> list[Batch]:
    return [Batch.of(header) for header in _headers(replica, start, end)]
