"""The audit that a daemon does of itself: every `audit_window` what a route has copied since is judged by the
ledger, for the partitions that this process copies. A task of the route's event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.audit.findings import Difference, DifferenceKind, Outcome
from mirrormaker.audit.gap_audit import Lane
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView, view_route
from mirrormaker.audit.running_findings import DIFFERENCES_SHOWN, RunningFindings
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.flow.signal import Signal
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.topology.model import ClusterSpec, Delivery, RouteSpec


class AuditWatch:
    """See the module. Clusters come started."""

    def __init__(
        self,
        route: Callable[[], RouteSpec],
        spec: ClusterSpec,
        source: Cluster,
        destination: Cluster,
        ledger: RouteLedger,
        owned: Callable[[], Collection[TopicPartition]],
        clock: Clock,
    ) -> None:
        """`route`: as it is now. `owned`: the source partitions that this process copies."""
        self.problem: str | None = None
        """Why it could not be judged the last time, or not all of it."""
        self.audits = 0
        self.audited_at_ms: int | None = None
        self._route = route
        self._spec = spec
        self._source = source
        self._destination = destination
        self._ledger = ledger
        self._owned = owned
        self._clock = clock
        self._changed = Signal()
        self._found = RunningFindings()
        self._audited: Collection[TopicPartition] = ()
        """The partitions that the last audit was of: what became of others is told by who has them."""
        self._judged: dict[TopicPartition, int] = {}
        """Source offsets before these have been judged."""
        self._severed: Mapping[TopicPartition, Collection[Range]] = {}
        """What the source had lost of them after it was copied, the last time."""
        self._emptied: Collection[TopicPartition] = ()
        """Those whose copies were found to be in a topic that was made anew the last time."""
        self._looked_to: Mapping[Lane, int] = {}
        """The same of destination offsets that no page knows of, by lane."""
        self._ends: Mapping[TopicPartition, int] = {}
        """Where partitions of the destination ended the last time."""
        self._ids_here: dict[str, TopicId] = {}
        self._ids_there: dict[str, TopicId] = {}
        """Of topics of the source, and of the destination, as they were the last time."""
        self._log = logger("audit").bind(route=route().name)

    async def run(self) -> None:
        """Audit every window, until cancelled. Copying goes on whatever befalls an audit."""
        while True:
            span_ms = self._route().objectives.audit_window_ms
            if await self._changed.wait(span_ms - self._clock.now_ms() % span_ms):
                continue
            try:
                await self.audit()
            except BrokerError as error:
                self.problem = str(error)
                self._log.info("audit_put_off", error=str(error))
            except Exception as error:  # noqa: BLE001 of a check alone: whatever fails is told, and tried again
                self.problem = f"a fault of the program, which its log tells of: {error!r}"
                self._log.error("audit_failed", exc_info=error)

    def change(self) -> None:
        """The route may have another window: it counts from now on."""
        self._changed.set()

    async def audit(self) -> None:
        """Judge what has been copied since the last time. Raises BrokerError when that cannot be done now."""
        route, owned = self._route(), frozenset(self._owned())
        if not self._ledger.is_read:
            self.problem = self._ledger.problem or "the ledger has not been read yet"
            return
        view = await view_route(
            route,
            self._spec,
            self._source,
            self._destination,
            TimeWindow(),
            {each.topic for each in owned},
            ledger=self._ledger.view,
        )
        self._heed_recreated(view)
        windows = {each: self._window(view, each) for each in view.partitions if each in owned}
        judged = LedgerAudit(
            replace(view, windows={**view.windows, **windows}, to_ends=self._written_ends(view)),
            self._looked_to,
        )
        problems: list[str] = []
        for each, window in windows.items():
            found = await judged.partition(each, ())
            problems += [] if found.problem is None else [f"{each}: {found.problem}"]
            self._found.take(each, found.findings)
            for difference in found.findings.differences[:DIFFERENCES_SHOWN]:
                self._note(difference)
            self._judged[each], self._looked_to = window.next, dict(judged.looked_to)
        self._audited, self._ends = frozenset(windows), view.to_ends
        self.problem = "; ".join(problems) or None
        self.audits += 1
        self.audited_at_ms = self._clock.now_ms()

    def _heed_recreated(self, view: RouteView) -> None:
        """Begin anew with what was made anew since the last time: a topic of either side has another id then,
        or ends before what was judged, or its log was cut since. So with topics that were not copied here the
        last time. The ledger tells of the newest copies only after they have come: what is judged anew for
        the destination's sake is once more the next time.
        """
        here = _recreated(self._source, {each.topic for each in view.partitions}, self._ids_here)
        there = _recreated(self._destination, {to.topic for to in view.to_ends}, self._ids_there)
        known, severed = self._looked_to.items(), _severed(view)
        emptied = {source for (source, to), at in known if self._is_recreated(view, to, there, at)}
        for source, judged in list(self._judged.items()):
            is_left = source not in severed
            is_cut = severed.get(source) != self._severed.get(source, severed.get(source))
            is_recreated = source.topic in here or source in emptied or source in self._emptied
            if is_left or is_recreated or is_cut or judged > view.ends[source]:
                del self._judged[source]
                self._found.forget(source)
        self._severed, self._emptied = severed, emptied
        self._looked_to = {(source, to): at for (source, to), at in known if source in self._judged}
        self._ends = {to: end for to, end in self._ends.items() if to.topic not in there}

    def _is_recreated(
        self, view: RouteView, to: TopicPartition, there: Collection[str], looked_to: int
    ) -> bool:
        """Of a topic with an id that alone tells: a new leader may tell an end of before for a moment."""
        has_id = self._ids_there.get(to.topic, NO_TOPIC_ID) != NO_TOPIC_ID
        return to.topic in there or (not has_id and looked_to > view.to_reached.get(to, looked_to))

    def _window(self, view: RouteView, source: TopicPartition) -> Range:
        """From where it was judged last up to where the route has come, by its position with all lanes."""
        whole = view.windows[source]
        judged = max(self._judged.get(source, whole.first), whole.first)
        told = (view.positions.get(source), view.copied_to(source))
        reached = min(each for each in (*told, whole.next) if each is not None)
        return Range(judged, max(reached, judged))

    def _written_ends(self, view: RouteView) -> Mapping[TopicPartition, int]:
        """Up to where the ledger knows what stands at the destination. At most once it is written a while
        after the records: what has come since the last time is for the next.
        """
        if view.route.delivery is not Delivery.AT_MOST_ONCE:
            return view.to_ends
        return {to: min(self._ends.get(to, 0), end) for to, end in view.to_ends.items()}

    def _note(self, difference: Difference) -> None:
        self._ledger.note(
            "audit_difference_found",
            kind=difference.kind.value,
            source=str(difference.source),
            offset=difference.source_offset,
            destination=str(difference.destination),
            to_offset=difference.destination_offset,
            count=difference.count,
        )

    def describe(self) -> dict[str, Any]:
        """For `status` and metrics."""
        findings = self._found.total(self._audited)
        return {
            "window_ms": self._route().objectives.audit_window_ms,
            "audits": self.audits,
            "at_ms": self.audited_at_ms,
            "problem": self.problem,
            "records": findings.records,
            "equal": findings.equal,
            "outcomes": {each.value: findings.outcomes[each] for each in Outcome},
            "differences": {each.value: findings.differing[each] for each in DifferenceKind},
            "found": [each.document() for each in findings.differences],
        }


def _severed(view: RouteView) -> dict[TopicPartition, list[Range]]:
    """By partition of the source, what it lost after it was copied."""
    severed: dict[TopicPartition, list[Range]] = {each: [] for each in view.partitions}
    for (source, _), passes in view.severed.items():
        if source in severed:
            severed[source] += [each.source for each in passes]
    return severed


def _recreated(cluster: Cluster, topics: Collection[str], known: dict[str, TopicId]) -> set[str]:
    """Of these, topics with another id than is known; then `known` has the ids of all. Nodes that are older
    than others of their cluster tell no ids.
    """
    told = ((topic, cluster.topics[topic].topic_id) for topic in topics if topic in cluster.topics)
    ids = {topic: topic_id for topic, topic_id in told if topic_id != NO_TOPIC_ID}
    recreated = {topic for topic, topic_id in ids.items() if known.get(topic, topic_id) != topic_id}
    known |= ids
    return recreated
