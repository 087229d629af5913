"""The two clusters of a failover group as a command sees them: which answer, and what was switched last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError, ConnectionFailedError
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control import RouteWishes, read_wishes
from mirrormaker.reconcile.control_records import control_records, this_user
from mirrormaker.reconcile.switches import (
    Side,
    Stage,
    Switch,
    latest,
    read_switches,
    switch_key,
    switch_value,
)
from mirrormaker.topology.failover_groups import FailoverGroup, failover_groups
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, Topology


class FailoverError(BrokerError):
    """The group cannot be switched so: the message says why, and what helps. Nothing has been lost."""


class GaveWayError(FailoverError):
    """Somebody else has switched the group meanwhile: what is left to do is theirs."""


def find_group(topology: Topology, name: str) -> FailoverGroup:
    """The group of that name, or of the route of that name. Raises ConfigurationError."""
    groups = failover_groups(topology)
    if name in groups:
        return groups[name]
    for route in topology.routes:
        if route.name == name:
            if route.failover_group is None:
                raise ConfigurationError([f"the route {name!r} is in no failover group"])
            return groups[route.failover_group]
    if not groups:
        raise ConfigurationError(["no route of the file has a 'failover_group'"])
    close = get_close_matches(name, groups, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f": there are {', '.join(groups)}"
    raise ConfigurationError([f"there is no failover group {name!r}{hint}"])


@dataclass(slots=True, kw_only=True)
class Sides:
    """See the module."""

    topology: Topology
    group: FailoverGroup
    clock: Clock
    clusters: dict[Side, Cluster] = field(default_factory=dict)
    """Those that answer."""
    problems: dict[Side, str] = field(default_factory=dict)
    """Why the others do not."""
    unwritable: set[Side] = field(default_factory=set)
    """Those of the others that can be read."""
    switch: Switch
    """The last one."""
    found: dict[Side, Switch | None] = field(default_factory=dict)
    """What each side that answers says of it."""
    wishes: dict[RouteName, RouteWishes] = field(default_factory=dict)
    control: dict[Side, KeptTopic] = field(default_factory=dict)
    """The control topics, while a command holds the group (`hold`)."""

    def name(self, side: Side) -> ClusterName:
        """What the file calls the cluster."""
        return self.group.home if side is Side.HOME else self.group.standby

    def leaving(self, side: Side) -> tuple[RouteSpec, ...]:
        """Routes that lead from there to the other side."""
        return self.group.leaving(self.name(side))

    def cluster(self, side: Side) -> Cluster:
        """Raises ConnectionFailedError for one that does not answer."""
        if side not in self.clusters:
            raise ConnectionFailedError(self.problems[side])
        return self.clusters[side]

    def lose(self, side: Side, problem: str) -> None:
        """Go on without a side."""
        self.problems[side] = problem
        del self.clusters[side]

    def look(self) -> None:
        """Take in what the control topics say now, as far as read. Raises BrokerError."""
        for side, topic in self.control.items():
            self.take(side, topic.entries())
        self.switch = latest(switch for switch in self.found.values() if switch is not None)

    def take(self, side: Side, records: Iterable[tuple[Document, Document]]) -> None:
        """What the control topic of a side says of the group."""
        self.found[side] = read_switches(records).get(self.group.name)

    @property
    def differ(self) -> bool:
        """Whether a side that answers does not know of the last switch."""
        return self.switch.revision > 0 and any(self.found[side] != self.switch for side in self.clusters)

    def why_not(self, target: Side, *, force: bool = False) -> str | None:
        """Why the group cannot be switched there as it stands; None where it can. `force`: also without the
        side that is left.
        """
        now, old, name = self.switch, target.other, self.group.name
        if now.side is target and now.stage is Stage.SETTLED:
            since = f", epoch {now.epoch}, by {now.by}" if now.epoch else " and has never been elsewhere"
            return f"the group {name!r} is at {self.name(target)!r} already{since}"
        if now.side is target and now.stage is Stage.AWAY and old not in self.clusters:
            return (
                f"the group {name!r} is at {self.name(target)!r} already; {self.name(old)!r} is still away:"
                f" {self.problems[old]}"
            )
        if now.side is old and now.stage is Stage.SWITCHING and (old in self.clusters or not force):
            helps = "by the same command again"
            if old not in self.clusters:
                helps = f"or say --force: {self.problems[old]}"
            return (
                f"the group {name!r} is being switched to {self.name(old)!r} by {now.by}: end that first,"
                f" {helps}"
            )
        return None

    def why_forced(self, target: Side) -> str | None:
        """Why the group is switched there by force alone; None where it need not be."""
        old = target.other
        if old in self.clusters or self.calls_off(target):
            return None
        return (
            f"{self.problems[old]}: what it has and {self.name(target)!r} has not would stay there:"
            " see --dry-run, then say --force"
        )

    def calls_off(self, target: Side) -> bool:
        """Whether a switch there takes back one that has copied nothing to its end yet."""
        return self.switch.side is target.other and self.switch.stage is Stage.DRAINING

    async def look_alone(self) -> None:
        """`check_alone`, of control topics read to their ends: whoever was stopped for a while finds out
        what others have done. Raises BrokerError.
        """
        for topic in self.control.values():
            await topic.read_to_end()
        self.check_alone()

    def check_alone(self) -> None:
        """Raises GaveWayError where somebody else has switched the group, as far as read."""
        before = self.switch
        self.look()
        if self.switch.rank < before.rank:
            self.switch = before  # what was recorded here has not been read again yet
        if (self.switch.rank, self.switch.by) != (before.rank, before.by):
            raise GaveWayError(
                f"the group {self.group.name!r} was switched by another command meanwhile: it is"
                f" {self.switch.stage.value} at {self.name(self.switch.side)!r}, by {self.switch.by}"
            )

    async def record(self, switch: Switch) -> None:
        """Have this hold from now on, at every side that answers. Raises GaveWayError where somebody else
        has switched the group meanwhile, FailoverError where a side cannot be written to.
        """
        side = None
        switch = replace(switch, revision=self.switch.revision + 1, at_ms=self.clock.now_ms(), by=this_user())
        try:
            for side, topic in self.control.items():  # noqa: B007 told where it fails
                await topic.read_to_end()
            self.check_alone()
            for side, topic in self.control.items():
                await topic.put([(switch_key(self.group.name), switch_value(switch))])
                self.found[side] = self.switch = switch
        except FailoverError:
            raise
        except BrokerError as error:
            where = "" if side is None else f"cluster {self.name(side)!r}: "
            raise FailoverError(f"{where}the switch cannot be recorded there: {error}") from error


@asynccontextmanager
async def open_sides(topology: Topology, group: FailoverGroup, clock: Clock) -> AsyncIterator[Sides]:
    """Both clusters, as far as they answer. Raises FailoverError when none does."""
    sides = Sides(topology=topology, group=group, clock=clock, switch=Switch())
    async with AsyncExitStack() as stack:
        for side in Side:
            spec = topology.clusters[sides.name(side)]
            try:
                cluster = await stack.enter_async_context(open_cluster(spec))
                records = await control_records(cluster)
            except BrokerError as error:
                sides.problems[side] = str(error)
                continue
            sides.clusters[side] = cluster
            sides.wishes |= read_wishes(records)
            sides.take(side, records)
        if not sides.clusters:
            told = "; ".join(sides.problems.values())
            raise FailoverError(f"neither cluster of the group {group.name!r} answers: {told}")
        _check_generation(sides)
        sides.look()
        yield sides


def _check_generation(sides: Sides) -> None:
    """Raises ConfigurationError for a file that is older than what the routes are run by."""
    problems = [
        f"route {route.name!r} is run by generation {claim.generation} of the topology, by the daemon"
        f" {claim.daemon} on {claim.host}: this file is {sides.topology.generation}"
        for route in sides.group.routes
        if (claim := sides.wishes.get(route.name, RouteWishes()).claim) is not None
        and claim.generation > sides.topology.generation
    ]
    if problems:
        raise ConfigurationError(problems)
