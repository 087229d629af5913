"""The cluster's image straight from ZooKeeper, kept current by watches: for whoever is no broker and so is
told nothing by the controller.

Watches say where to look again, and what is looked at is read as it is then. So one change costs one watch
and one read, and after a connection was lost everything is read anew. While ZooKeeper is away the last image
holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial

from broker.cluster.image import UNKNOWN_EPOCH, ImageUpdate
from broker.cluster.states import partition_image, read_brokers, read_states, read_topics
from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import ControllerZnode, TopicZnode
from broker.errors import CoordinationError
from broker.telemetry import logger
from broker.types import NO_LEADER, BrokerId, TopicPartition

RETRY_SECONDS = 1.0

_log = logger("image_watch")


class ImageWatch:
    """Tells `on_update` every change; the first update is the whole image. Owned by the event loop."""

    def __init__(self, coordination: Coordination, on_update: Callable[[ImageUpdate], None]) -> None:
        self._coordination = coordination
        self._on_update = on_update
        self._controller = NO_LEADER
        self._topics: dict[str, TopicZnode] = {}
        self._watches: dict[str, list[Callable[[], None]]] = {}
        """Those of each topic and its partitions."""
        self._looks_at_brokers = self._looks_at_controller = self._looks_at_names = True
        self._topics_to_look_at: set[str] = set()
        self._states_to_look_at: set[TopicPartition] = set()
        self._woken = asyncio.Event()

    async def begin(self) -> None:
        """Read everything once and watch it from now on. Raises CoordinationError."""
        watch_data, watch_children = self._coordination.watch_data, self._coordination.watch_children
        watch_data(paths.CONTROLLER, self._mark_controller)
        watch_children(paths.BROKER_IDS, self._mark_brokers)
        watch_children(paths.TOPICS, self._mark_names)
        await self._look()

    async def run(self) -> None:
        """Follow the changes; ends by cancellation."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._look()
            except CoordinationError as error:
                _log.warning("image_not_read", reason=str(error))
                self._mark_all()
                await asyncio.sleep(RETRY_SECONDS)

    def _mark_all(self) -> None:
        self._mark_controller()
        self._mark_brokers()
        self._mark_names()
        self._topics_to_look_at |= self._topics.keys()

    def _mark_controller(self) -> None:
        self._looks_at_controller = True
        self._woken.set()

    def _mark_brokers(self) -> None:
        self._looks_at_brokers = True
        self._woken.set()

    def _mark_names(self) -> None:
        self._looks_at_names = True
        self._woken.set()

    def _mark_topic(self, name: str) -> None:
        self._topics_to_look_at.add(name)
        self._woken.set()

    def _mark_state(self, partition: TopicPartition) -> None:
        self._states_to_look_at.add(partition)
        self._woken.set()

    async def _look(self) -> None:
        brokers = None
        if self._looks_at_controller:
            self._looks_at_controller = False
            await self._look_at_controller()
        if self._looks_at_brokers:
            self._looks_at_brokers = False
            brokers = await read_brokers(self._coordination)
        removed: set[TopicPartition] = set()
        if self._looks_at_names:
            self._looks_at_names = False
            removed = await self._look_at_names()
        changed, self._topics_to_look_at = self._topics_to_look_at, set()
        states, self._states_to_look_at = self._states_to_look_at, set()
        states |= await self._look_at_topics(changed)
        found = (await read_states(self._coordination, sorted(states))).states
        self._on_update(
            ImageUpdate(
                controller_id=self._controller,
                controller_epoch=UNKNOWN_EPOCH,
                brokers=brokers,
                partitions={
                    tp: partition_image(self._topics[tp.topic].partitions[tp.partition], found.get(tp))
                    for tp in sorted(states)
                    if tp.topic in self._topics and tp.partition in self._topics[tp.topic].partitions
                },
                topic_ids={name: topic.topic_id for name, topic in self._topics.items()},
                removed=frozenset(removed),
            )
        )

    async def _look_at_controller(self) -> None:
        znode = await self._coordination.get(paths.CONTROLLER)
        self._controller = (
            BrokerId(ControllerZnode.decode(znode.data, paths.CONTROLLER).broker_id) if znode else NO_LEADER
        )

    async def _look_at_names(self) -> set[TopicPartition]:
        """Have new topics looked at, and forget those that are gone; returns their partitions."""
        names = set(await self._coordination.children(paths.TOPICS))
        self._topics_to_look_at |= names - self._topics.keys()
        gone = self._topics.keys() - names
        removed = {TopicPartition(name, number) for name in gone for number in self._topics[name].partitions}
        for name in gone:
            del self._topics[name]
            for end in self._watches.pop(name, ()):
                end()
        return removed

    async def _look_at_topics(self, names: Collection[str]) -> set[TopicPartition]:
        """Their partitions, watched from now on."""
        for name in names:
            if name not in self._watches:
                self._watches[name] = [
                    self._coordination.watch_data(paths.topic(name), partial(self._mark_topic, name))
                ]
        found = await read_topics(self._coordination, sorted(names))
        partitions: set[TopicPartition] = set()
        for name, topic in found.items():
            known = self._topics[name].partitions.keys() if name in self._topics else ()
            self._topics[name] = topic
            partitions |= {TopicPartition(name, number) for number in topic.partitions}
            self._watch_states(name, topic.partitions.keys() - set(known))
        return partitions

    def _watch_states(self, name: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            tp = TopicPartition(name, number)
            end = self._coordination.watch_data(paths.partition_state(tp), partial(self._mark_state, tp))
            self._watches[name].append(end)
