"""Topics made, deleted and grown: written to ZooKeeper, then awaited in the cluster image.

Every node may do this: the znodes are the truth, and creating one twice is refused there. The controller
sees them and elects leaders; an operation is done when the image shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from broker.cluster.image import ClusterImage, TopicImage
from broker.cluster.topics import add_partitions, create_topic, delete_topic, plan_topic
from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import TopicZnode
from broker.errors import (
    ConfigurationError,
    CoordinationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.server.cluster_view import ClusterView
from broker.server.internal_topics import InternalTopic, offsets_topic, transactions_topic
from broker.storage.log_config import LogConfig
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition

log = logger("topics")

T = TypeVar("T")

ERASURE_MS = 1_000
"""How long a deletion is waited for once the topic is gone from the image."""
NEWS_OF_BROKERS_MS = 3_000
"""How long a broker's registration may take to be heard of."""

Assignment = Mapping[int, Sequence[BrokerId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 takes the node's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Assignment | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """What was created, or what would be."""

    topic_id: TopicId
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What topics get that do not say; each field names its setting."""

    partitions: int = 1
    """`num.partitions`."""
    replication_factor: int = 1
    """`default.replication.factor`."""
    auto_create: bool = True
    """`auto.create.topics.enable`."""
    deletable: bool = True
    """`delete.topic.enable`."""
    internal: tuple[InternalTopic, ...] = (offsets_topic(), transactions_topic())
    """The topics that the cluster makes for itself."""
    archive_available: bool = False
    """Whether `log.archive.url` was given."""
    ensure_timeout_ms: int = 5_000
    """How long the first use of a topic waits for its leaders."""


class Topics:
    """The administration of topics by one node."""

    def __init__(
        self,
        coordination: Coordination,
        view: ClusterView,
        defaults: TopicDefaults,
        *,
        rng: random.Random,
    ) -> None:
        self._coordination = coordination
        self._view = view
        self._defaults = defaults
        self._rng = rng
        self._internal = {topic.name: topic for topic in defaults.internal}
        self._ensuring: dict[str, asyncio.Task[None]] = {}

    @property
    def auto_create(self) -> bool:
        return self._defaults.auto_create

    async def create(
        self,
        topic: NewTopic,
        *,
        timeout_ms: int,
        validate_only: bool = False,
        on_planned: Callable[[int], None] | None = None,
    ) -> CreatedTopic:
        """Create a topic and wait until it has its leaders.

        `on_planned` is told the number of partitions before they are made, and may raise. Raises
        ProtocolError for whatever keeps the topic from being made.
        """
        self.require_valid(topic.settings)
        partitions = topic.partitions
        replication_factor = topic.replication_factor
        if topic.assignment and (partitions, replication_factor) != (-1, -1):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "an assignment excludes a number of partitions and a replication factor",
            )
        if partitions == -1:
            partitions = self._defaults.partitions
        if replication_factor == -1:
            replication_factor = self._defaults.replication_factor
        named = set(chain.from_iterable((topic.assignment or {}).values()))
        if replication_factor > len(self._view.image.brokers) or named - self._view.image.brokers.keys():
            await self._hear_of_registered_brokers()
        assignment = plan_topic(
            self._view.image,
            topic.name,
            partitions=partitions,
            replication_factor=replication_factor,
            rng=self._rng,
            assignment=topic.assignment or None,
        )
        shape = {"partitions": len(assignment), "replication_factor": len(assignment[0])}
        if validate_only:
            return CreatedTopic(topic_id=NO_TOPIC_ID, **shape)
        if on_planned is not None:
            on_planned(len(assignment))
        topic_id = await _translated(
            create_topic(self._coordination, topic.name, assignment=assignment, config=topic.settings)
        )
        log.info("topic_created", topic=topic.name, topic_id=str(topic_id), **shape)
        if timeout_ms > 0:
            await self._until(lambda image: _is_led(image, topic.name, len(assignment)), timeout_ms)
        return CreatedTopic(topic_id=topic_id, **shape)

    async def ensure(self, name: str) -> None:
        """Have the topic exist, created with the defaults on first use. Raises ProtocolError.

        Many that ask at once share one creation.
        """
        task = self._ensuring.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create_once(name))
            self._ensuring[name] = task
            task.add_done_callback(lambda _: self._ensuring.pop(name, None))
        await asyncio.shield(task)

    async def delete(self, name: str, *, timeout_ms: int) -> None:
        """Delete a topic and wait until it is gone. Raises ProtocolError."""
        if not self._defaults.deletable:
            raise ProtocolError(ErrorCode.TOPIC_DELETION_DISABLED)
        if self._view.image.topic(name) is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await _translated(delete_topic(self._coordination, name))
        if timeout_ms > 0:
            await self._until(lambda image: image.topic(name) is None, timeout_ms)
            await self._until_erased(name, min(timeout_ms, ERASURE_MS))
        log.info("topic_deleted", topic=name)

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[BrokerId]] | None,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total` partitions and wait until they are led. Raises ProtocolError."""
        await _translated(
            add_partitions(
                self._coordination,
                self._view.image,
                name,
                total,
                assignment=assignment,
                rng=self._rng,
                validate_only=validate_only,
            )
        )
        if validate_only:
            return
        log.info("partitions_added", topic=name, partitions=total)
        if timeout_ms > 0:
            await self._until(lambda image: _is_led(image, name, total), timeout_ms)

    async def _until_erased(self, name: str, timeout_ms: int) -> None:
        """A topic that is gone can be made anew once its znodes are gone, too: shortly after, unless a broker
        that holds replicas is away.
        """
        is_changed = asyncio.Event()
        end_watch = self._coordination.watch_data(paths.topic(name), is_changed.set)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while await _translated(self._coordination.get(paths.topic(name))) is not None:
                    await is_changed.wait()
                    is_changed.clear()
        except (TimeoutError, ProtocolError):
            return  # the deletion is under way in any case
        finally:
            end_watch()

    async def _hear_of_registered_brokers(self) -> None:
        """A broker that is ready may be so new that the controller has not told of it here yet: wait for
        that, rather than take it for missing.
        """
        names = await _translated(self._coordination.children(paths.BROKER_IDS))
        registered = {int(name) for name in names if name.isdecimal()}
        with contextlib.suppress(ProtocolError):  # who asks is told what is known then
            await self._until(lambda image: image.brokers.keys() >= registered, NEWS_OF_BROKERS_MS)

    async def _create_once(self, name: str) -> None:
        internal = self._internal.get(name)
        if internal is not None and not internal.replication_required:
            await self._hear_of_registered_brokers()
        topic = NewTopic(name=name) if internal is None else self._laid_out(internal)
        try:
            await self.create(topic, timeout_ms=self._defaults.ensure_timeout_ms)
        except ProtocolError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic_not_created", topic=name, reason=str(error))
                raise

    def _laid_out(self, topic: InternalTopic) -> NewTopic:
        replicas = topic.replicas_among(len(self._view.image.brokers))
        return NewTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=replicas,
            settings=topic.settings_with(replicas),
        )

    async def is_gone(self, partition: TopicPartition) -> bool:
        """Whether the partition was deleted, as ZooKeeper has it. Raises CoordinationError."""
        znode = await self._coordination.get(paths.topic(partition.topic))
        if znode is None:
            return True
        known = TopicZnode.decode(znode.data, paths.topic(partition.topic)).partitions
        return partition.partition not in known

    def require_valid(self, settings: Mapping[str, str]) -> None:
        """Raises ProtocolError INVALID_CONFIG that lists what is wrong with settings of a topic."""
        try:
            config = LogConfig().overridden(settings)
        except ConfigurationError as error:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if config.archive_enable and not self._defaults.archive_available:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, "archive.enable: this node has no log.archive.url")

    async def _until(self, condition: Callable[[ClusterImage], bool], timeout_ms: int) -> None:
        try:
            await self._view.until(condition, timeout_ms=timeout_ms)
        except RequestTimedOutError as error:
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error


def _is_led(image: ClusterImage, name: str, partitions: int) -> bool:
    topic: TopicImage | None = image.topic(name)
    if topic is None or len(topic.partitions) < partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())


async def _translated(operation: Awaitable[T]) -> T:
    """ZooKeeper out of reach is a passing failure to a client."""
    try:
        return await operation
    except CoordinationError as error:
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
