"""Single requests to nodes, for threads. Any number of threads may share one."""

from __future__ import annotations

from functools import partial

from broker.client.blocking.cluster import Cluster
from broker.client.blocking.facade import Facade, blocking
from broker.client.consumer_settings import ConsumerSettings
from broker.client.simple_consumer import SimpleConsumer as AsyncSimpleConsumer


class SimpleConsumer(Facade[AsyncSimpleConsumer]):
    """Single requests to nodes; the caller keeps offsets."""

    def __init__(
        self, cluster: Cluster, *, node_id: int | None = None, settings: ConsumerSettings | None = None
    ) -> None:
        """`node_id` is the one node to ask; None stands for the leader of each partition."""
        make = partial(AsyncSimpleConsumer, cluster.behind, node_id=node_id, settings=settings)
        super().__init__(cluster.thread, cluster.thread.run(make))

    fetch = blocking(AsyncSimpleConsumer.fetch)
    multifetch = blocking(AsyncSimpleConsumer.multifetch)
    get_offsets_before = blocking(AsyncSimpleConsumer.get_offsets_before)
