"""The port through which the work of a copier is written down: what arrived where."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from broker.types import TopicPartition
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.exchange import Assignment


class Books(Protocol):
    """Stepped on the copier's event loop."""

    def begin(self, assignments: Iterable[Assignment]) -> None:
        """These have been assigned to the machine."""
        ...

    def end(self, sources: Collection[TopicPartition]) -> None:
        """The machine forgets these: what of them was not written will be copied again, or not counted."""
        ...

    def restart(self, source: TopicPartition, offset: int) -> None:
        """The source is another log from `offset` on: it lost its end, or its topic was made anew."""
        ...

    def take(self, copied: Copied) -> None:
        """Records arrived; called once a chunk."""
        ...

    async def write(
        self, positions: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """These source positions are about to be committed; `reached`: what the destination has of the same.
        Returns those that may be committed now. Raises nothing that waiting helps against.
        """
        ...
