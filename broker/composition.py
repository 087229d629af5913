"""What serves the requests of a node, put together: which part is built of which others.

`broker.node` decides when: it builds this once data directories are open and before anybody is served.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from broker.background import Background
from broker.clock import Clock
from broker.cluster.driver import ControllerDriver
from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.features import Features
from broker.cluster.image import ClusterImage
from broker.cluster.registration import allocate_producer_ids
from broker.config import NodeConfig
from broker.coordination.protocol import Coordination
from broker.disk_threads import DiskThreads
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_configs import GroupConfigs
from broker.groups.zookeeper_offsets import ZooKeeperOffsets
from broker.live_config import LiveConfig
from broker.part_configs import (
    between_followers,
    controller_settings,
    fetch_bounds,
    fetch_sessions,
    group_config,
    lag_bounds,
    replication_quotas,
    serving_limits,
    topic_defaults,
    transaction_config,
    verification_settings,
)
from broker.replication.fetchers import Fetchers
from broker.replication.isr_changes import IsrChanges
from broker.replication.log_moves import LogMoves
from broker.replication.node_connection import NodeConnection
from broker.replication.read_replicas import ReplicaSelector
from broker.replication.replicas import Replicas
from broker.replication.strays import Strays
from broker.replication.topic_configs import TopicConfigs
from broker.server.cluster_topics import ClusterTopics
from broker.server.cluster_view import ClusterView
from broker.server.conversions import Conversions
from broker.server.fetch_filters import FetchFilters
from broker.server.internal_topic_log import InternalTopicLog
from broker.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.server.node_link import NodeLink
from broker.server.partition_leaders import PartitionLeaders
from broker.server.produce_forwarding import ProduceForwarding
from broker.server.producer_ids import ProducerIds
from broker.server.quotas import Quotas
from broker.server.routes import ADVERTISED
from broker.server.security import Authoriser
from broker.server.services import Services
from broker.server.topics import Topics
from broker.server.transaction_partitions import TransactionPartitions
from broker.storage.log_directories import LogDirectories
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import Markers
from broker.types import BrokerId, TopicPartition
from broker.wire.features import TRANSACTION_VERSION


class Links(NamedTuple):
    """The ways to other nodes: an answer that is long in coming holds up those behind it."""

    orders: NodeLink
    transactions: NodeLink
    forwarding: NodeLink

    def attach(self, services: Services) -> None:
        """What is meant for the node itself goes to these."""
        for link in self:
            link.attach(services)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """What a node is given, and what it reads before anything is built."""

    broker_id: BrokerId
    live: LiveConfig
    coordination: Coordination
    entity_configs: EntityConfigs
    group_configs: GroupConfigs
    features: Features
    quotas: Quotas
    authoriser: Authoriser
    read_selector: ReplicaSelector | None
    clock: Clock
    rng: random.Random
    threads: DiskThreads
    background: Background
    on_leadership: Callable[[TopicPartition, int], None]
    """Told of each partition that the node leads (with the leader epoch), or no longer does (-1)."""

    async def services(
        self, cluster_id: str, configs: TopicConfigs, directories: LogDirectories, links: Links
    ) -> Services:
        """Everything that handlers use; nothing of it is started. Raises StorageError."""
        config = self._config
        view = ClusterView(ClusterImage(cluster_id=cluster_id))
        copying_quotas = replication_quotas(config, self.clock)
        fetchers = Fetchers(
            self.broker_id,
            fetch_bounds(config),
            quota=copying_quotas.follower,
            count=config.num_replica_fetchers,
            clock=self.clock,
            executor=self.threads,
            broker=lambda broker_id: view.image.brokers.get(broker_id),
            broker_epoch=lambda: replicas.broker_epoch,
            open_port=self._port_opener(links.orders.listener),
        )
        replicas = await self._replicas(configs, directories, fetchers)
        topics = Topics(self.coordination, view, topic_defaults(self.live.loaded), rng=self.rng)
        producer_ids = ProducerIds(lambda: allocate_producer_ids(self.coordination, self.broker_id))
        transactions = self._transactions(view, replicas, topics, links.transactions, producer_ids)
        return Services(
            broker_id=self.broker_id,
            clock=self.clock,
            disk_threads=self.threads,
            limits=serving_limits(config),
            view=view,
            replicas=replicas,
            fetchers=fetchers,
            isr_changes=IsrChanges(replicas, self.coordination, clock=self.clock, bounds=lag_bounds(config)),
            log_moves=self._log_moves(replicas),
            strays=Strays(self.broker_id, cluster_id, replicas, self.coordination),
            topics=topics,
            topic_configs=configs,
            groups=self._groups(view, replicas),
            group_configs=self.group_configs,
            zookeeper_offsets=ZooKeeperOffsets(
                self.coordination, metadata_size_max=config.offset_metadata_max_bytes
            ),
            controller=self._controller(view, links.orders),
            producer_ids=producer_ids,
            features=self.features,
            transactions=transactions,
            transaction_partitions=TransactionPartitions(
                self.broker_id,
                view,
                transactions,
                links.transactions,
                self.clock,
                verification_settings(config),
                start=self.background.start,
            ),
            forwarding=ProduceForwarding(self.broker_id, view, links.forwarding),
            fetch_sessions=fetch_sessions(config, self.rng),
            conversions=Conversions(self.clock),
            fetch_filters=FetchFilters(),
            entity_configs=self.entity_configs,
            node_settings=self.live.settings,
            api_versions=ADVERTISED,
            quotas=self.quotas,
            replication_quotas=copying_quotas,
            read_selector=self.read_selector,
            authoriser=self.authoriser,
        )

    @property
    def _config(self) -> NodeConfig:
        return self.live.loaded.node

    def _port_opener(self, listener: str) -> Callable[[], NodeConnection]:
        connection = between_followers(self._config)
        return lambda: NodeConnection(listener, connection)

    async def _replicas(
        self, configs: TopicConfigs, directories: LogDirectories, fetchers: Fetchers
    ) -> Replicas:
        stored: dict[TopicPartition, int] = {}
        for directory in directories.live.values():
            stored.update(await asyncio.to_thread(directory.checkpoints.read_high_watermarks))
        return Replicas(
            self.broker_id,
            directories,
            clock=self.clock,
            executor=self.threads,
            config_of=configs.refresh,
            high_watermarks=stored,
            fetchers=fetchers,
            on_leadership=self.on_leadership,
        )

    def _log_moves(self, replicas: Replicas) -> LogMoves:
        config = self._config
        return LogMoves(
            replicas,
            executor=self.threads,
            copies_max=config.num_replica_alter_log_dirs_threads or len(config.data_roots),
            bytes_per_second_max=config.replica_alter_log_dirs_io_max_bytes_per_second,
        )

    def _groups(self, view: ClusterView, replicas: Replicas) -> GroupCoordinator:
        config = self._config
        log = InternalTopicLog(
            CONSUMER_OFFSETS, view, replicas, self.clock, commit_timeout_ms=config.offsets_commit_timeout_ms
        )
        return GroupCoordinator(
            log,
            self.clock,
            group_config(config),
            ClusterTopics(view),
            consumer_config_of=self.group_configs.of,
        )

    def _controller(self, view: ClusterView, link: NodeLink) -> ControllerDriver:
        config = self._config
        return ControllerDriver(
            self.coordination,
            broker_id=self.broker_id,
            link=link,
            heard_epoch=lambda: view.image.controller_epoch,
            clock=self.clock,
            settings=controller_settings(config),
            listener=config.listener_texts.between_nodes,
        )

    def _transactions(
        self,
        view: ClusterView,
        replicas: Replicas,
        topics: Topics,
        link: NodeLink,
        producer_ids: ProducerIds,
    ) -> TransactionCoordinator:
        config = self._config
        log = InternalTopicLog(
            TRANSACTION_STATE,
            view,
            replicas,
            self.clock,
            commit_timeout_ms=config.request_timeout_ms,
            read_size=config.transaction_state_log_load_buffer_size,
        )
        return TransactionCoordinator(
            log,
            self.clock,
            transaction_config(config),
            Markers(PartitionLeaders(view, topics, link)),
            new_producer_id=producer_ids.next,
            value_version=lambda: min(self.features.level(TRANSACTION_VERSION), 1),
        )
