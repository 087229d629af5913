"""A route whose two clusters are connected: its copier, and everything that works beside that.

It is made anew each time the route is started. Whether it is to work at all its runner decides, and it is the
runner that tries again when something here fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.cluster import Cluster
from broker.coordination.protocol import Coordination
from broker.types import TopicPartition
from mirrormaker.audit.watch import AuditWatch
from mirrormaker.carrying.carrier import GroupCarrier
from mirrormaker.cluster_identities import CircleWatch
from mirrormaker.clusters import await_displacement
from mirrormaker.flow.copier import RouteCopier
from mirrormaker.flow.facts import EVENT_NAMES, RecordsMaybeLost, details_of
from mirrormaker.flow.heartbeats.carriage import HeartbeatCarriage
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage
from mirrormaker.flow.lane_note import Arrears
from mirrormaker.flow.losses import LossNotes, losses_of
from mirrormaker.flow.origin_registry import OriginRegistry
from mirrormaker.flow.position_moves import make_ready
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.route_link import ExpectedRoundTrips
from mirrormaker.flow.route_parts import RouteParts
from mirrormaker.flow.timing.route_timing import RouteTiming
from mirrormaker.ledger.return_ledger import ReturnLedger
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.reconcile.adoption import Adoption
from mirrormaker.reconcile.former_group import bring_positions
from mirrormaker.reconcile.former_topics import FormerTopics
from mirrormaker.reconcile.position_places import place_record
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.reconcile.rule_keeper import RuleKeeper
from mirrormaker.reconcile.switch_board import SwitchBoard
from mirrormaker.reconcile.topic_watch import TopicWatch
from mirrormaker.reconcile.topics import TopicReconciler
from mirrormaker.route_description import describe_counts, describe_work
from mirrormaker.route_surroundings import RouteSurroundings
from mirrormaker.topology.model import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConnections:
    """What is open as long as a route works."""

    source: Cluster
    destination: Cluster
    origins: OriginRegistry | None
    """Of a route with provenance: where records have been."""
    coordination: Coordination | None
    """A session with the source's ZooKeeper, when that is where the group meets."""


