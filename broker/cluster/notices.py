"""What others leave in ZooKeeper for the controller to find: which in-sync sets changed, whose disk failed,
whose settings changed, which elections are wanted. What cannot be read is logged and passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import ConfigChangeZnode, LogDirEventZnode, PartitionListZnode
from broker.errors import CoordinationError
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition

_log = logger("controller")
_Notice = TypeVar("_Notice")


async def partition_list(coordination: Coordination, path: str) -> set[TopicPartition]:
    """The partitions that a znode names."""
    notice = await _read(coordination, path, PartitionListZnode.decode)
    return set(notice.partitions) if notice else set()


async def failing_broker(coordination: Coordination, name: str) -> BrokerId | None:
    """The broker that announced, in the child `name`, that a log directory of it failed."""
    notice = await _read(coordination, f"{paths.LOG_DIR_EVENTS}/{name}", LogDirEventZnode.decode)
    return notice.broker_id if notice else None


async def changed_topic(coordination: Coordination, name: str) -> str | None:
    """The topic whose settings changed, as the child `name` of the announced changes says."""
    notice = await _read(coordination, f"{paths.CONFIG_CHANGES}/{name}", ConfigChangeZnode.decode)
    kind, _, topic = notice.entity_path.partition("/") if notice else ("", "", "")
    return topic if kind == "topics" else None


async def _read(
    coordination: Coordination, path: str, decode: Callable[[bytes, str], _Notice]
) -> _Notice | None:
    znode = await coordination.get(path)
    if znode is None:
        return None
    try:
        return decode(znode.data, path)
    except CoordinationError as error:
        _log.error("znode_unreadable", path=path, reason=str(error))
        return None
