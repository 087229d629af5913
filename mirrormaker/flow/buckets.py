"""Work is shared out in buckets: a partition belongs to one as long as their number stays. Pure.

The assignor hands whole buckets to the members of the route's group, by the bytes a second that each is
(`bucket_rates`, `balance`). It is cooperative (KIP-429): members keep what they own while they rejoin; a
bucket that is to move is first given up by its owner, and handed out in the rebalance after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from zlib import crc32

from broker.client.assignors import Assignment, Subscription
from broker.types import TopicPartition
from mirrormaker.flow.balance import share_out
from mirrormaker.flow.bucket_rates import (
    IDLE_BYTES_PER_SECOND,
    GroupLoad,
    Rates,
    decode_rates,
    encode_load,
    encode_rates,
)


def bucket_of(partition: TopicPartition, buckets: int) -> int:
    """The bucket of a partition: the same everywhere and for ever; neighbours lie in different ones."""
    return (crc32(partition.topic.encode()) + partition.partition) % buckets


class BucketAssignor:
    """Shares `buckets` buckets out by the work that they are; as few as possible move."""

    name = "mirror-buckets"
    cooperative = True

    def __init__(self, buckets: int, own_rates: Callable[[], Rates] = dict) -> None:
        """`own_rates`: what this member has measured of the buckets that it has."""
        self.known: Rates = {}
        """What the group was told last; counts for buckets whose owner is gone."""
        self._buckets = buckets
        self._own_rates = own_rates

    def user_data(self, topics: Collection[str], owned: Collection[TopicPartition]) -> bytes | None:
        """The rates of the buckets that this member has."""
        return encode_rates(self._own_rates())

    def assign(
        self, members: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        """Assignments for all members; partitions of topics that their owner does not know are left out."""
        filled = self._fill(partitions)
        owners = self._owners(members, filled)
        self.known = self._rates(members, owners, filled)
        weights = {
            bucket: self.known.get(bucket, 0) + len(held) * IDLE_BYTES_PER_SECOND
            for bucket, held in filled.items()
        }
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for bucket, member in share_out(weights, owners, sorted(members)).items():
            if owners.get(bucket, member) == member:
                known = members[member].topics
                given[member] += (partition for partition in filled[bucket] if partition.topic in known)
        told = encode_load(GroupLoad(rates=self.known, members=len(members)))
        return {
            member: Assignment(partitions=tuple(sorted(held)), user_data=told)
            for member, held in given.items()
        }

    def _rates(
        self,
        members: Mapping[str, Subscription],
        owners: Mapping[int, str | None],
        filled: Collection[int],
    ) -> dict[int, int]:
        """Of each bucket what its owner tells, else what was known before."""
        told = {member: decode_rates(subscription.user_data) for member, subscription in members.items()}
        rates = {bucket: rate for bucket, rate in self.known.items() if bucket in filled}
        for bucket, owner in owners.items():
            if owner is not None and bucket in told[owner]:
                rates[bucket] = told[owner][bucket]
        return rates

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