class WorkingRoute:
    """See the module. `begin`, then `run`, until `close`."""

    def __init__(
        self,
        work: RouteWork,
        open_: RouteConnections,
        around: RouteSurroundings,
        events: RouteEvents,
        timing: RouteTiming,
    ) -> None:
        self.work = work
        self._open = open_
        self._around = around
        self._events = events
        self._timing = timing
        source, destination, route = open_.source, open_.destination, work.route
        self._plan_origins()
        self._halts = around.halts_of(work)
        self._ledger = RouteLedger(route, source, destination, around.clock)
        self.copier = self._make_copier()
        self._ledger.note, self._ledger.on_begun_anew = self.copier.note, events.note_begun_anew
        self._carriage = HeartbeatCarriage(source, destination, self.copier.set_topics, events)
        self.reconciler = self._make_reconciler()
        timing.is_blind = lambda: self.reconciler.is_blind
        self._rules = RuleKeeper(route, source, destination, lambda: self.reconciler.topics, events)
        self._carrier = make_carrier(lambda: self.work, open_, self._ledger, self.copier.ways, around.switch)
        self._audit = AuditWatch(
            lambda: self.work.route,
            work.source,
            source,
            destination,
            self._ledger,
            self.copier.ways,
            around.clock,
        )

    def _make_copier(self) -> RouteCopier:
        route, around = self.work.route, self._around
        return RouteCopier(
            route,
            self._open.source,
            self._open.destination,
            around.clock,
            around.links.of(route.source, route.destination),
            _expected(self.work),
            RouteParts(
                instance_id=around.identity.instance_of(self.work.name),
                halts=self._halts,
                events=self._events,
                timing=self._timing,
                look_at_topics=lambda: self.reconciler.look_soon(),
                heartbeats=self._make_passage(),
                books=self._ledger,
                origins=self._open.origins,
                coordination=self._open.coordination,
                find_beside=lambda: self.work.beside,
            ),
        )

    def _make_passage(self) -> HeartbeatPassage | None:
        route = self.work.route
        if not route.heartbeats:
            return None
        here = self._open.source.cluster_id or route.source
        there = self._open.destination.cluster_id or route.destination
        return HeartbeatPassage(here, there, route.name, self._around.clock.now_ms)

    def _make_reconciler(self) -> TopicReconciler:
        source, destination, around = self._open.source, self._open.destination, self._around
        former = FormerTopics(source, destination, self._ledger)
        return TopicReconciler(
            self.work,
            source,
            destination,
            around.claims,
            self._carriage.set_topics,
            TopicWatch(source, self._halts, former, self.copier.arbiter, around.clock),
            Adoption(self.work.source, source, destination, around.board),
            self._events,
            CircleWatch(
                self.work.name,
                around.identity.topology,
                lambda topology: around.cluster_ids.known(topology.clusters),
            ),
            self._timing.appearances,
        )

    async def begin(self) -> None:
        """Have all that a route needs before it copies: positions, topics, and who writes them. Raises
        BrokerError.
        """
        await self._bring_positions()
        self.pause_topics()
        if self.work.route.heartbeats:
            await self._carriage.begin()
        await self.reconciler.look()

    async def _bring_positions(self) -> None:
        """Have the group stand where the route stands, if that met elsewhere before. Raises BrokerError."""
        route, board, source = self.work.route, self._around.board, self._open.source
        said = (await board.wishes(route.name)).positions
        count = await bring_positions(route, self.work.source, source, said, self._note_lost)
        if count is not None:
            await board.put([place_record(route.name, route.membership)])
        if count:
            self._events.note_end("positions_brought", membership=route.membership.value, partitions=count)

    async def _note_lost(self, lost: Mapping[TopicPartition, Arrears]) -> None:
        """What at most once lost before. Raises BrokerError."""
        notes = LossNotes(self.work.name, self._open.destination, self._around.clock)
        await notes.write(losses_of(lost))
        for source, each in lost.items():
            fact = RecordsMaybeLost(
                source=source, first=each.first, next=each.next, count=each.count, error=None
            )
            self._events.note(EVENT_NAMES[type(fact)], **details_of(fact))

    async def run(self) -> None:
        """All at work until the copier is closed, or one of its ends is another cluster; one that the file
        expects is waited for.
        """
        ends = (self._open.source, self.work.source), (self._open.destination, self.work.destination)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self.reconciler.run(), name="reconcile"),
                tasks.create_task(self._ledger.run(), name="ledger"),
                tasks.create_task(self._rules.run(), name="access rules"),
                tasks.create_task(self._audit.run(), name="audit"),
                *(
                    tasks.create_task(await_displacement(end), name=f"identity of {spec.name}")
                    for end, spec in ends
                    if spec.cluster_id is None
                ),
            ]
            if self.work.route.heartbeats:
                beside.append(tasks.create_task(self._carriage.run(), name="heartbeats"))
            if self._carrier is not None:
                beside.append(tasks.create_task(self._carrier.run(), name="groups"))
            back = self.work.way_back
            if back is not None and back.delivery is Delivery.EXACTLY_ONCE:
                beside.append(tasks.create_task(make_ready(self._open.source, back), name="way back"))
            await self.copier.run()
            for task in beside:
                task.cancel()

    async def close(self, *, for_good: bool) -> None:
        """End `run`; what is in flight is finished and committed. `for_good`: other processes of the group
        get its partitions at once.
        """
        await self.copier.close(for_good=for_good)

    def change(self, work: RouteWork) -> None:
        """Go on with other topics, bounds and intervals; whatever is copied goes on being copied."""
        self.work = work
        self._halts.change(work)
        self._ledger.change(work.route)
        self.copier.change(work.route, _expected(work))
        self.reconciler.change(work)
        self._rules.change(work.route)
        self._audit.change()
        self._plan_origins()

    def _plan_origins(self) -> None:
        if self._open.origins is not None:
            self._open.origins.plan(self.work.mesh.ways, self.work.mesh.clusters)

    def heed_wishes(self) -> None:
        """Do what is wished of topics and partitions."""
        self.pause_topics()
        if self.reconciler.obstacles:
            self.reconciler.look_soon()
        self.copier.look_again()

    def pause_topics(self) -> None:
        """Those that somebody wishes to rest, and no others."""
        self.reconciler.pause(self._around.board.known_wishes(self.work.name).topics)

    def describe(self) -> dict[str, Any]:
        """How it copies, as plain data."""
        return describe_work(self.copier, self.reconciler, self._rules, self._timing)

    def describe_books(self) -> dict[str, dict[str, Any]]:
        """What it knows of what has been copied, also when it works no more."""
        description = {
            "counts": describe_counts(self.copier),
            "ledger": self._ledger.describe(),
            "audit": self._audit.describe(),
        }
        if self._carrier is not None:
            description["groups"] = self._carrier.describe()
        return description


def make_carrier(
    find_work: Callable[[], RouteWork],
    open_: RouteConnections,
    ledger: RouteLedger,
    owned: Callable[[], Mapping[TopicPartition, TopicPartition]],
    switch: SwitchBoard | None,
) -> GroupCarrier | None:
    """What carries groups; None where none are. `owned`: what this process copies, and where to."""
    work = find_work()
    groups = work.route.sync.groups
    if groups is None:
        return None
    return GroupCarrier(
        groups,
        open_.source,
        open_.destination,
        ledger,
        owned,
        ReturnLedger(open_.source, open_.destination) if work.back else None,
        brings_back=lambda to: find_work().brings_back(to),
        may_move=lambda: switch is None or switch.carries(),
        find_unread=lambda: {} if switch is None else switch.unread(),
    )


def _expected(work: RouteWork) -> ExpectedRoundTrips:
    return ExpectedRoundTrips(source=work.source.round_trip_ms, destination=work.destination.round_trip_ms)
