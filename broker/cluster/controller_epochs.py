"""The epoch of the last controller, which the next election raises: as `/controller_epoch` says, or, where
that znode is damaged, from what else is known of it.

No epoch may be given twice: nodes tell by it the orders of a controller from those of its successor. Every
state of a partition names the controller that wrote it, and every election since then has written
`/controller_epoch`, whose version counts that. So the highest epoch among the states and that version
together are at least the epoch of the last controller, and where the znode was made anew by hand there is
still what this node has heard. Should even this be too low, nodes that heard more refuse the orders, which
ends the reign, and the next one begins with a higher epoch.
"""

from __future__ import annotations

from broker.cluster.states import partitions_beside, read_states, read_topics
from broker.coordination import paths
from broker.coordination.protocol import Coordination, Znode
from broker.coordination.znodes import EPOCH_MAX, ControllerEpochZnode
from broker.errors import CoordinationError
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("controller")


async def last_epoch(coordination: Coordination, znode: Znode, *, heard: int) -> int:
    """An epoch that no controller has gone beyond, of `/controller_epoch` as it was read. `heard` is
    the epoch of the last controller that this node heard of, -1 for none.

    Raises CoordinationError when there is no epoch left above it.
    """
    try:
        return ControllerEpochZnode.decode(znode.data, paths.CONTROLLER_EPOCH).epoch
    except CoordinationError as error:
        reason = str(error)
    epoch = max(heard, await _highest_of_states(coordination)) + znode.version
    if epoch >= EPOCH_MAX:
        raise CoordinationError(f"{reason}, and a state says that no epoch is left above {EPOCH_MAX}")
    _log.error("controller_epoch_recovered", path=paths.CONTROLLER_EPOCH, reason=reason, epoch=epoch)
    return epoch


async def _highest_of_states(coordination: Coordination) -> int:
    topics = await read_topics(coordination)
    partitions = [
        TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions
    ]
    partitions += await partitions_beside(coordination, topics)
    states = (await read_states(coordination, partitions)).states
    return max((0, *(stored.state.controller_epoch for stored in states.values())))
