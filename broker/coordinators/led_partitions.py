"""The partitions of its topic that a coordinator leads: they come with an election, and go with the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from broker.errors import ErrorCode, ProtocolError
from broker.telemetry import logger

_log = logger("coordinators")


class LedPartition(Protocol):
    """One of them, from election to resignation."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_live(self) -> bool:
        """Whether its log was read, so that it is served."""
        ...

    async def load(self) -> bool:
        """Read the log to its end and go live; False if the node resigned meanwhile. Raises ProtocolError."""
        ...

    def start_writing(self, tasks: asyncio.TaskGroup) -> None:
        """Run what it needs as tasks of the group until this node resigns."""
        ...

    def resign(self) -> None:
        """Send every waiter away and serve no more."""
        ...


P = TypeVar("P", bound=LedPartition)


class LedPartitions(Generic[P]):
    """Those of one topic; `open_partition` makes one by its number and leader epoch."""

    def __init__(self, topic: str, open_partition: Callable[[int, int], P]) -> None:
        self._topic = topic
        self._open = open_partition
        self._held: dict[int, P] = {}

    def __iter__(self) -> Iterator[P]:
        return iter(tuple(self._held.values()))

    def get(self, number: int) -> P | None:
        return self._held.get(number)

    def live(self, number: int) -> P:
        """The partition. Raises ProtocolError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        held = self._held.get(number)
        if held is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if not held.is_live:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return held

    async def elect(self, number: int, leader_epoch: int, tasks: asyncio.TaskGroup) -> None:
        """This node leads a partition since `leader_epoch`: read it, then serve it. Older epochs change
        nothing. Where the log cannot be read, or is led by another before it was, it is not served.
        """
        held = self._held.get(number)
        if held is not None and held.leader_epoch >= leader_epoch:
            return
        self.resign(number)
        elected = self._held[number] = self._open(number, leader_epoch)
        is_live = False
        try:
            is_live = await elected.load()
        except ProtocolError as error:
            _log.warning("partition_not_loaded", topic=self._topic, partition=number, reason=str(error))
        finally:
            if not is_live and self._held.get(number) is elected:
                self.resign(number)
        if is_live:
            elected.start_writing(tasks)

    def resign(self, number: int) -> None:
        """This node does not lead the partition (any more)."""
        resigned = self._held.pop(number, None)
        if resigned is not None:
            resigned.resign()
            _log.info(
                "partition_resigned",
                topic=self._topic,
                partition=number,
                leader_epoch=resigned.leader_epoch,
            )

    def resign_all(self) -> None:
        for number in tuple(self._held):
            self.resign(number)
