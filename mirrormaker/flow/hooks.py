"""Where others have a say in the copy machine. Pure.

Each is asked at one place and has today's behaviour as its default; what is left at its default is not
called at all, or once per answer. They are stepped with the machine, on its event loop: no await, no clock.

- `Admission`: may this be fetched, may this be sent now? Limits of bandwidth, priorities, pauses, and
  transactions that are not open are admissions; there may be several, and all must agree.
- `Pace`: whose turn is it to send, where bandwidth is limited?
- `Transit`: what becomes of the bytes of an answer: as they are, decoded and changed, spread over lanes, or
  dropped.
- `TopicOrigins`: where batches of a topic have been, and so under whose producer id they go on, if they do.
- `Remedies`: what is done about an error of the destination.
- `Delivery`: which source position may be stored now.
- `on_copied`: what arrived where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from broker.errors import ErrorCode
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import FetchedPartition
from mirrormaker.flow.intake import Intake, IntakeConfig, Origins
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.remedies import Remedy, remedy_for
from mirrormaker.flow.room import Kind, Room


class Admission(Protocol):
    """May this be fetched, may this be sent now? Asked of what the machine itself would do at once."""

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        """How much of `wanted` bytes may be asked for now; 0: the partition is left out of the fetch."""
        ...

    def fetched(self, size: int, now_ms: int) -> None:
        """So many bytes came in one answer."""
        ...

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        """Whether the chunk may go now. If all admissions agree it is sent at once; a lane that is refused
        is asked for again at the next `ready`.
        """
        ...

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When it may agree to what it refused, though nothing else happens; None: it need not be asked."""
        ...


class Pace(Protocol):
    """Whose turn is it to send? Asked once all admissions agree; unlike them it says by itself who may go
    on.
    """

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        """Whether the chunk goes now: then it is sent at once."""
        ...

    def take_admitted(self, now_ms: int) -> list[Lane]:
        """Lanes that were refused and may go now: they are asked for again."""
        ...

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When there may be some, though nothing else happens."""
        ...

    def room(self, partitions: Iterable[Partition], fetchers: int, now_ms: int) -> Room:
        """How much one of so many fetches at a time may bring, given what all `partitions` have buffered."""
        ...

    def kind(self, partition: Partition, now_ms: int) -> Kind:
        """Which part of the room a partition takes."""
        ...


class Transit(Protocol):
    """What becomes of the bytes of an answer."""

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        """Cut the answer for a fetch at `partition.position` into chunks, in source order for each lane.

        A chunk names its lane (`Chunk.lane`) and origin (`Chunk.origin`). It must hold no record below
        `partition.lanes[chunk.lane].position`: the lane has those. Chunks that share `frame` hold its memory;
        ones with bytes of their own bring a frame of their own. `partition` is not to be changed.
        """
        ...


class TopicOrigins(Protocol):
    """Where batches have been before they came to the source."""

    def of(self, partition: Partition) -> Origins:
        """Asked of each batch of the source partition. When it has to be found out where one has been, the
        partition waits for `FlowMachine.take_origins`.
        """
        ...


class Remedies(Protocol):
    """What is done about the error of the first chunk of a lane that is not acknowledged."""

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """All in flight of the lane is answered, `lane.attempts` counts this failure already."""
        ...


class Delivery(Protocol):
    """Which source position may be stored now."""

    def position(self, partition: Partition) -> int:
        """Not below `partition.committed`, unless the partition went back."""
        ...


class Passage:
    """Batches pass as they are wherever the format allows it, in the one lane of their partition."""

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        """See `Transit`."""
        return take_in(answer.records, partition.position, config, frame, answer.aborted, partition.floors)


class KafkaRemedies:
    """What the codes mean in Kafka's protocol."""

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """See `Remedies`."""
        return remedy_for(code, several_batches=chunk.batches > 1, failures=lane.attempts)


class DeliveryAtOnce:
    """What the destination has acknowledged counts."""

    def position(self, partition: Partition) -> int:
        """See `Delivery`."""
        return partition.acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a machine asks besides its own rules."""

    admissions: tuple[Admission, ...] = ()
    origins: TopicOrigins | None = None
    pace: Pace | None = None
    """None: bandwidth has no limit."""
    transit: Transit = field(default_factory=Passage)
    remedies: Remedies = field(default_factory=KafkaRemedies)
    delivery: Delivery = field(default_factory=DeliveryAtOnce)
    on_copied: Callable[[Copied], None] | None = None
