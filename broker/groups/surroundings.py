"""What the groups of one partition of `__consumer_offsets` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.coordinators.partition_writer import PartitionWriter
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.config import ConsumerConfigOf
from broker.groups.consumer_groups.topics import TopicDirectory
from broker.groups.log_codec import LogRecord
from broker.groups.waiters import Waiters

if TYPE_CHECKING:
    from broker.groups.live_group import LiveGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Made by the partition for its groups."""

    config: GroupConfig
    consumer_config_of: ConsumerConfigOf
    clock: Clock
    topics: TopicDirectory
    writer: PartitionWriter[LogRecord]
    waiters: Waiters
    on_disposable: Callable[[LiveGroup], None] = field(repr=False)
    """Called when nothing would be lost by forgetting the group."""
    in_transaction: Callable[[int, str], None] = field(repr=False)
    """Told of a producer whose transaction has offsets of the group, by its id."""
