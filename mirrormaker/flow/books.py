"""The ports through which the work of a copier is written down: what arrived where."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from broker.types import TopicPartition
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.positions import Place
from mirrormaker.flow.read_epochs import EpochStart, ReadEpochs
from mirrormaker.flow.returned import Returned
from mirrormaker.flow.transaction_steps import LanePositions


class BooksStanding(Enum):
    """Whether books can be written."""

    KEPT = "kept"
    AWAITED = "awaited"
    """They will be, and cannot be just now: no transaction is begun without them."""
    REFUSED = "refused"
    """The mirror has no right to write them: it copies without."""


class EpochMark(NamedTuple):
    """All records of the source before an offset are of this leader epoch or older ones."""

    before: int
    epoch: int


class Reached(NamedTuple):
    """How far a source partition, as its log is now, had been copied."""

    next: int
    mark: EpochMark | None
    """The last that is known of its epochs."""
    starts: tuple[EpochStart, ...] = ()
    """Where these begin, as far as that is known."""

    @property
    def epochs(self) -> ReadEpochs:
        """Those of what lies before the mark."""
        last = () if self.mark is None else (EpochStart(self.mark.epoch, self.mark.before - 1),)
        return ReadEpochs.of((*self.starts, *last))

    def epoch_before(self, position: int) -> int:
        """The leader epoch that no record before is above; -1: not known."""
        if self.mark is None or position > self.mark.before:
            return -1
        epoch = self.epochs.before(position)
        return self.mark.epoch if epoch < 0 else epoch


class ReadSoFar(NamedTuple):
    """What is known of the records of a partition that the machine has read; it changes as that goes on."""

    epochs: ReadEpochs
    returned: Returned


class Written(NamedTuple):
    """What is written of partitions that no position is known of."""

    former: Mapping[TopicPartition, int] = {}
    """Those whose topics have the names of others that were copied before: how far that had come."""
    stood: Mapping[TopicPartition, Place] = {}
    """Those that were copied, and of which the destination has what is written: where they go on."""
    forgotten: Mapping[TopicPartition, int] = {}
    """Those that were copied and begin elsewhere, as the destination does not have that, or has more: how far
    they had come.
    """
    sent_farther: frozenset[TopicPartition] = frozenset()
    """Of these the ones whose destination has more, which may be of them: they begin at their ends, as the
    route never sends twice.
    """


class BucketBooks(Protocol):
    """What is written down in the transactions of one bucket."""

    @property
    def at(self) -> TopicPartition:
        """Where it is written."""
        ...

    @property
    def standing(self) -> BooksStanding: ...

    def is_due(self, sources: Iterable[TopicPartition]) -> bool:
        """Whether they lack something about these, as of what was committed without them."""
        ...

    def due(self, positions: Mapping[TopicPartition, LanePositions]) -> tuple[Entry, ...]:
        """What is to be written about these sources now that all before their positions, and nothing from
        there on, is at the destination; the same again, and more, until it is `settled`.
        """
        ...

    def settled(self) -> None:
        """What was due last is committed."""
        ...

    def refused(self) -> None:
        """The mirror has no right to write them."""
        ...


class Books(Protocol):
    """Stepped on the copier's event loop."""

    async def introduce(self, producer_id: int, on_failure: Callable[[str], None]) -> None:
        """Under this id, which nobody has used before, records are about to be sent. `on_failure` is told why
        that is not written down yet. Raises nothing.
        """
        ...

    def begin(self, assignments: Iterable[Assignment], read: Mapping[TopicPartition, ReadSoFar]) -> None:
        """These have been assigned to the machine, which tells in `read` of what it reads of them."""
        ...

    async def written(
        self, assignments: Collection[Assignment], kept: Mapping[TopicPartition, Place]
    ) -> Written:
        """Of these sources, which have no position in the group. `kept`: where the destination says that some
        are. Raises BrokerError when it cannot be told yet.
        """
        ...

    async def gone_on(self, assignments: Collection[Assignment]) -> Mapping[TopicPartition, LanePositions]:
        """Where lanes of these sources had come that begin there by positions of this route, which could not
        be stored any more; left out where that is not farther, or not certain. Raises nothing.
        """
        ...

    @property
    def is_known(self) -> bool:
        """Whether it can be told what had been copied, or never will be."""
        ...

    async def reached(self, assignments: Collection[Assignment]) -> Mapping[TopicPartition, Reached]:
        """How far these sources had been copied, where that can be told. Raises nothing."""
        ...

    def end(self, sources: Collection[TopicPartition]) -> None:
        """The machine forgets these: what of them was not written will be copied again, or not counted."""
        ...

    def restart(self, source: TopicPartition, positions: LanePositions) -> None:
        """The source is another log from where its lanes go on: it lost its end, or its topic was made
        anew.
        """
        ...

    def lose(self, source: TopicPartition, destination: TopicPartition, first: int, next_offset: int) -> None:
        """Of these source offsets nobody knows whether they arrived there, and they are not sent again."""
        ...

    def take(self, copied: Copied) -> None:
        """Records arrived; called once a chunk."""
        ...

    async def write(
        self,
        positions: Mapping[TopicPartition, int],
        reached: Mapping[TopicPartition, LanePositions],
    ) -> Mapping[TopicPartition, int]:
        """These source positions are about to be committed; `reached`: what the destination has of the same,
        by lane. Returns those that may be committed now. Raises nothing that waiting helps against.
        """
        ...

    async def write_rest(self) -> None:
        """What arrived, and was not written along with a position, is written: partitions are given up."""
        ...

    def of_bucket(self, on_change: Callable[[], None]) -> BucketBooks:
        """What is written in transactions of a bucket, instead of by `write`. `on_change`: how they stand may
        be other than before.
        """
        ...
