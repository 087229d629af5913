"""Topics as administrators change them: created, deleted, grown, configured.

What they ask for is written to ZooKeeper, where the controller finds it. Requests are checked here against
the image of the node that takes them; what a peer got wrong is a ProtocolError with Kafka's code. Writes
are atomic or conditional, so that racing requests cannot overwrite each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from uuid import uuid4

from broker.cluster.entity_configs import Change, alter_entity_config, read_entity_config
from broker.cluster.image import BrokerInfo, ClusterImage
from broker.cluster.placement import PlacementBroker, place_replicas
from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    Coordination,
    CreateNode,
    NodeExistsError,
    NoNodeError,
    SetData,
)
from broker.coordination.znodes import Assignment, ConfigZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import BrokerId, TopicId

TOPIC_NAME_LENGTH_MAX = 249
ZNODE_BYTES_MAX = 1_000_000
"""Just below the default limit of a ZooKeeper server (jute.maxbuffer)."""

NEW_PARTITIONS_MAX = 10_000
"""Partitions that a topic may begin with, or grow by at once: placing them keeps the event loop busy."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises ProtocolError INVALID_TOPIC_EXCEPTION that says what is wrong with the name."""
    if not name:
        problem = "a topic name is not empty"
    elif name in (".", ".."):
        problem = f"{name!r} cannot be a topic name"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one {len(name)}"
    elif not _NAME.fullmatch(name):
        problem = f"topic name {name!r} has a character that is not a letter, a digit, '.', '_' or '-'"
    else:
        return
    raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def plan_topic(
    image: ClusterImage,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, Sequence[BrokerId]] | None = None,
    rng: Random | None = None,
) -> Assignment:
    """The replicas of a new topic, placed, or with `assignment` as asked (then the numbers do not count).

    Without `rng` placement starts at the first broker. Raises ProtocolError: INVALID_TOPIC_EXCEPTION,
    TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
    """
    validate_topic_name(name)
    _check_unused(image, name)
    if assignment is not None:
        return _checked_assignment(assignment, image.brokers, first_partition=0)
    if partitions < 1:
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; a topic has at least 1")
    _check_count(partitions)
    _check_replication_factor(replication_factor, len(image.brokers))
    brokers = _placement_brokers(image)
    start, shift = (rng.randrange(len(brokers)), rng.randrange(len(brokers))) if rng else (0, 0)
    return place_replicas(brokers, partitions, replication_factor, start=start, shift=shift)


async def create_topic(
    coordination: Coordination,
    name: str,
    *,
    assignment: Assignment,
    config: Mapping[str, str],
    topic_id: TopicId | None = None,
) -> TopicId:
    """Write a topic that `plan_topic` approved; the controller makes its partitions. Returns its id.

    Raises ProtocolError TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS when the assignment does not fit in a znode.
    """
    topic = TopicZnode(topic_id=topic_id or TopicId(uuid4()), partitions=assignment)
    data = topic.encode()
    _check_size(data, len(assignment))
    settings = ConfigZnode(config=config).encode()
    config_path = paths.topic_config(name)
    await _create_parents(coordination)
    while True:
        left_over = await coordination.get(config_path)
        write_config = (
            CreateNode(path=config_path, data=settings)
            if left_over is None
            else SetData(path=config_path, data=settings, version=left_over.version)
        )
        try:
            await coordination.multi([write_config, CreateNode(path=paths.topic(name), data=data)])
        except (NodeExistsError, BadVersionError, NoNodeError) as error:
            if await coordination.get(paths.topic(name)) is not None:
                raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists") from error
            continue
        return topic.topic_id


async def delete_topic(coordination: Coordination, name: str) -> None:
    """Ask the controller to delete a topic. Raises ProtocolError UNKNOWN_TOPIC_OR_PARTITION."""
    if await coordination.get(paths.topic(name)) is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    try:
        await coordination.create(paths.delete_topic(name), b"")
    except NodeExistsError:
        return


async def add_partitions(
    coordination: Coordination,
    image: ClusterImage,
    name: str,
    total: int,
    *,
    assignment: Sequence[Sequence[BrokerId]] | None = None,
    rng: Random | None = None,
    validate_only: bool = False,
) -> None:
    """Let a topic grow to `total` partitions, the new ones placed, or as `assignment` says; or, with
    `validate_only`, say whether it could.

    Raises ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS when it has as many or more,
    INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, REASSIGNMENT_IN_PROGRESS.
    """
    path = paths.topic(name)
    while True:
        znode = await coordination.get(path)
        if znode is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        topic = TopicZnode.decode(znode.data, path)
        grown = replace(
            topic, partitions={**topic.partitions, **_growth(image, topic, total, assignment, rng)}
        )
        data = grown.encode()
        _check_size(data, total)
        if validate_only:
            return
        try:
            await coordination.set(path, data, version=znode.version)
        except BadVersionError:
            continue
        return


