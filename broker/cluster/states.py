"""Brokers, topics and partition states as ZooKeeper holds them, and the in-sync sets that leaders write.

Reading is pipelined: `READS_IN_FLIGHT_MAX` requests at a time, each for many states. A znode that cannot be
read is logged and left out; for partitions the caller is told which, because a missing state and a damaged
one are not the same thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeVar

from broker.cluster.events import StoredState
from broker.cluster.image import UNKNOWN_EPOCH, BrokerInfo, ClusterImage, ImageUpdate, PartitionImage
from broker.cluster.topics import validate_topic_name
from broker.coordination import paths
from broker.coordination.document import INT32_MAX
from broker.coordination.protocol import BadVersionError, Coordination, SessionLostError, Znode
from broker.coordination.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ControllerEpochZnode,
    ControllerZnode,
    LogDirEventZnode,
    PartitionListZnode,
    PartitionStateZnode,
    TopicZnode,
)
from broker.errors import CoordinationError, ProtocolError
from broker.telemetry import logger
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

READS_IN_FLIGHT_MAX = 512
STATES_PER_READ_MAX = 100
"""A state takes some 200 bytes with its path, and a request to ZooKeeper at most 1 MB."""
PARTITIONS_PER_ANNOUNCEMENT_MAX = 3_000
"""Keeps an announcement of ISR changes well below the size limit of a znode."""

_log = logger("cluster_states")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesReading:
    """Partition states; partitions in neither have no state znode."""

    states: dict[TopicPartition, StoredState]
    unreadable: frozenset[TopicPartition]


async def read_brokers(coordination: Coordination) -> dict[BrokerId, BrokerInfo]:
    """The registered brokers."""
    names = await coordination.children(paths.BROKER_IDS)
    ids = [BrokerId(int(name)) for name in names if _is_broker_id(name)]
    found, _ = await _read_all(coordination, ids, paths.broker, _decode_broker)
    return {broker_id: replace(found[broker_id], id=broker_id) for broker_id in sorted(found)}


async def read_topics(
    coordination: Coordination, names: Iterable[str] | None = None
) -> dict[str, TopicZnode]:
    """These topics, or all, by name; absent ones are left out."""
    wanted = await coordination.children(paths.TOPICS) if names is None else names
    found, _ = await _read_all(coordination, list(wanted), paths.topic, _decode_topic)
    return found


async def read_states(coordination: Coordination, partitions: Iterable[TopicPartition]) -> StatesReading:
    """The state znodes of these partitions."""
    found, unreadable = await _read_all(
        coordination, list(partitions), paths.partition_state, decode_state, at_once=STATES_PER_READ_MAX
    )
    return StatesReading(states=found, unreadable=unreadable)


def decode_state(znode: Znode, path: str) -> StoredState:
    """Raises CoordinationError naming `path`."""
    state = PartitionStateZnode.decode(znode.data, path)
    return StoredState(state=state, version=znode.version, mzxid=znode.mzxid)


async def read_cluster_image(coordination: Coordination) -> ClusterImage:
    """The whole image straight from ZooKeeper: what a node starts from."""
    cluster_id = await coordination.get(paths.CLUSTER_ID)
    controller = await coordination.get(paths.CONTROLLER)
    epoch = await coordination.get(paths.CONTROLLER_EPOCH)
    brokers = await read_brokers(coordination)
    topics = await read_topics(coordination)
    assignments = {
        TopicPartition(name, number): replicas
        for name, topic in topics.items()
        for number, replicas in topic.partitions.items()
    }
    states = (await read_states(coordination, assignments)).states
    update = ImageUpdate(
        controller_id=(
            ControllerZnode.decode(controller.data, paths.CONTROLLER).broker_id if controller else NO_LEADER
        ),
        controller_epoch=_epoch_of(epoch),
        brokers=brokers,
        partitions={
            tp: partition_image(replicas, states.get(tp), tuple(r for r in replicas if r not in brokers))
            for tp, replicas in assignments.items()
        },
        topic_ids={name: topic.topic_id for name, topic in topics.items()},
        full=True,
    )
    name = ClusterIdZnode.decode(cluster_id.data, paths.CLUSTER_ID).cluster_id if cluster_id else ""
    return ClusterImage(cluster_id=name).apply(update)


def _epoch_of(znode: Znode | None) -> int:
    """What `/controller_epoch` says, if it does."""
    if znode is None:
        return UNKNOWN_EPOCH
    try:
        return ControllerEpochZnode.decode(znode.data, paths.CONTROLLER_EPOCH).epoch
    except CoordinationError as error:
        _log.error("znode_unreadable", path=paths.CONTROLLER_EPOCH, reason=str(error))
        return UNKNOWN_EPOCH


async def write_isr(
    coordination: Coordination, tp: TopicPartition, state: PartitionStateZnode, partition_epoch: int
) -> int:
    """A leader's change of its in-sync set; returns the new partition epoch.

    Raises BadVersionError when the state changed meanwhile: the writer may not be the leader any more, and
    waits for its next LeaderAndIsr; SessionLostError when the outcome is unknown.
    """
    return await coordination.set(paths.partition_state(tp), state.encode(), version=partition_epoch)


async def announce_isr_changes(coordination: Coordination, partitions: Sequence[TopicPartition]) -> None:
    """Tell the controller which partitions' in-sync sets were written; callers batch them."""
    for start in range(0, len(partitions), PARTITIONS_PER_ANNOUNCEMENT_MAX):
        some = tuple(partitions[start : start + PARTITIONS_PER_ANNOUNCEMENT_MAX])
        data = PartitionListZnode(partitions=some).encode()
        await coordination.create(paths.ISR_CHANGE_PREFIX, data, sequence=True)


