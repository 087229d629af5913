"""Keeps the access rules of a route's copies in step with those of its source, where `sync.acls` says so.

The rules of both ends are read every few looks at topics, and at once when other topics are copied. What the
destination lacks is added, or told as drift where `sync.repair` does not name `acls`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.client.access_rule import AccessRule
from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.flow.signal import Signal
from mirrormaker.plan.render import describe_rule
from mirrormaker.plan.rules import RuleScope, lacking_rules
from mirrormaker.plan.steps import AddRules
from mirrormaker.reconcile.drift import LEFT_TO_APPLY, Drift, News, tell_news
from mirrormaker.topology.group_selection import GroupSelection
from mirrormaker.topology.model import RepairKind, RouteSpec

LOOKS_BETWEEN_RULES = 7
_NO_RULES = {
    ErrorCode.SECURITY_DISABLED: "it has no authoriser, and so none",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the mirror lacks the right to {right} the cluster",
    ErrorCode.UNSUPPORTED_VERSION: "it tells none: it has none, or is too old",
}


class RuleKeeper:
    """The loop of one route. `news` is told of what comes and goes."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        topics: Callable[[], Mapping[str, str]],
        news: News,
    ) -> None:
        """`topics`: what is copied, source name to destination name."""
        self.drift: tuple[Drift, ...] = ()
        """What the destination lacks and is left so."""
        self.problem: str | None = None
        """Why rules are not carried over just now."""
        self._route = route
        self._source = source
        self._destination = destination
        self._topics = topics
        self._news = news
        self._due = Signal()
        self._looks_left = 0
        self._log = logger("rules").bind(route=route.name)

    def change(self, route: RouteSpec) -> None:
        """Go on by this route, and look at once."""
        self._route = route
        self._looks_left = 0
        self._due.set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        seen: frozenset[str] = frozenset()
        while True:
            copied = frozenset(self._topics().values())
            self._looks_left -= 1
            if self._route.sync.acls and (copied != seen or self._looks_left < 0):
                seen, self._looks_left = copied, LOOKS_BETWEEN_RULES
                await self._try()
            await self._due.wait(self._route.refresh_interval_ms)

    async def _try(self) -> None:
        try:
            await self.look()
            self.problem = None
        except BrokerError as error:
            if self.problem != str(error):
                self._news.note("access_rules_not_carried", error=str(error))
            self.problem = str(error)

    async def look(self) -> None:
        """Compare once, and add what is lacking. Raises BrokerError, in words for people."""
        sync = self._route.sync
        scope = RuleScope(topics=self._topics(), groups=await self._groups(), moves=sync.write_acls)
        here = await self._read(self._source, self._route.source)
        there = await self._read(self._destination, self._route.destination)
        lacking = lacking_rules(here, there, scope)
        if RepairKind.ACLS not in sync.repair:
            self._tell_drift([self._drift(rule, LEFT_TO_APPLY) for rule in lacking])
            return
        self._tell_drift(await self._add(lacking) if lacking else [])

    async def _add(self, rules: Sequence[AccessRule]) -> list[Drift]:
        try:
            outcomes = await AclAdmin(self._destination).add_rules(rules)
        except ProtocolError as error:
            raise _explained(error, self._route.destination, "alter") from error
        left = []
        for rule, refusal in zip(rules, outcomes, strict=True):
            if refusal is None:
                self._log.info("access_rule_added", rule=describe_rule(rule))
            else:
                left.append(self._drift(rule, str(_explained(refusal, self._route.destination, "alter"))))
        return left

    async def _read(self, cluster: Cluster, name: str) -> list[AccessRule]:
        try:
            return await AclAdmin(cluster).rules()
        except ProtocolError as error:
            raise _explained(error, name, "describe") from error

    async def _groups(self) -> tuple[str, ...]:
        """Groups of the source that are carried over."""
        groups = self._route.sync.groups
        if groups is None:
            return ()
        listed = [group.group_id for group in await Admin(self._source).list_groups()]
        return tuple(filter(GroupSelection(groups).selects, listed))

    def _drift(self, rule: AccessRule, reason: str) -> Drift:
        return Drift(step=AddRules(cluster=self._route.destination, rules=(rule,)), reason=reason)

    def _tell_drift(self, now: Sequence[Drift]) -> None:
        tell_news(self._news, self.drift, now)
        self.drift = tuple(now)


def _explained(error: ProtocolError, cluster: str, right: str) -> ProtocolError:
    told = _NO_RULES.get(error.code)
    message = error.message if told is None else told.format(right=right)
    return ProtocolError(error.code, f"access rules of cluster {cluster!r}: {message}")
