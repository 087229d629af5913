"""Work is shared out in buckets: a partition belongs to one as long as their number stays. Pure.

The assignor hands whole buckets to the members of the route's group. It is cooperative (KIP-429): members
keep what they own while they rejoin; a bucket that is to move is first given up by its owner, and handed out
in the rebalance after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

from broker.client.assignors import Assignment, Subscription
from broker.types import TopicPartition


def bucket_of(partition: TopicPartition, buckets: int) -> int:
    """The bucket of a partition: the same everywhere and for ever; neighbours lie in different ones."""
    return (crc32(partition.topic.encode()) + partition.partition) % buckets


class BucketAssignor:
    """Shares `buckets` buckets out by the number of partitions in them; as few as possible move."""

    name = "mirror-buckets"
    cooperative = True

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        """Owned partitions travel in the subscription itself; there is nothing to add."""
        return None

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        """Assignments for all members; partitions of topics that their owner does not know are left out."""
        filled = self._fill(partitions)
        owners = self._owners(members, filled)
        target = _share_out(filled, owners, sorted(members))
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for bucket, member in target.items():
            if owners.get(bucket, member) == member:
                known = members[member].topics
                given[member] += (partition for partition in filled[bucket] if partition.topic in known)
        return {member: Assignment(partitions=tuple(sorted(held))) for member, held in given.items()}

    def _fill(self, partitions: Mapping[str, int]) -> dict[int, list[TopicPartition]]:
        """Every partition in its bucket; buckets that would be empty are left out."""
        filled: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, count in sorted(partitions.items()):
            for number in range(count):
                partition = TopicPartition(topic, number)
                filled[bucket_of(partition, self._buckets)].append(partition)
        return filled

    def _owners(self, members: Mapping[str, Subscription], filled: Collection[int]) -> dict[int, str | None]:
        """Who has which bucket: the newest generation counts; None when several have a part of it."""
        claims: dict[int, dict[str, int]] = defaultdict(dict)
        for member, subscription in members.items():
            for partition in subscription.owned:
                claims[bucket_of(partition, self._buckets)][member] = subscription.generation
        owners: dict[int, str | None] = {}
        for bucket, generations in claims.items():
            newest = max(generations.values())
            rightful = [member for member, generation in generations.items() if generation == newest]
            if bucket in filled:
                owners[bucket] = rightful[0] if len(rightful) == 1 else None
        return owners


def _share_out(
    filled: Mapping[int, Sequence[TopicPartition]], owners: Mapping[int, str | None], members: Sequence[str]
) -> dict[int, str]:
    """Bucket to member: as owned, the rest to whoever has least, then moved while that evens the load."""
    target = {bucket: owner for bucket, owner in owners.items() if owner is not None}
    load = dict.fromkeys(members, 0)
    for bucket, member in target.items():
        load[member] += len(filled[bucket])
    for bucket in sorted(filled.keys() - target.keys(), key=lambda bucket: (-len(filled[bucket]), bucket)):
        target[bucket] = least = min(members, key=lambda member: load[member])
        load[least] += len(filled[bucket])
    while (bucket_to_move := _find_move(filled, target, load)) is not None:
        bucket, taker = bucket_to_move
        load[target[bucket]] -= len(filled[bucket])
        load[taker] += len(filled[bucket])
        target[bucket] = taker
    return target


def _find_move(
    filled: Mapping[int, Sequence[TopicPartition]], target: Mapping[int, str], load: Mapping[str, int]
) -> tuple[int, str] | None:
    """The largest bucket whose move from the most to the least loaded member evens the load."""
    giver, taker = max(load, key=lambda member: load[member]), min(load, key=lambda member: load[member])
    difference = load[giver] - load[taker]
    movable = [
        (len(filled[bucket]), bucket)
        for bucket, member in target.items()
        if member == giver and len(filled[bucket]) < difference
    ]
    return (max(movable)[1], taker) if movable else None
