"""Where records have been, for a route that goes on with them exactly once. Pure.

Records that came on a path go under a transactional id of that path. Before the first of them is taken in,
the id is taken over, and it is known then which of them are at the destination already: those are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.records.batch import BatchHeader
from mirrormaker.flow.hooks import TopicOrigins
from mirrormaker.flow.intake import Origins, OriginUnknownError
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.transaction_steps import HOME


class FencedOrigins:
    """The `TopicOrigins` of such a route."""

    def __init__(self, origins: TopicOrigins, is_ready: Callable[[Partition, int], bool]) -> None:
        """`is_ready`: whether nobody else can write what comes from an origin into what the partition leads
        to, and `Partition.origin_floors` says how far it has come; where that is not so, it is seen to.
        """
        self._origins = origins
        self._is_ready = is_ready

    def of(self, partition: Partition) -> Origins:
        """See `TopicOrigins`."""
        return _PartitionOrigins(self._origins.of(partition), partition, self._is_ready)


class _PartitionOrigins:
    """The origins of one partition (`intake.Origins`)."""

    __slots__ = ("_is_ready", "_origins", "_partition")

    def __init__(
        self, origins: Origins, partition: Partition, is_ready: Callable[[Partition, int], bool]
    ) -> None:
        self._origins = origins
        self._partition = partition
        self._is_ready = is_ready

    def origin_of(self, header: BatchHeader) -> int | None:
        """See `intake.Origins`."""
        origin = self._origins.origin_of(header)
        if origin is not None and origin != HOME and not self._is_ready(self._partition, origin):
            raise OriginUnknownError
        return origin

    def came_back(self, header: BatchHeader) -> bool:
        """See `intake.Origins`."""
        return self._origins.came_back(header)
