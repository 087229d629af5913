"""A member of a consumer group, whichever protocol the group's settings are for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from broker.client.assignors import Assignor, RangeAssignor
from broker.client.cluster import Cluster
from broker.client.epoch_member import EpochMember
from broker.client.group import GroupMember
from broker.client.group_offsets import Membership, OffsetAndMetadata
from broker.client.group_settings import AnyGroupSettings, ConsumerGroupSettings
from broker.client.subscription import PartitionsCallback, Subscription
from broker.types import TopicPartition


class Member(Protocol):
    """What `GroupMember` and `EpochMember` have in common; each says what its methods do."""

    @property
    def group_id(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int:
        """The generation, or the member's epoch; -1 while it takes part in none."""
        ...

    @property
    def membership(self) -> Membership:
        """On whose behalf a transaction commits this member's positions."""
        ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...

    def subscribe(self, subscription: Subscription) -> None: ...

    def stand_aside(self) -> None: ...

    def come_back(self) -> None: ...

    async def settled(self) -> None: ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...


def check_assignors(group: AnyGroupSettings | None, assignors: Sequence[Assignor] | None) -> None:
    """Raises ValueError where a group is to be handed out by both its coordinator and its members."""
    if isinstance(group, ConsumerGroupSettings) and assignors is not None:
        raise ValueError(
            f"group {group.group_id}: with the consumer protocol it is the coordinator that assigns, "
            "by its own assignors"
        )


def new_member(
    cluster: Cluster,
    group: AnyGroupSettings,
    *,
    subscription: Subscription,
    assignors: Sequence[Assignor] | None,
    on_assigned: PartitionsCallback,
    on_revoked: PartitionsCallback,
    on_lost: PartitionsCallback,
) -> Member:
    """A member that is yet to run.

    Raises ValueError as `check_assignors` and `SubscriptionPattern.chooser`.
    """
    check_assignors(group, assignors)
    if isinstance(group, ConsumerGroupSettings):
        return EpochMember(
            cluster,
            group,
            subscription=subscription,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
    return GroupMember(
        cluster,
        group,
        subscription=subscription,
        assignors=(RangeAssignor(),) if assignors is None else assignors,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        on_lost=on_lost,
    )
