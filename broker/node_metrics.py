"""What a running node tells Prometheus: facts that its parts keep anyway, read when they are asked for.

Read in the thread of the HTTP endpoint while the event loop goes on: single counters, and maps that are
replaced and never changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.listening import Front
from broker.replication.fetchers import Fetchers
from broker.replication.isr_changes import IsrChanges
from broker.replication.isr_health import IsrHealth
from broker.replication.replicas import Replicas
from broker.replication.replication_quotas import ReplicationQuotas
from broker.server.cluster_view import ClusterView
from broker.server.fetch_filters import FetchFilters
from broker.server.loop_stalls import LoopStalls
from broker.server.openings import Openings
from broker.server.transaction_partitions import TransactionPartitions
from broker.storage.log_directories import LogDirectories
from broker.transactions.coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeMetrics(Collector):
    """The collector of one node."""

    directories: LogDirectories
    replicas: Replicas
    isr_changes: IsrChanges
    fetchers: Fetchers
    replication_quotas: ReplicationQuotas
    view: ClusterView
    openings: Openings
    fetch_filters: FetchFilters
    transactions: TransactionCoordinator
    transaction_partitions: TransactionPartitions
    stalls: LoopStalls
    front: Front

    def collect(self) -> Iterable[Metric]:
        """Every family of metrics, with its samples."""
        yield GaugeMetricFamily(
            "broker_connections",
            "Connections of clients and nodes.",
            self.front.connection_count,
        )
        yield from self._directory_metrics()
        yield from self._replication_metrics()
        yield from self._following_metrics()
        yield from self._quota_metrics()
        yield from self._transaction_metrics()
        opened = CounterMetricFamily(
            "broker_batches_opened", "Batches looked into when they were appended.", labels=["reason"]
        )
        for reason, count in list(self.openings.counts.items()):
            opened.add_metric([reason.value], count)
        yield opened
        yield CounterMetricFamily(
            "broker_fetch_filter_looked_at_bytes",
            "Bytes of batches, as stored, that were looked into for fetches with a filter.",
            self.fetch_filters.looked_at_bytes,
        )
        yield CounterMetricFamily(
            "broker_fetch_filter_dropped_bytes",
            "Bytes of those that were not sent.",
            self.fetch_filters.dropped_bytes,
        )
        yield CounterMetricFamily(
            "broker_loop_stalls", "Times that the event loop came late to what was due.", self.stalls.count
        )
        yield CounterMetricFamily(
            "broker_loop_stalled_seconds", "By how much in all.", self.stalls.total_ms / 1000
        )
        yield GaugeMetricFamily(
            "broker_loop_stalled_longest_seconds", "By how much at most.", self.stalls.longest_ms / 1000
        )

    def _replication_metrics(self) -> Iterable[Metric]:
        health = IsrHealth.of(self.replicas)
        yield GaugeMetricFamily("broker_partitions", "Partitions hosted.", len(self.replicas))
        yield GaugeMetricFamily("broker_leaders", "Partitions led.", health.led)
        yield GaugeMetricFamily(
            "broker_offline_replicas",
            "Replicas whose log directory failed.",
            self.replicas.offline_count,
        )
        yield GaugeMetricFamily(
            "broker_offline_partitions",
            "Partitions of the cluster without a leader, as this node is told.",
            sum(
                not partition.has_leader
                for topic in self.view.image.topics.values()
                for partition in topic.partitions.values()
            ),
        )
        yield GaugeMetricFamily(
            "broker_under_replicated_partitions",
            "Led partitions with a replica that is not in sync.",
            health.under_replicated,
        )
        yield GaugeMetricFamily(
            "broker_at_min_isr_partitions",
            "Led partitions with just min.insync.replicas in sync.",
            health.at_min_isr,
        )
        yield GaugeMetricFamily(
            "broker_under_min_isr_partitions", "Led partitions with fewer in sync.", health.under_min_isr
        )
        yield CounterMetricFamily(
            "broker_isr_shrinks", "Times that replicas left an ISR.", self.isr_changes.shrunk_count
        )
        yield CounterMetricFamily(
            "broker_isr_expands", "Times that replicas joined an ISR.", self.isr_changes.expanded_count
        )

    def _transaction_metrics(self) -> Iterable[Metric]:
        coordinator = self.transactions
        yield GaugeMetricFamily(
            "broker_transactional_ids", "Transactional ids that are coordinated here.", coordinator.id_count
        )
        yield GaugeMetricFamily(
            "broker_open_transactions", "Those with an open transaction.", coordinator.open_count
        )
        yield GaugeMetricFamily(
            "broker_ending_transactions",
            "Transactions whose end is decided, and not in all partitions yet.",
            coordinator.markers.under_way_count,
        )
        yield CounterMetricFamily(
            "broker_transaction_marker_retries",
            "Times that markers were tried again.",
            coordinator.markers.retried_count,
        )
        yield CounterMetricFamily(
            "broker_transaction_verification_failures",
            "Partitions that transactions were not let write to.",
            self.transaction_partitions.refused_count,
        )

    def _following_metrics(self) -> Iterable[Metric]:
        fetchers, counts = self.fetchers, self.fetchers.counts
        yield GaugeMetricFamily(
            "broker_followed_partitions", "Partitions that follow another node.", fetchers.partition_count
        )
        yield GaugeMetricFamily(
            "broker_replica_lag_max",
            "Records that the followed partition furthest behind lacks of what is committed.",
            fetchers.lag_max,
        )
        yield CounterMetricFamily("broker_replica_fetches", "Requests sent to leaders.", counts.requests)
        yield CounterMetricFamily(
            "broker_replica_failed_fetches", "Those that were not answered.", counts.failed_requests
        )
        yield CounterMetricFamily("broker_replica_fetched_bytes", "Bytes appended of leaders.", counts.bytes)
        yield CounterMetricFamily(
            "broker_replica_cuts", "Times that a follower cut off what its leader does not have.", counts.cuts
        )
        yield CounterMetricFamily(
            "broker_replica_corrupt_fetches", "Answers of leaders with damaged records.", counts.corrupt
        )
        yield CounterMetricFamily(
            "broker_replica_fetches_without_room",
            "Answers of leaders that the log directory had no room for.",
            counts.refused_for_space,
        )

    def _quota_metrics(self) -> Iterable[Metric]:
        bound = GaugeMetricFamily(
            "broker_replication_quota_bytes_per_second",
            "What throttled replicas may be copied at; +Inf: there is no bound.",
            labels=["role"],
        )
        copied = CounterMetricFamily(
            "broker_replication_throttled_bytes", "Bytes copied under the quota.", labels=["role"]
        )
        exhausted = GaugeMetricFamily(
            "broker_replication_throttled", "1: the quota just now keeps replicas back.", labels=["role"]
        )
        quotas = self.replication_quotas
        for role, quota in (("leader", quotas.leader), ("follower", quotas.follower)):
            bound.add_metric([role], quota.bound if quota.in_force else math.inf)
            copied.add_metric([role], quota.copied_bytes)
            exhausted.add_metric([role], quota.is_exhausted)
        return bound, copied, exhausted

    def _directory_metrics(self) -> Iterable[Metric]:
        online = GaugeMetricFamily(
            "broker_log_directory_online",
            "1: in use, 0: failed.",
            labels=["directory"],
        )
        full = GaugeMetricFamily(
            "broker_log_directory_full", "Whether clients are refused for lack of room.", labels=["directory"]
        )
        refused = CounterMetricFamily(
            "broker_log_directory_refused_appends", "Appends refused for lack of room.", labels=["directory"]
        )
        logs = GaugeMetricFamily("broker_log_directory_logs", "Logs in the directory.", labels=["directory"])
        for path, directory in self.directories.live.items():
            online.add_metric([str(path)], 1)
            full.add_metric([str(path)], directory.free_space.is_full)
            refused.add_metric([str(path)], directory.free_space.refused_count)
            logs.add_metric([str(path)], len(directory.logs))
        for path in self.directories.offline:
            online.add_metric([str(path)], 0)
        return online, full, refused, logs
