"""What a copier needs of the group in which the processes of its route agree on who copies what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.client.group_offsets import OffsetAndMetadata
from broker.types import TopicPartition
from mirrormaker.flow.group_positions import StartingPoint

Points = Mapping[TopicPartition, StartingPoint]


class SourceMembership(Protocol):
    """A member of the group, such as `GroupMember`."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process is to copy."""
        ...

    @property
    def assignment_user_data(self) -> bytes | None:
        """What was told along with them."""
        ...

    @property
    def generation(self) -> int:
        """-1 while this process takes part in none."""
        ...

    @property
    def problem(self) -> str | None:
        """Why this process takes part in none, while it keeps trying to."""
        ...

    @property
    def is_in_doubt(self) -> bool:
        """Whether the partitions may be another's by now."""
        ...

    async def run(self) -> None:
        """Be a member until `close`. Raises BrokerError when that cannot go on."""
        ...

    async def close(self, *, for_good: bool = False) -> None:
        """Give up the partitions, leave, and return when `run` has ended."""
        ...

    def subscribe(self, subscription: frozenset[str]) -> None:
        """Take part in these topics."""
        ...

    def look_every(self, interval_ms: int) -> None:
        """Look for new partitions so often."""
        ...

    def request_rejoin(self) -> None:
        """Have the work shared out anew."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions. Raises BrokerError: they may be another's by now."""
        ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored; partitions without are left out. Raises BrokerError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOwner:
    """Who copies what a member is given, step by step."""

    prepare: Callable[[Collection[TopicPartition]], Awaitable[Points]]
    """Where to start these partitions; those that do not tell are left out. Raises BrokerError."""
    begin: Callable[[Collection[TopicPartition], Points], None]
    """Copy them from there."""
    give_up: Callable[[Collection[TopicPartition]], Awaitable[None]]
    """Finish what is in flight, store positions, and forget the partitions."""
    lose: Callable[[Collection[TopicPartition]], None]
    """Forget the partitions: they may be another's already."""
    look_again: Callable[[], None]
    """What was held back may go on."""
    count: Callable[[int], None]
    """So many processes take part."""
