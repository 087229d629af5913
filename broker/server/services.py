"""What handlers work with: the parts of one running node, put together by its composition root."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from broker.clock import Clock
from broker.cluster.driver import ControllerDriver
from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.features import Features
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_configs import GroupConfigs
from broker.groups.zookeeper_offsets import ZooKeeperOffsets
from broker.replication.fetchers import Fetchers
from broker.replication.isr_changes import IsrChanges
from broker.replication.log_moves import LogMoves
from broker.replication.read_replicas import ReplicaSelector
from broker.replication.refused_batches import RefusedBatches
from broker.replication.replicas import Replicas
from broker.replication.replication_quotas import ReplicationQuotas
from broker.replication.strays import Strays
from broker.replication.topic_configs import TopicConfigs
from broker.server.cluster_view import ClusterView
from broker.server.conversions import Conversions
from broker.server.fetch_filters import FetchFilters
from broker.server.fetch_sessions import FetchSessions
from broker.server.node_settings import NodeSettings
from broker.server.openings import Openings
from broker.server.produce_answers import ProduceAnswers
from broker.server.produce_forwarding import ProduceForwarding
from broker.server.producer_ids import ProducerIds
from broker.server.quotas import Quotas
from broker.server.security import AllowAll, Authoriser
from broker.server.topics import Topics
from broker.server.transaction_partitions import TransactionPartitions
from broker.transactions.coordinator import TransactionCoordinator
from broker.types import BrokerId
from broker.wire.messages.api_versions import ApiVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """Bounds on single requests; each field names its setting."""

    fetch_size_max: int = 57_671_680
    """`fetch.max.bytes`."""
    batch_size_max: int = 1_048_588
    """`message.max.bytes`, which bounds what a batch may unpack to for an old client."""
    request_timeout_ms: int = 30_000
    """`request.timeout.ms`; how long markers of transactions may take."""
    partitions_described_max: int = 2000
    """`max.request.partition.size.limit`."""


@dataclass(slots=True, kw_only=True)
class Services:
    """One node's parts, as its handlers see them."""

    broker_id: BrokerId
    clock: Clock
    disk_threads: Executor
    """What blocks on the disk for the event loop."""
    limits: ServingLimits
    view: ClusterView
    replicas: Replicas
    fetchers: Fetchers
    isr_changes: IsrChanges
    log_moves: LogMoves
    strays: Strays
    topics: Topics
    topic_configs: TopicConfigs
    groups: GroupCoordinator
    group_configs: GroupConfigs
    features: Features
    transactions: TransactionCoordinator
    transaction_partitions: TransactionPartitions
    forwarding: ProduceForwarding
    zookeeper_offsets: ZooKeeperOffsets
    controller: ControllerDriver
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    conversions: Conversions
    fetch_filters: FetchFilters
    entity_configs: EntityConfigs
    node_settings: NodeSettings
    quotas: Quotas
    replication_quotas: ReplicationQuotas
    read_selector: ReplicaSelector | None = None
    """Where consumers should read; None: from leaders alone."""
    authoriser: Authoriser = field(default_factory=AllowAll)
    openings: Openings = field(default_factory=Openings)
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)
    produce_answers: ProduceAnswers = field(default_factory=ProduceAnswers)
    api_versions: Sequence[ApiVersion] = field(default_factory=list)
    """What ApiVersions answers; derived from the table of routes."""

    @property
    def controller_id(self) -> BrokerId:
        """The controller that this node knows, NO_LEADER when it knows none."""
        return self.controller.controller_id
