"""Routes: mirrors from one cluster to another."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.topology.model.copying import (
    BatchSpec,
    Compression,
    CopyMode,
    Delivery,
    Isolation,
    Membership,
)
from mirrormaker.topology.model.names import ClusterName, RouteName
from mirrormaker.topology.model.policies import FailurePolicies
from mirrormaker.topology.model.resources import Objectives, Resources
from mirrormaker.topology.model.selection import Start, StartPosition, TopicSelection
from mirrormaker.topology.model.simulation import SimulatedRoute
from mirrormaker.topology.model.steps import FilterSpec, TransformSpec
from mirrormaker.topology.model.sync import SyncSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A mirror from one cluster to another. Never a key: what it does to records may be in mappings."""

    __hash__ = None  # type: ignore[assignment]

    name: RouteName
    """Name in status and logs, and of the group at the source: `mirror/NAME`, in ZooKeeper `mirror-NAME`."""
    source: ClusterName
    """The cluster that it reads, by its name here."""
    destination: ClusterName
    """The cluster that it writes, by its name here."""
    topics: TopicSelection
    """Which topics it takes, and what they become."""
    owner: str | None = None
    """Whom to ask about it; `status` says so beside what is wrong."""
    enabled: bool = True
    """Whether it runs; one that does not keeps its position."""
    start: StartPosition = Start.EARLIEST
    """Where it starts in a partition that it has no position in: `earliest`, `latest`, a time, or offsets
    (others at the earliest; one behind the newest record is the end).
    """
    membership: Membership = Membership.COORDINATOR
    """Where its processes agree on who copies what: a group at the source's `coordinator`, or its
    `zookeeper`.
    """
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    """What a crash may do to records on their way: `at_least_once` may double them, `at_most_once` lose them,
    `exactly_once` does neither.
    """
    copy: CopyMode = CopyMode.AUTO
    """`auto`: batches cross compressed as they are wherever that is exact. `deep`: always decoded and
    rebuilt. `shallow`: never decoded.
    """
    compression: Compression = Compression.PRESERVE
    """Codec at the destination; `preserve` keeps the one that a batch came with. Any other decodes."""
    batch: BatchSpec = field(default_factory=BatchSpec)
    """Small batches gathered into bigger ones; by itself only where the round trip asks for it."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """Whether records of transactions are copied once committed, or whatever becomes of them."""
    filters: tuple[FilterSpec, ...] = ()
    """Which records cross; all, unless some are named."""
    transforms: tuple[TransformSpec, ...] = ()
    """What is done to records on their way."""
    sync: SyncSpec = field(default_factory=SyncSpec)
    """What is kept alike beside the records."""
    on: FailurePolicies = field(default_factory=FailurePolicies)
    """What is done about a partition that cannot go on."""
    buckets: int = 16
    """Shares that the work is cut into; at most so many processes can take part. Another number starts the
    route anew; where several hosts run it exactly once, change it while none of them does.
    """
    commit_interval_ms: int = 1000
    """How often positions are committed. With `exactly_once`, 25 seconds more must be within
    `transaction.max.timeout.ms` of the destination (15 minutes by default).
    """
    refresh_interval_ms: int = 5000
    """How often new topics and partitions are looked for."""
    resources: Resources = field(default_factory=Resources)
    """What it may use."""
    objectives: Objectives = field(default_factory=Objectives)
    """What it is measured by."""
    heartbeats: bool = True
    """Whether its daemon writes a heartbeat a second at the source, once for all routes from there, and the
    route carries heartbeats.
    """
    provenance: bool | None = None
    """Whether records remember the clusters where they have been, so that they never come back to one; left
    out, as soon as the routes lead in a circle.
    """
    failover_group: str | None = None
    """Routes of one group switch their direction together."""
    simulate: SimulatedRoute = field(default_factory=SimulatedRoute)
    """What a simulation assumes of it."""

    @property
    def may_run(self) -> bool:
        """Whether a daemon runs it, or may have to once its failover group switches."""
        return self.enabled or self.failover_group is not None

    @property
    def group(self) -> str:
        """The group that the route's processes form at the source; it keeps the route's positions. In
        ZooKeeper it names a znode.
        """
        if self.membership is Membership.ZOOKEEPER:
            return f"mirror-{self.name}"
        return f"mirror/{self.name}"
