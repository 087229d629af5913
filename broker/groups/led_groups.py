"""Where the groups of a node are found: on the partitions of `__consumer_offsets` that it leads."""

from __future__ import annotations

from collections.abc import Iterator

from broker.clock import Clock
from broker.coordinators.led_partitions import LedPartitions
from broker.coordinators.partition_writer import CoordinatorLog
from broker.coordinators.placement import partition_of
from broker.errors import ErrorCode, ProtocolError
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.config import ConsumerConfigOf
from broker.groups.consumer_groups.topics import TopicDirectory
from broker.groups.live_group import LiveGroup
from broker.groups.partition import OffsetsPartition
from broker.groups.waiters import Waiters


class LedGroups:
    """What every kind of request about groups begins with."""

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        config: GroupConfig,
        topics: TopicDirectory,
        *,
        consumer_config_of: ConsumerConfigOf | None = None,
    ) -> None:
        """`consumer_config_of`: what holds for single groups, None: `config` for all."""
        self._log = log
        self._clock = clock
        self._config = config
        self._topics = topics
        self._waiters = Waiters()
        self._partitions = LedPartitions(
            "__consumer_offsets",
            lambda partition, leader_epoch: OffsetsPartition(
                partition,
                leader_epoch,
                log=log,
                clock=clock,
                config=config,
                consumer_config_of=consumer_config_of or (lambda _: config.consumer),
                topics=topics,
                waiters=self._waiters,
            ),
        )

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group lives on. Raises ProtocolError while the topic
        does not exist.
        """
        count = self._log.partition_count
        if count <= 0:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__consumer_offsets does not exist yet")
        return partition_of(group_id, count)

    def _live_groups(self) -> Iterator[LiveGroup]:
        for partition in self._partitions:
            if partition.is_live:
                yield from partition

    def _partition_for(self, group_id: str) -> OffsetsPartition:
        number = self.partition_of(group_id)
        if not self._log.is_leader(number):
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        return self._partitions.live(number)

    def _group(self, group_id: str) -> LiveGroup:
        """The group that members ask for. Raises ProtocolError when it is not here or its id is empty."""
        if not group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        return self._partition_for(group_id).group(group_id)
