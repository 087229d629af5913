"""What a crash may do to records on their way: at least once, at most once, exactly once.

A copier has one of these; it has a say in the machine (`hooks`), in where partitions start, and in how they
are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from broker.errors import BrokerError
from broker.types import TopicId, TopicPartition
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.hooks import (
    Admission,
    Delivery,
    Remedies,
    TopicOrigins,
)
from mirrormaker.flow.kept_topic import BegunAnew
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.positions import Place
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.flow.trouble import Trouble
from mirrormaker.flow.withdrawal import Withdrawal
from mirrormaker.topology.model import Start


class AtLeast(NamedTuple):
    """A partition goes on there, unless its group is further."""

    place: Place


KnownStart = Place | AtLeast | Literal[Start.EARLIEST]
"""Where a partition goes on; the earliest: it is another topic than the one that was copied."""


class Kept(NamedTuple):
    """What the group stores of a partition."""

    position: int
    note: str = ""
    """See `lane_note`."""
    lanes: LanePositions = ()
    """Where each lane goes on by that; none: at the position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """What the machine is to ask it, instead of its own rules."""

    admissions: tuple[Admission, ...] = ()
    delivery: Delivery
    remedies: Remedies
    obtain_identity: Callable[[ProducerKey], Awaitable[ProducerIdentity]] | None = None
    """Where producer ids come from; None: any will do."""
    origins: TopicOrigins | None = None
    """Instead of the route's own."""
    on_copied: Callable[[Copied], None] | None = None
    """Instead of the route's books."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """What a copier does for its delivery."""

    on_lost: Callable[[LostBucket], None]
    """Forget the partitions of a bucket at once, and take it over again."""
    on_not_taken: Callable[[TopicPartition, BrokerError], None]
    """A partition that was to be taken over is not: this is why."""
    on_progress: Callable[[], None]
    """Look at the machine again: it may fetch or send more."""
    on_waiting: Callable[[], None]
    """Commit positions to the group soon."""
    on_fact: Callable[[Fact], None]
    """What keeps transactions from being committed, or what at most once may have lost."""
    find_refusal: Callable[[TopicPartition], Trouble | None]
    """What a partition waits for since the destination has refused something of it."""
    on_begun_anew: BegunAnew
    """The destination lost what the delivery keeps there."""


class DeliveryMode(Protocol):
    """See the module. Owned by the copier's event loop."""

    @property
    def say(self) -> Say: ...

    def begin(
        self,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        topic_id: Callable[[TopicPartition], TopicId],
    ) -> None:
        """The machine is there, nothing has been assigned to it. `tasks`: for what it does
        meanwhile. `topic_id`: of the topic that is copied."""
        ...

    async def take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        """Make sure that nobody else writes what is copied of these any more, and find where they stand: None
        where that is not known here. Those that cannot be taken over now are left out; the rest of each
        assignment but its positions counts. Asked for one call after the other, of partitions that are not
        at work.
        """
        ...

    def joined(self, sources: Collection[TopicPartition]) -> None:
        """They have been assigned to the machine."""
        ...

    async def settle(self, sources: Collection[TopicPartition], timeout_ms: float) -> None:
        """These are about to be given up, and everything sent of them is answered: have it count."""
        ...

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        """The machine forgets them now."""
        ...

    def acknowledged(self) -> None:
        """The destination has answered something."""
        ...

    def keep(self, source: TopicPartition, position: int, reached: LanePositions) -> Kept | None:
        """What is stored of it now, at `position` or where it has come since; None: nothing is any more.
        `reached`: what the destination had when that was decided, by lane; it is written down as far.
        """
        ...

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        """These have been stored."""
        ...

    def unnoted(self) -> Mapping[TopicPartition, int]:
        """Positions that are to be stored once more, as their notes have become others."""
        ...


class GroupDelivery:
    """What those modes have in common whose positions are those of the group: the rest goes by itself."""

    _machine: FlowMachine

    def __init__(self, withdrawal: Withdrawal | None = None) -> None:
        """`withdrawal`: of what the destination says from when the route was exactly once."""
        self._withdrawal = withdrawal

    def begin(
        self,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        topic_id: Callable[[TopicPartition], TopicId],
    ) -> None:
        """See `DeliveryMode`; so for the others."""
        self._machine = machine
        if self._withdrawal is not None:
            self._withdrawal.begin(machine, tasks, topic_id)

    async def take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        return {assignment.source: None for assignment in partitions}

    def joined(self, sources: Collection[TopicPartition]) -> None:
        if self._withdrawal is not None:
            self._withdrawal.joined(sources)

    async def settle(self, sources: Collection[TopicPartition], timeout_ms: float) -> None:
        pass

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        pass

    def acknowledged(self) -> None:
        pass

    def keep(self, source: TopicPartition, position: int, reached: LanePositions) -> Kept | None:
        return Kept(position)

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        pass

    def unnoted(self) -> Mapping[TopicPartition, int]:
        return {}
