"""A name server: tells clients where brokers and leaders are, out of ZooKeeper, and nothing else.

It answers ApiVersions, Metadata, DescribeCluster and FindCoordinator, keeps nothing of its own, and registers
nowhere: any number may run side by side, behind one name or a balancer. Clients bootstrap from it and go on
with the brokers. Like a node it opens its port once it can answer.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from broker.background import Background
from broker.client.connection import ConnectionSettings
from broker.clock import Clock
from broker.cluster.features import FeatureLevels, NoFeatures
from broker.cluster.image import ClusterImage
from broker.cluster.image_watch import ImageWatch
from broker.coordination import paths
from broker.coordination.protocol import Coordination
from broker.coordination.znodes import ClusterIdZnode
from broker.disk_threads import DiskThreads
from broker.errors import CoordinationError
from broker.rates import RateWindows
from broker.server.acceptor import Acceptor, Processor
from broker.server.admission import Admission
from broker.server.cluster_view import ClusterView
from broker.server.config import ConnectionLimits
from broker.server.dispatch import Dispatcher
from broker.server.quotas import Quotas
from broker.server.routes import NAMING_ROUTES, advertised
from broker.server.security import AllowAll, Authoriser, Listener
from broker.telemetry import logger
from broker.topic_relay import TopicRelay
from broker.types import BrokerId
from broker.wire.messages.api_versions import ApiVersion

log = logger("nameserver")

DRAIN_GRACE_MS = 2_000
RELAY_TIMEOUT_MS = 5_000
"""How long a broker may take to make a topic that a client asked for."""
_LIMITS = ConnectionLimits(request_size_max=1024 * 1024)
_WINDOWS = RateWindows(count=11, size_ms=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServices:
    """Implements Naming: a name server's parts, as its handlers see them."""

    view: ClusterView
    topics: TopicRelay
    quotas: Quotas
    authoriser: Authoriser
    api_versions: Sequence[ApiVersion]
    features: FeatureLevels

    @property
    def controller_id(self) -> BrokerId:
        """The controller that ZooKeeper names, NO_LEADER while there is none."""
        return self.view.image.controller_id


@contextlib.asynccontextmanager
async def serving_names(
    coordination: Coordination, listener: Listener, clock: Clock, *, timeout_ms: int, rng: random.Random
) -> AsyncIterator[Listener]:
    """Serve from entry to exit; yields the listener with the port that is really bound.

    Clients are told the addresses that brokers have on the listener of the same name. Raises
    CoordinationError when ZooKeeper cannot be read within `timeout_ms`, or holds no cluster.
    """
    async with contextlib.AsyncExitStack() as stack:
        threads = DiskThreads(1)
        stack.callback(threads.shutdown)
        processors: list[Processor] = []
        quotas = Quotas(_WINDOWS, clock.monotonic_ms, mutation_windows=_WINDOWS)
        admission = Admission(processors, quotas.table, _WINDOWS, clock.monotonic_ms, protected=None)
        acceptor = stack.enter_context(
            contextlib.closing(Acceptor.open(listener, processors, _LIMITS, admission))
        )
        await coordination.start(timeout_ms=timeout_ms)
        stack.push_async_callback(coordination.close)
        view = ClusterView(ClusterImage(cluster_id=await _cluster_id(coordination)))
        watch = ImageWatch(coordination, view.apply)
        await watch.begin()
        background = await stack.enter_async_context(Background())
        background.start(watch.run())
        settings = ConnectionSettings(request_timeout_ms=RELAY_TIMEOUT_MS)
        services = NameServices(
            view=view,
            topics=TopicRelay(view, listener.name, settings, rng=rng),
            quotas=quotas,
            authoriser=AllowAll(),
            api_versions=advertised(NAMING_ROUTES),
            features=NoFeatures(levels={}),
        )
        processor = Processor(Dispatcher(NAMING_ROUTES, services), _LIMITS, clock, threads)
        processors.append(processor)
        background.start(processor.close_idle())
        acceptor.start()
        log.info("nameserver_started", cluster_id=view.image.cluster_id, listener=str(acceptor.listener))
        try:
            yield acceptor.listener
        finally:
            acceptor.close()
            await processor.drain(grace_ms=DRAIN_GRACE_MS)
            log.info("nameserver_stopped")


async def _cluster_id(coordination: Coordination) -> str:
    znode = await coordination.get(paths.CLUSTER_ID)
    if znode is None:
        raise CoordinationError(f"{paths.CLUSTER_ID} is not there: no broker was ever registered here")
    return ClusterIdZnode.decode(znode.data, paths.CLUSTER_ID).cluster_id
