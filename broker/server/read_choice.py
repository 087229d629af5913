"""From which replica one client should read, as the node's selector chooses among those that can serve it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker.clock import Clock
from broker.cluster.image import ClusterImage
from broker.replication.read_replicas import ReadableReplica, ReadingClient, ReplicaSelector
from broker.replication.replica import Replica
from broker.server.fetch_sessions import is_from_node
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import BrokerId
from broker.wire.messages.fetch import FetchRequest

FOLLOWERS_FROM = 11
"""First version of Fetch whose clients may read from followers, and can be told to (KIP-392)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChoice:
    """The choice for one request, in the cluster as it is now."""

    selector: ReplicaSelector
    client: ReadingClient
    image: ClusterImage
    clock: Clock

    @classmethod
    def of(cls, services: Services, context: RequestContext, request: FetchRequest) -> ReadChoice | None:
        """None where whoever asks reads from leaders alone, as following nodes and old clients do."""
        if services.read_selector is None or context.api_version < FOLLOWERS_FROM or is_from_node(request):
            return None
        session = context.session
        client = ReadingClient(
            request.rack_id, context.client_id or "", session.peer.host, session.listener.name
        )
        return cls(
            selector=services.read_selector, client=client, image=services.view.image, clock=services.clock
        )

    def choose(self, replica: Replica, offset: int) -> BrokerId | None:
        """Who is to serve records from `offset` on; None: this node, which leads the partition."""
        log, machine = replica.log, replica.machine
        if not machine.has_followers or not log.log_start_offset <= offset <= machine.high_watermark:
            return None
        followers = list(self._followers(replica, offset))
        if not followers:
            return None
        leader = ReadableReplica(
            broker_id=machine.local,
            rack=self._rack(machine.local),
            log_end_offset=log.log_end_offset,
            behind_ms=0,
        )
        chosen = self.selector.select(replica.topic_partition, self.client, leader, followers)
        return None if chosen.broker_id == machine.local else chosen.broker_id

    def _followers(self, replica: Replica, offset: int) -> Iterator[ReadableReplica]:
        """Those that the client can reach, and that have what it asks for."""
        now_ms = self.clock.monotonic_ms()
        for broker_id, progress in replica.machine.holding(offset):
            info = self.image.brokers.get(broker_id)
            if info is not None and info.address(self.client.listener) is not None:
                yield ReadableReplica(
                    broker_id=broker_id,
                    rack=info.rack,
                    log_end_offset=progress.log_end_offset,
                    behind_ms=now_ms - progress.caught_up_ms,
                )

    def _rack(self, broker_id: BrokerId) -> str | None:
        info = self.image.brokers.get(broker_id)
        return None if info is None else info.rack