async def read_topic_config(coordination: Coordination, name: str) -> dict[str, str]:
    """A topic's settings that differ from the defaults; empty when it has none."""
    return await read_entity_config(coordination, f"topics/{name}")


async def alter_topic_config(coordination: Coordination, name: str, change: Change) -> None:
    """Change a topic's settings and tell the nodes, as `alter_entity_config`.

    Raises ProtocolError UNKNOWN_TOPIC_OR_PARTITION.
    """
    if await coordination.get(paths.topic(name)) is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    await alter_entity_config(coordination, f"topics/{name}", change)


async def _create_parents(coordination: Coordination) -> None:
    for path in (paths.TOPIC_CONFIGS, paths.TOPICS):
        if await coordination.get(path) is None:
            try:
                await coordination.create(path, b"")
            except NodeExistsError:
                continue


def _check_unused(image: ClusterImage, name: str) -> None:
    if name in image.topics:
        raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
    if "." not in name and "_" not in name:
        return
    metric_name = name.replace(".", "_")
    for other in image.topics:
        if other.replace(".", "_") == metric_name:
            raise ProtocolError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with {other!r}: metrics tell '.' and '_' apart no more",
            )


def _check_count(new_partitions: int) -> None:
    if new_partitions > NEW_PARTITIONS_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"{new_partitions} new partitions; at most {NEW_PARTITIONS_MAX} are made at once",
        )


def _check_replication_factor(replication_factor: int, brokers: int) -> None:
    if not 1 <= replication_factor <= brokers:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} with {brokers} live brokers",
        )


def _check_size(data: bytes, partitions: int) -> None:
    if len(data) > ZNODE_BYTES_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS, f"the replicas of {partitions} partitions do not fit into a znode"
        )


def _placement_brokers(image: ClusterImage) -> list[PlacementBroker]:
    return [PlacementBroker(broker_id=b.id, rack=b.rack) for b in image.brokers.values()]


def _growth(
    image: ClusterImage,
    topic: TopicZnode,
    total: int,
    assignment: Sequence[Sequence[BrokerId]] | None,
    rng: Random | None,
) -> Assignment:
    have = len(topic.partitions)
    if topic.partitions.keys() != set(range(have)) or not have:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"the partitions that ZooKeeper has of it are not 0 and up: {sorted(topic.partitions)}",
        )
    if topic.adding or topic.removing:
        raise ProtocolError(ErrorCode.REASSIGNMENT_IN_PROGRESS)
    if total <= have:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS, f"the topic has {have} partitions, and {total} is not more"
        )
    replication_factor = len(topic.partitions[0])
    if assignment is not None:
        if len(assignment) != total - have:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(assignment)} assignments for {total - have} new partitions",
            )
        checked = _checked_assignment(
            {have + index: replicas for index, replicas in enumerate(assignment)},
            image.brokers,
            first_partition=have,
        )
        if len(checked[have]) != replication_factor:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(checked[have])} replicas; the topic's other partitions have {replication_factor}",
            )
        return checked
    _check_count(total - have)
    _check_replication_factor(replication_factor, len(image.brokers))
    ids = sorted(image.brokers)
    first = topic.partitions[0][0]
    start = ids.index(first) if first in ids else 0
    shift = rng.randrange(len(ids)) if rng else 0
    brokers = _placement_brokers(image)
    return place_replicas(
        brokers, total - have, replication_factor, start=start, shift=shift, first_partition=have
    )


def _checked_assignment(
    assignment: Mapping[int, Sequence[BrokerId]],
    brokers: Mapping[BrokerId, BrokerInfo],
    *,
    first_partition: int,
) -> Assignment:
    """Raises ProtocolError INVALID_REPLICA_ASSIGNMENT."""
    problem = None
    if (
        sorted(assignment) != list(range(first_partition, first_partition + len(assignment)))
        or not assignment
    ):
        problem = f"partitions {sorted(assignment)} are not consecutive from {first_partition}"
    elif len({len(replicas) for replicas in assignment.values()}) != 1:
        problem = "partitions differ in their number of replicas"
    for partition, replicas in assignment.items():
        unknown = [replica for replica in replicas if replica not in brokers]
        if not replicas or len(set(replicas)) != len(replicas):
            problem = f"partition {partition} has no replicas, or one twice: {list(replicas)}"
        elif unknown:
            problem = f"partition {partition} names brokers that are not there: {unknown}"
    if problem:
        raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return {partition: tuple(replicas) for partition, replicas in sorted(assignment.items())}
