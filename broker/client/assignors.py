"""How the leader of a group hands out partitions. Pure: every assignor sees the same members and gives the
same answer.

An assignor may also hand out things that are no partitions: what it puts into `user_data` travels with
subscriptions to the leader and with assignments to the members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants, as the leader sees it;

    `owned` and `generation` tell what it holds while it rejoins.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    rack_id: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member gets."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class Assignor(Protocol):
    """A strategy under the name that all members of the group must know it by."""

    @property
    def name(self) -> str:
        """The protocol name in JoinGroup."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether members keep what they own while they rejoin, and give up only what the answer takes away
        (KIP-429).
        """
        ...

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        """What a member tells the leader beside its topics."""
        ...

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        """An assignment for every member;

        `partitions` maps each topic that exists to its number of partitions.
        """
        ...


class RangeAssignor:
    """Each topic's partitions in contiguous runs over its takers; the first ones get one more."""

    name = "range"
    cooperative = False

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        return None

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in sorted(partitions):
            takers = [member for member in _in_order(members) if topic in members[member].topics]
            if not takers:
                continue
            share, extra = divmod(partitions[topic], len(takers))
            start = 0
            for index, member in enumerate(takers):
                end = start + share + (index < extra)
                given[member] += (TopicPartition(topic, number) for number in range(start, end))
                start = end
        return _assignments(given)


class RoundRobinAssignor:
    """All partitions of all topics in order, one after the other to the next member that wants the topic."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        return None

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        ordered = _in_order(members)
        turn = 0
        for partition in _wanted(members, partitions):
            while partition.topic not in members[ordered[turn % len(ordered)]].topics:
                turn += 1
            given[ordered[turn % len(ordered)]].append(partition)
            turn += 1
        return _assignments(given)


class CooperativeStickyAssignor:
    """Balanced, moving as little as it can; what moves is first given up by its owner and handed out a
    rebalance later.
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        return None

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        wanted = _wanted(members, partitions)
        owners = _owners(members, wanted)
        shares = _Shares(members, owners)
        shares.hand_out([partition for partition in wanted if partition not in owners])
        shares.balance()
        given = {
            member: [partition for partition in held if owners.get(partition, member) == member]
            for member, held in shares.held.items()
        }
        return _assignments(given)


@dataclass(slots=True)
class _Shares:
    """Who holds what while the sticky assignor works."""

    members: Mapping[str, Subscription]
    owners: Mapping[TopicPartition, str]
    held: dict[str, list[TopicPartition]] = field(init=False)
    order: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.order = _in_order(self.members)
        self.held = {member: [] for member in self.order}
        for partition, member in sorted(self.owners.items()):
            self.held[member].append(partition)

    def hand_out(self, partitions: Sequence[TopicPartition]) -> None:
        """Each partition to the member with the least of those that want its topic."""
        for partition in partitions:
            takers = [member for member in self.order if partition.topic in self.members[member].topics]
            self.held[min(takers, key=self._load)].append(partition)

    def balance(self) -> None:
        """Move partitions from members that have most to those with two or more less, as long as there are
        such.
        """
        moved = True
        while moved:
            fullest_first = sorted(self.order, key=self._load, reverse=True)
            moved = sum(map(self._relieve, fullest_first)) > 0

    def _relieve(self, giver: str) -> bool:
        """Move one partition away from `giver`; those it never owned go first.

        False when none can improve the balance.
        """
        held = self.held[giver]
        for partition in sorted(held, key=lambda partition: self.owners.get(partition) == giver):
            takers = [member for member in self.order if partition.topic in self.members[member].topics]
            taker = min(takers, key=self._load)
            if self._load(taker) + 1 < len(held):
                held.remove(partition)
                self.held[taker].append(partition)
                return True
        return False

    def _load(self, member: str) -> int:
        return len(self.held[member])


def _in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Members by instance id, where they have one, then by member id: an order that survives restarts of
    static members.
    """
    return sorted(members, key=lambda member: (members[member].instance_id or member, member))


def _wanted(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition that some member wants, in order."""
    topics = sorted({topic for member in members.values() for topic in member.topics} & partitions.keys())
    return [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]


def _owners(
    members: Mapping[str, Subscription], wanted: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """Who rightly owns what: of several claims the one of the newest generation holds, and none if two claim
    that.
    """
    claims: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    wanted = frozenset(wanted)
    for member in _in_order(members):
        subscription = members[member]
        for partition in subscription.owned & wanted:
            if partition.topic in subscription.topics:
                claims[partition].append((subscription.generation, member))
    owners: dict[TopicPartition, str] = {}
    for partition, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        rightful = [member for generation, member in claimed if generation == newest]
        if len(rightful) == 1:
            owners[partition] = rightful[0]
    return owners


def _assignments(given: Mapping[str, Sequence[TopicPartition]]) -> Mapping[str, Assignment]:
    return {member: Assignment(partitions=tuple(sorted(held))) for member, held in given.items()}
