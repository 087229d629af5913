"""The life of one node: in which order it starts, and how it stops; `composition` is what it is built of.

Start: addresses are bound (nobody can connect yet), ZooKeeper session, cluster id, data directories with
recovery, registration, controller, first metadata image, listen. So an open port is a ready node. Stop, in
reverse: accept nothing, answer what was received, end controller and groups, flush and mark the data
directories clean, leave ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from broker.background import Background
from broker.clock import Clock
from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.features import Features
from broker.cluster.registration import obtain_cluster_id
from broker.cluster.states import announce_directory_failure, read_cluster_image
from broker.composition import Composition, Links
from broker.config import LoadedConfig, NodeConfig
from broker.coordination.protocol import Coordination
from broker.disk_threads import DiskThreads
from broker.errors import CoordinationError, RequestTimedOutError
from broker.groups.coordinator import GroupCoordinator
from broker.listening import Front, Listening
from broker.live_config import LiveConfig
from broker.node_metrics import NodeMetrics
from broker.part_configs import (
    between_nodes,
    cleaner_settings,
    client_quotas,
    group_configs,
    log_defaults,
    shutdown_settings,
    upkeep_intervals,
)
from broker.presence import Presence
from broker.reconfiguration import Reconfiguration
from broker.replication.archiving import Archiving
from broker.replication.log_cleaner import LogCleaner
from broker.replication.read_replicas import load_selector
from broker.replication.topic_configs import TopicConfigs
from broker.replication.upkeep import Upkeep
from broker.server.controlled_shutdown import hand_over
from broker.server.dispatch import Dispatcher
from broker.server.internal_topics import CONSUMER_OFFSETS
from broker.server.loop_stalls import LoopStalls
from broker.server.node_link import NodeLink
from broker.server.routes import ROUTES
from broker.server.security import AllowAll, Authoriser, Listener
from broker.server.services import Services
from broker.storage.archive import load_archive
from broker.storage.cleaning_schedule import CleaningSchedule
from broker.storage.disk import Disk
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.telemetry import logger
from broker.transactions.coordinator import TransactionCoordinator
from broker.types import BrokerId, TopicPartition

log = logger("node")

FIRST_IMAGE_TIMEOUT_MS = 30_000
"""How long a node waits until some node is elected controller."""
CONTROLLER_LOOK_MS = 20
"""How often a starting node looks whether another node was elected."""
ANNOUNCEMENT_RETRY_SECONDS = 1.0


class Node:
    """One broker node; `running` is its whole life."""

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        coordination: Coordination,
        disk: Disk,
        clock: Clock,
        rng: random.Random,
        authoriser: Authoriser | None = None,
        front: Front | None = None,
    ) -> None:
        """`front` stands in for the sockets of the listeners."""
        self._authoriser = authoriser or AllowAll()
        self._entity_configs = EntityConfigs(coordination)
        self._live = LiveConfig(loaded, self._entity_configs)
        self._broker_id = BrokerId(loaded.node.broker_id)
        self._group_configs = group_configs(loaded.node, self._entity_configs)
        self._quotas = client_quotas(loaded.node, clock)
        self._read_selector = load_selector(loaded.node.replica_selector_class, rng)
        self._coordination = coordination
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._executor = DiskThreads(loaded.node.num_io_threads)
        self._front = front or Listening(loaded.node, self._quotas, clock, self._executor)
        self._background = Background()
        self._features = Features(coordination)
        self._failed_roots: asyncio.Queue[Path] = asyncio.Queue()
        self._services: Services
        self._stalls = LoopStalls()
        self.metrics: NodeMetrics
        """What the node tells of itself; there once it runs."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Sequence[Listener]]:
        """Serve from entry to exit; yields the listeners with the ports that are really bound.

        Raises StorageError, CoordinationError or ProtocolError when the node cannot start.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._executor.shutdown)
            stack.enter_context(self._front.bound())
            presence = Presence(self._live, self._coordination, self._clock, self._front.listeners)
            await stack.enter_async_context(presence.connected())
            cluster_id = await obtain_cluster_id(self._coordination)
            archiving = stack.enter_context(contextlib.closing(self._archiving(cluster_id)))
            configs = TopicConfigs(
                self._entity_configs, log_defaults(self._config), on_change=self._topic_config_changed
            )
            followers = {
                "topics": configs.changed,
                "brokers": self._live.changed,
                "groups": self._group_configs.changed,
                **self._quotas.followers(self._entity_configs),
            }
            await self._entity_configs.begin(followers)
            await self._features.begin()
            await self._live.load()
            await self._quotas.load(self._entity_configs)
            self._executor.resize(self._config.num_io_threads)
            configs.defaults = log_defaults(self._config)
            await configs.load()
            await self._group_configs.load()
            directories = await stack.enter_async_context(self._log_directories(cluster_id, configs))
            await stack.enter_async_context(presence.noted_in(directories, cluster_id))
            await stack.enter_async_context(self._background)
            self._background.start(self._watch_directories(directories))
            links = Links(self._link(stack), self._link(stack), self._link(stack))
            self._services = services = await self._composition().services(
                cluster_id, configs, directories, links
            )
            links.attach(services)
            services.replicas.bereft = frozenset(await presence.leave_isrs(directories))
            services.replicas.registered(await presence.register())
            await stack.enter_async_context(services.fetchers)
            await stack.enter_async_context(services.groups)
            await stack.enter_async_context(services.transactions)
            await services.controller.start()
            stack.push_async_callback(services.controller.close)
            self._front.attach(Dispatcher(ROUTES, services), self._config)
            self.metrics = NodeMetrics(
                directories=directories,
                replicas=services.replicas,
                isr_changes=services.isr_changes,
                fetchers=services.fetchers,
                replication_quotas=services.replication_quotas,
                view=services.view,
                openings=services.openings,
                fetch_filters=services.fetch_filters,
                transactions=services.transactions,
                transaction_partitions=services.transaction_partitions,
                stalls=self._stalls,
                front=self._front,
            )
            self._start_background(archiving)
            self._background.start(presence.keep(services.replicas.registered))
            await self._first_image()
            async with self._serving(links.orders, presence):
                yield self._front.listeners
        log.info("node_stopped", broker_id=self._broker_id)

    @property
    def _config(self) -> NodeConfig:
        return self._live.loaded.node

    # Starting

    def _own_listener(self) -> Listener:
        """The listener that the nodes use among themselves."""
        name = self._config.listener_texts.between_nodes
        return next(listener for listener in self._front.listeners if listener.name == name)

    @contextlib.asynccontextmanager
    async def _log_directories(self, cluster_id: str, configs: TopicConfigs) -> AsyncIterator[LogDirectories]:
        """The data roots, recovered; those that are live at the end are closed as clean.

        Opening and closing block, so they happen in a thread.
        """
        loop = asyncio.get_running_loop()

        def note_failure(root: Path) -> None:
            loop.call_soon_threadsafe(self._failed_roots.put_nowait, root)

        directories = LogDirectories(
            self._disk,
            self._clock,
            recovery_threads=self._config.num_recovery_threads_per_data_dir,
            on_failure=note_failure,
            free_bytes_min=self._config.log_dir_min_free_bytes,
        )
        await asyncio.to_thread(
            directories.open,
            self._config.data_roots,
            lambda partition: configs.of(partition.topic),
            broker_id=self._broker_id,
            cluster_id=cluster_id,
        )
        try:
            yield directories
            for directory in directories.live.values():
                high_watermarks = self._services.replicas.high_watermarks_in(directory)
                await asyncio.to_thread(directory.checkpoints.store_high_watermarks, high_watermarks)
        finally:
            await asyncio.to_thread(directories.close)

    def _composition(self) -> Composition:
        return Composition(
            broker_id=self._broker_id,
            live=self._live,
            coordination=self._coordination,
            entity_configs=self._entity_configs,
            group_configs=self._group_configs,
            features=self._features,
            quotas=self._quotas,
            authoriser=self._authoriser,
            read_selector=self._read_selector,
            clock=self._clock,
            rng=self._rng,
            threads=self._executor,
            background=self._background,
            on_leadership=self._leadership_changed,
        )

    def _link(self, stack: contextlib.AsyncExitStack) -> NodeLink:
        link = NodeLink(self._broker_id, ROUTES, self._own_listener(), between_nodes(self._config))
        stack.push_async_callback(link.close)
        return link

    def _archiving(self, cluster_id: str) -> Archiving:
        """Raises ConfigurationError for a URL that cannot be used."""
        config = self._config
        archive = (
            load_archive(
                config.log_archive_class,
                config.log_archive_url,
                cluster_id=cluster_id,
                broker_id=self._broker_id,
            )
            if config.log_archive_url is not None
            else None
        )
        return Archiving(archive, threads=config.log_archive_threads, clock=self._clock)

    def _start_background(self, archiving: Archiving) -> None:
        upkeep = Upkeep(
            self._services.replicas,
            upkeep_intervals(self._config),
            archiving=archiving,
            schedule=CleaningSchedule(self._config.log_cleanup_schedule),
            clock=self._clock,
            executor=self._executor,
        )
        cleaner = LogCleaner(
            self._services.replicas,
            cleaner_settings(self._config),
            schedule=CleaningSchedule(self._config.log_cleanup_schedule),
            clock=self._clock,
        )
        self._background.start(self._stalls.watch(self._clock))
        self._background.start(upkeep.run())
        self._background.start(self._services.log_moves.run())
        self._background.start(self._services.isr_changes.run())
        self._background.start(cleaner.run())
        reconfiguration = Reconfiguration(
            services=self._services,
            front=self._front,
            upkeep=upkeep,
            cleaner=cleaner,
            threads=self._executor,
        )
        self._live.on_change(reconfiguration.apply)
        self._background.start(self._entity_configs.run())
        self._background.start(self._features.run())
        self._background.start(self._services.strays.run())
        self._background.start(self._front.close_idle())

    async def _first_image(self) -> None:
        """Wait for the controller's first word.

        A controller elsewhere can only reach an open port: then an image read from ZooKeeper serves.
        """
        controller, view = self._services.controller, self._services.view

        def is_told() -> bool:
            return controller.controller_id not in (-1, self._broker_id) or view.is_told

        try:
            async with asyncio.timeout(FIRST_IMAGE_TIMEOUT_MS / 1000) as limit:
                while not is_told():
                    if controller.is_controller:  # all that it has to read and tell may take long
                        limit.reschedule(asyncio.get_running_loop().time() + FIRST_IMAGE_TIMEOUT_MS / 1000)
                    with contextlib.suppress(RequestTimedOutError):
                        await view.until(lambda _: is_told(), timeout_ms=CONTROLLER_LOOK_MS)
        except TimeoutError:
            raise RequestTimedOutError("no controller was elected") from None
        if not view.is_told:
            view.begin_with(await read_cluster_image(self._coordination))

    @contextlib.asynccontextmanager
    async def _serving(self, link: NodeLink, presence: Presence) -> AsyncIterator[None]:
        self._front.start()
        log.info(
            "node_started",
            broker_id=self._broker_id,
            cluster_id=self._services.view.image.cluster_id,
            listeners=[str(listener) for listener in self._front.listeners],
        )
        try:
            yield
        finally:
            log.info("node_stopping", broker_id=self._broker_id)
            await hand_over(self._services, link, shutdown_settings(self._config))
            await presence.withdraw()
            self._front.stop_accepting()
            self._end_waits()
            await self._front.drain()

    def _end_waits(self) -> None:
        """Have everything answered that waits: fetches, joins of groups, produces."""
        self._services.replicas.end_waits()
        self._services.transactions.resign_all()
        offsets_topic = self._services.view.image.topic(CONSUMER_OFFSETS)
        for partition in offsets_topic.partitions if offsets_topic is not None else ():
            self._services.groups.on_resigned(partition)

    # While it runs

    async def _watch_directories(self, directories: LogDirectories) -> None:
        """Take what a failed log directory held offline, and have the controller find other leaders.

        Raises DiskFailedError, which ends the node, when no directory is left.
        """
        while True:
            root = await self._failed_roots.get()
            await self._services.replicas.directory_failed(root)
            directories.require_live()
            await self._announce_failure()

    async def _announce_failure(self) -> None:
        while True:
            try:
                return await announce_directory_failure(self._coordination, self._broker_id)
            except CoordinationError as error:
                log.warning("announcement_delayed", reason=str(error))
                await asyncio.sleep(ANNOUNCEMENT_RETRY_SECONDS)

    def _leadership_changed(self, partition: TopicPartition, leader_epoch: int) -> None:
        coordinator: GroupCoordinator | TransactionCoordinator
        match partition.topic:
            case "__consumer_offsets":
                coordinator = self._services.groups
            case "__transaction_state":
                coordinator = self._services.transactions
            case _:
                return
        if leader_epoch < 0:
            coordinator.on_resigned(partition.partition)
        else:
            self._background.start(coordinator.on_elected(partition.partition, leader_epoch))

    def _topic_config_changed(self, topic: str, config: LogConfig) -> None:
        self._services.replicas.reconfigure(topic, config)
