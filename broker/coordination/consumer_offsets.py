"""Offsets of groups that keep them in ZooKeeper, one znode each."""

from __future__ import annotations

from broker.coordination.protocol import Coordination, NodeExistsError, NoNodeError
from broker.coordination.znodes import ConsumerOffsetZnode


async def keep_offset(coordination: Coordination, path: str, offset: int) -> None:
    """Write an offset over whatever is there. Raises CoordinationError."""
    data = ConsumerOffsetZnode(offset=offset).encode()
    try:
        await coordination.set(path, data)
    except NoNodeError:
        try:
            await coordination.create(path, data)
        except NodeExistsError:  # another was quicker: the last one counts
            await coordination.set(path, data)


async def kept_offset(coordination: Coordination, path: str) -> int | None:
    """The offset, None when there is none. Raises CoordinationError."""
    found = await coordination.get(path)
    if found is None or not found.data:
        return None
    return ConsumerOffsetZnode.decode(found.data, path).offset
