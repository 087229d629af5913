"""The ledger for those who only read it, as commands and audits do: nothing is made where there is none."""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.ledger.current_lanes import is_current
from mirrormaker.ledger.lane_id import LEDGER_TOPIC, LaneId
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.model import ClusterSpec

READ_TIMEOUT_MS = 30_000


async def read_ledger(destination: Cluster) -> LedgerView:
    """All that a cluster's ledger says now. Raises ConfigurationError where there is none, BrokerError."""
    if LEDGER_TOPIC not in (await destination.refresh()).topics:
        raise ConfigurationError([f"there is no ledger yet: the destination has no topic {LEDGER_TOPIC}"])
    return await find_ledger(destination)


async def find_ledger(
    destination: Cluster, source: str | None = None, *, awaits_transactions: bool = True
) -> LedgerView:
    """The same, nothing where there is none; of lanes from the cluster with the id `source`, or from any.
    What lies behind open transactions is read where it `awaits_transactions`. Raises BrokerError.
    """
    view = LedgerView(source)
    if LEDGER_TOPIC not in (await destination.refresh()).topics:
        return view
    async with KeptTopic(destination, LEDGER_TOPIC, timeout_ms=READ_TIMEOUT_MS, view=view) as topic:
        await topic.read_to_end(awaits_transactions=awaits_transactions)
    return view


def lanes_now(view: LedgerView, source: Cluster, partition: TopicPartition, to: str) -> list[LaneId]:
    """The lanes from a partition of the source, of its topic as it is now, to a topic of the destination."""
    return [lane for lane in view.of_source(partition, to) if is_current(lane, source)]


class SourceIds:
    """What the source calls itself and its topics, as far as it can be asked."""

    def __init__(self, cluster: Cluster | None, cluster_id: str | None = None) -> None:
        """`cluster_id`: what it called itself when it was asked last, or as the file says."""
        self._cluster = cluster
        self._cluster_id = cluster_id if cluster is None else cluster.cluster_id

    def lanes(self, view: LedgerView) -> list[LaneId]:
        """Those that lead from the source; where nobody knows its id, all. Others may write there too."""
        if self._cluster is None and self._cluster_id is None:
            return list(view.lanes)
        return [lane for lane in view.lanes if lane.cluster == self._cluster_id]

    def choose(self, view: LedgerView, source: TopicPartition, to: TopicPartition) -> LaneId | None:
        """The lane between the partitions: of the source's topic as it is now, or else of the one written to
        last. None where nothing of it was ever copied.

        Raises ConfigurationError where it cannot be told from that of another source.
        """
        lanes = [lane for lane in self.lanes(view) if (lane.source, lane.destination) == (source, to)]
        if len({lane.cluster for lane in lanes}) > 1:
            problem = f"others write to {to}, too, and the source does not answer: say its 'cluster_id'"
            raise ConfigurationError([problem])
        if self._cluster is not None and source.topic in self._cluster.topics:
            lanes = [lane for lane in lanes if is_current(lane, self._cluster)]
        return max(lanes, key=lambda lane: _end(view, lane), default=None)


def _end(view: LedgerView, lane: LaneId) -> int:
    return max((page.to_next or 0 for page in view.lanes[lane].pages()), default=0)


async def ask_source(spec: ClusterSpec) -> Cluster | None:
    """A look at the source's ids; None when it does not answer, as in a disaster."""
    try:
        async with open_cluster(spec) as source:
            await source.refresh()
            return source
    except BrokerError:
        return None


async def ask_ledger(spec: ClusterSpec, source: str | None) -> LedgerView:
    """What a cluster's ledger says of lanes from the cluster with the id `source`; nothing when it does not
    answer.
    """
    try:
        async with open_cluster(spec) as cluster:
            return await find_ledger(cluster, source)
    except BrokerError:
        return LedgerView(source)