async def announce_directory_failure(coordination: Coordination, broker_id: BrokerId) -> None:
    """Have the controller ask the broker which of its replicas it lost with a log directory."""
    data = LogDirEventZnode(broker_id=broker_id).encode()
    await coordination.create(paths.LOG_DIR_EVENT_PREFIX, data, sequence=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The partitions whose in-sync set a broker left, and those where it stayed as the `last` member although
    there are other replicas.
    """

    left: list[TopicPartition]
    last: list[TopicPartition]


async def leave_isrs(
    coordination: Coordination, broker_id: BrokerId, *, only: Collection[TopicPartition] | None = None
) -> Departure:
    """Take a broker that may have lost records out of every in-sync set that has another member; of `only`
    these partitions where it is known that it lost none of others.

    To be called before it registers again, as after a machine crash. Where it led, the partition is left
    without a leader until the controller elects one of the others. Where it was not in sync its leader may
    be about to write that it is, by what it had before the crash: the state is written as it stands, so that
    such a write is refused.
    """
    topics = await read_topics(coordination)
    hosted = {
        TopicPartition(name, partition): replicas
        for name, topic in topics.items()
        for partition, replicas in topic.partitions.items()
        if broker_id in replicas
    }
    hosted |= dict.fromkeys(await partitions_beside(coordination, topics), ())
    if only is not None:
        hosted = {tp: replicas for tp, replicas in hosted.items() if tp in only}
    left: list[TopicPartition] = []
    last: list[TopicPartition] = []

    async def leave(tp: TopicPartition) -> None:
        match await _leave_isr(coordination, tp, broker_id):
            case _Leaving.LEFT:
                left.append(tp)
            case _Leaving.LAST if len(hosted[tp]) > 1:
                last.append(tp)

    await in_flight(list(hosted), leave)
    await announce_isr_changes(coordination, sorted(left))
    return Departure(left=sorted(left), last=sorted(last))


async def partitions_beside(coordination: Coordination, readable: Collection[str]) -> list[TopicPartition]:
    """Partitions with a state that can be read, of topics that are not among the `readable`: they may be put
    right while nodes run.
    """
    beside = [
        TopicPartition(name, int(number))
        for name in await coordination.children(paths.TOPICS)
        if name not in readable
        for number in await coordination.children(paths.topic_partitions(name))
        if number.isdecimal()
    ]
    return list((await read_states(coordination, beside)).states)


class _Leaving(Enum):
    LEFT = auto()
    LAST = auto()
    WAS_OUT = auto()


async def _leave_isr(coordination: Coordination, tp: TopicPartition, broker_id: BrokerId) -> _Leaving:
    path = paths.partition_state(tp)
    while True:
        znode = await coordination.get(path)
        if znode is None:
            return _Leaving.WAS_OUT
        state = decode_state(znode, path).state
        isr = tuple(replica for replica in state.isr if replica != broker_id)
        if not isr:
            return _Leaving.LAST if state.isr else _Leaving.WAS_OUT
        is_member = isr != state.isr
        if is_member:
            state = replace(
                state,
                leader=NO_LEADER if state.leader == broker_id else state.leader,
                leader_epoch=LeaderEpoch(state.leader_epoch + 1),
                isr=isr,
            )
        try:
            await coordination.set(path, state.encode(), version=znode.version)
        except BadVersionError:
            continue
        return _Leaving.LEFT if is_member else _Leaving.WAS_OUT


async def _read_all(
    coordination: Coordination,
    keys: Sequence[_Key],
    path_of: Callable[[_Key], str],
    decode: Callable[[Znode, str], _Value],
    *,
    at_once: int = 1,
) -> tuple[dict[_Key, _Value], frozenset[_Key]]:
    """Decoded znodes by key, and the keys of those that could not be decoded; `at_once` are read by one
    request, so that many should be small.
    """
    found: dict[_Key, _Value] = {}
    unreadable: set[_Key] = set()

    async def read(some: Sequence[_Key]) -> None:
        at = [path_of(key) for key in some]
        for key, path, znode in zip(some, at, await coordination.get_all(at), strict=True):
            if znode is None:
                continue
            try:
                found[key] = decode(znode, path)
            except SessionLostError:
                raise
            except CoordinationError as error:
                _log.error("znode_unreadable", path=path, reason=str(error))
                unreadable.add(key)

    await in_flight([keys[start : start + at_once] for start in range(0, len(keys), at_once)], read)
    return found, frozenset(unreadable)


async def in_flight(keys: Sequence[_Key], perform: Callable[[_Key], Awaitable[None]]) -> None:
    """Run `perform` for every key, `READS_IN_FLIGHT_MAX` at a time. Raises the first error; the others are
    cancelled.
    """
    remaining = iter(keys)

    async def work() -> None:
        for key in remaining:
            await perform(key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(READS_IN_FLIGHT_MAX, len(keys))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise sole_coordination_error(errors) from errors


def sole_coordination_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first CoordinationError of a group that holds nothing else, or the group itself."""
    if errors.split(CoordinationError)[1] is not None:
        return errors
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is_broker_id(name: str) -> bool:
    is_id = name.isascii() and name.isdecimal() and int(name) <= INT32_MAX and str(int(name)) == name
    if not is_id:
        _log.error("znode_unreadable", path=f"{paths.BROKER_IDS}/{name}", reason="its name is no broker's id")
    return is_id


def _decode_topic(znode: Znode, path: str) -> TopicZnode:
    try:
        validate_topic_name(path.rpartition("/")[2])
    except ProtocolError as error:
        raise CoordinationError(f"{path}: {error.message}") from error
    return TopicZnode.decode(znode.data, path)


def _decode_broker(znode: Znode, path: str) -> BrokerInfo:
    broker = BrokerZnode.decode(znode.data, path)
    return BrokerInfo(
        id=NO_LEADER,
        epoch=znode.czxid,
        endpoints={endpoint.listener: endpoint for endpoint in broker.endpoints},
        rack=broker.rack,
    )


def partition_image(
    replicas: tuple[BrokerId, ...], stored: StoredState | None, offline: tuple[BrokerId, ...] = ()
) -> PartitionImage:
    """A partition as its topic's assignment and its state, if there is one yet, say."""
    if stored is None:
        return PartitionImage(
            leader=NO_LEADER,
            leader_epoch=LeaderEpoch(-1),
            isr=(),
            replicas=replicas,
            partition_epoch=-1,
            controller_epoch=-1,
            offline=offline,
        )
    return PartitionImage(
        leader=stored.state.leader,
        leader_epoch=stored.state.leader_epoch,
        isr=stored.state.isr,
        replicas=replicas,
        partition_epoch=stored.version,
        controller_epoch=stored.state.controller_epoch,
        offline=offline,
    )
