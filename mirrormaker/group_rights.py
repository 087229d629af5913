"""What becomes of a route whose source does not let it take part in its own group, by its policy for missing
rights: told of, and tried again until the right is there; or, where the policy is `fail`, stopped until
somebody resumes it. Owned by the route's runner.
"""

from __future__ import annotations

import asyncio

from broker.errors import BrokerError
from mirrormaker.flow.copier import RouteCopier
from mirrormaker.flow.group_refusal import group_refusal
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.trouble import Trouble, policy_for
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.topology.model import FailurePolicy, RouteSpec

LOOK_INTERVAL_MS = 500


class GroupRights:
    """See the module."""

    def __init__(self, events: RouteEvents) -> None:
        self.trouble: Trouble | None = None
        """What stands in the way just now."""
        self._events = events

    async def meet(self, error: Exception, route: RouteSpec, halts: RouteHalts) -> None:
        """The route failed by this error."""
        trouble = group_refusal(error, route)
        if trouble is None:
            return
        policy = policy_for(trouble.kind, route.on)
        if self.trouble is None:
            self._events.note(
                "trouble_met",
                reason=trouble.kind.value,
                policy=policy.value,
                group=route.group,
                problem=trouble.problem,
            )
        self.trouble = trouble
        if policy is FailurePolicy.FAIL:
            try:
                await halts.tell(trouble, stops_route=True)
            except BrokerError as failure:
                self._events.note("halt_not_told", group=route.group, error=str(failure))

    async def watch(self, copier: RouteCopier, halts: RouteHalts) -> None:
        """Return once the route takes part in its group, where it could not."""
        while self.trouble is not None:
            if copier.generation >= 0:
                await self._passed(self.trouble, halts)
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    async def _passed(self, trouble: Trouble, halts: RouteHalts) -> None:
        self.trouble = None
        self._events.note_end("trouble_passed", reason=trouble.kind.value)
        if halts.standing(trouble.source) is not None:
            try:
                await halts.take_back(trouble.source)
            except BrokerError as failure:
                self._events.note("halt_not_taken_back", error=str(failure))
