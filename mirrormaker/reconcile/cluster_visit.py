"""One visit to one cluster: everything that there is to ask it for a plan. What it does not tell becomes a
problem of the picture, and the picture goes on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Self, TypeVar

from broker.client.access_rule import AccessRule
from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.config_admin import ConfigEntry
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.log_sizes import leader_log_sizes
from broker.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets, list_offsets_found
from broker.client.operations import CREATE, DESCRIBE_CONFIGS
from broker.client.rights import Rights, read_rights
from broker.clock import Clock
from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.missing_rights import explained
from mirrormaker.plan.topics import select_topics
from mirrormaker.plan.world import DAY_MS, MissingRights, ObservedCluster, PartitionTraffic
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.reconcile.control_records import control_records
from mirrormaker.reconcile.kept_positions import KeptPositions, read_positions
from mirrormaker.reconcile.moved_copies import moved_copies
from mirrormaker.reconcile.observed_topics import topics_of
from mirrormaker.reconcile.own_rights import (
    creatable_topics,
    kept_topics,
    missing_at_destination,
    missing_at_source,
)
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteSpec, StartAtTime, Topology
from mirrormaker.topology.naming import compile_naming

TOPICS_A_REQUEST = 500
QUERY_TIMEOUT_MS = 20_000
_T = TypeVar("_T")


class ClusterVisit:
    """See the module. `begin` makes one."""

    def __init__(self, cluster: Cluster, spec: ClusterSpec, clock: Clock) -> None:
        self.spec = spec
        self.topics = topics_of(cluster.metadata)
        """All that the cluster lets see, without details."""
        self.cluster = cluster
        self._clock = clock
        self._admin = Admin(cluster, timeout_ms=QUERY_TIMEOUT_MS)
        self._problems: list[str] = []
        self._is_open = False

    @classmethod
    async def begin(cls, cluster: Cluster, spec: ClusterSpec, clock: Clock) -> Self:
        """Ask which topics there are. Raises BrokerError."""
        await cluster.refresh()
        return cls(cluster, spec, clock)

    async def finish(
        self, topology: Topology, wanted: Collection[str], ids: Mapping[ClusterName, str | None]
    ) -> ObservedCluster:
        """Ask about the wanted topics, and what routes from and to here have to do with the cluster. `ids`:
        of the clusters that answered.
        """
        routes = [route for route in topology.routes if route.enabled]
        leaving = [route for route in routes if route.source == self.spec.name]
        touching = [route for route in routes if self.spec.name in (route.source, route.destination)]
        await self._look_for_hidden({*wanted, *(name for route in leaving for name in self._unseen(route))})
        names = [name for name in sorted(wanted) if name in self.topics and not self.topics[name].error]
        described = topics_of(self.cluster.metadata, await self._settings(names))
        traffic = await self._traffic(names)
        rights = await self._try(read_rights(self.cluster, names), "rights", Rights())
        kept = {
            each for route in touching if route.destination == self.spec.name for each in kept_topics(route)
        }
        creatable = await self._creatable(rights, {*wanted, *kept} - self.topics.keys())
        details = {
            name: replace(described[name], traffic=traffic.get(name, {}), rights=rights.topics.get(name))
            for name in names
        }
        told = {route.name: await self._positions(route) for route in leaving}
        committed = {name: found or {} for name, found in told.items()}
        return ObservedCluster(
            name=self.spec.name,
            cluster_id=self.cluster.cluster_id,
            nodes=len(self.cluster.metadata.nodes),
            topics={**self.topics, **details},
            positions={name: _by_topic(found) for name, found in committed.items()},
            untold=frozenset(name for name, found in told.items() if found is None),
            moved={
                route.name: moved_copies(_texts(committed[route.name]), route, ids.get(route.destination))
                for route in leaving
            },
            starts={route.name: await self._starts(route) for route in leaving},
            punctual={route.name: await self._punctual(route) for route in leaving},
            control=await self._control() if len(touching) > len(leaving) else (),
            groups=await self._groups() if any(route.sync.groups for route in leaving) else None,
            rules=await self._rules() if any(route.sync.acls for route in touching) else None,
            is_open=self._is_open,
            rights=rights.cluster,
            creatable=creatable or frozenset(),
            missing_rights=await self._missing_rights(touching, creatable),
            problems=tuple(self._problems),
        )

    def _unseen(self, route: RouteSpec) -> Collection[str]:
        return compile_naming(route.source, route.topics).unseen(self.topics)

    async def _look_for_hidden(self, names: Collection[str]) -> None:
        """Topics that the cluster leaves out where it is asked for all are refused where they are named."""
        metadata = await self.cluster.refresh(set(names) - self.topics.keys())
        found = topics_of(metadata)
        self.topics |= {name: found[name] for name in names if name in found and found[name].is_hidden}

    async def _settings(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        found: dict[str, dict[str, ConfigEntry]] = {}
        listed = sorted(names)
        for start in range(0, len(listed), TOPICS_A_REQUEST):
            some = listed[start : start + TOPICS_A_REQUEST]
            answers = await self._try(self._admin.describe_topics_configs(some), "settings of topics", {})
            refused = [
                explained(answer, self.spec.name, name, DESCRIBE_CONFIGS)
                for name, answer in answers.items()
                if isinstance(answer, ProtocolError)
            ]
            if refused:
                self._problems.append(f"settings of {len(refused)} topics: {refused[0]}")
            found |= {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        return found

    async def _traffic(self, names: Collection[str]) -> dict[str, dict[int, PartitionTraffic]]:
        """What is in the topics' partitions; those without a leader are left out."""
        led = self._led(names)
        starts = await self._offsets(led, EARLIEST)
        ends = await self._offsets(led, LATEST)
        now_ms = self._clock.now_ms()
        days = await self._found_by_time(led, now_ms - DAY_MS)
        sizes, problem = await leader_log_sizes(self.cluster, led)
        if problem is not None:
            self._problems.append(f"log sizes: {problem}")
        traffic: dict[str, dict[int, PartitionTraffic]] = defaultdict(dict)
        for partition in starts.keys() & ends.keys():
            traffic[partition.topic][partition.partition] = _partition_traffic(
                starts[partition], ends[partition], days.get(partition), sizes.get(partition), now_ms
            )
        return traffic

    def _led(self, names: Collection[str]) -> list[TopicPartition]:
        return [
            partition
            for partition in self.cluster.metadata.topic_partitions(names)
            if self.cluster.leader(partition) is not None
        ]

    async def _found(
        self, partitions: Iterable[TopicPartition], when: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        asked = list_offsets(self.cluster, dict.fromkeys(partitions, when), timeout_ms=QUERY_TIMEOUT_MS)
        return await self._try(asked, "offsets", {})

    async def _found_by_time(
        self, partitions: Iterable[TopicPartition], when_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Without those of which the cluster does not tell it, as of logs in formats that keep no times."""
        wanted = dict.fromkeys(partitions, when_ms)
        found, failures = await list_offsets_found(self.cluster, wanted, timeout_ms=QUERY_TIMEOUT_MS)
        refused = [error for error in failures.values() if isinstance(error, ProtocolError)]
        for error in failures.values():
            if not isinstance(error, ProtocolError):
                raise error
        if refused:
            self._problems.append(f"offsets by time of {len(refused)} partitions: {refused[0]}")
        return found

    async def _offsets(self, partitions: Iterable[TopicPartition], when: int) -> dict[TopicPartition, int]:
        return _places(await self._found(partitions, when))

    async def _positions(self, route: RouteSpec) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """None: it does not tell."""
        selected = select_topics(compile_naming(route.source, route.topics), self.topics.values())
        partitions = self.cluster.metadata.topic_partitions(sorted(selected))
        async with route_group(route, self.spec, self.cluster, timeout_ms=QUERY_TIMEOUT_MS) as group:
            asked = group.group_offsets(route.group, partitions)
            return await self._try(asked, f"positions of {route.name!r}", None)

    async def _starts(self, route: RouteSpec) -> Mapping[TopicPartition, int]:
        """Where it starts, if at a time."""
        if not isinstance(route.start, StartAtTime):
            return {}
        selected = select_topics(compile_naming(route.source, route.topics), self.topics.values())
        return _places(await self._found_by_time(self._led(selected), route.start.timestamp_ms))

    async def _punctual(self, route: RouteSpec) -> Mapping[TopicPartition, int]:
        """Where what is younger than the route's lag objective begins."""
        if route.objectives.lag_seconds is None:
            return {}
        selected = select_topics(compile_naming(route.source, route.topics), self.topics.values())
        promised_ms = self._clock.now_ms() - route.objectives.lag_seconds * 1000
        return _places(await self._found_by_time(self._led(selected), promised_ms))

    async def _control(self) -> tuple[tuple[Document, Document], ...]:
        if CONTROL_TOPIC not in self.topics:
            return ()
        return tuple(await self._try(control_records(self.cluster), "what is said of routes", []))

    async def kept_positions(self) -> KeptPositions:
        """What exactly-once routes that write here have kept here."""
        if POSITIONS_TOPIC not in self.topics:
            return {}  # looking makes no topic
        return await self._try(self._read_kept_positions(), "positions of exactly-once routes", {})

    async def _read_kept_positions(self) -> KeptPositions:
        async with KeptTopic(self.cluster, POSITIONS_TOPIC, timeout_ms=QUERY_TIMEOUT_MS) as kept:
            await kept.read_to_end(awaits_transactions=False)
            return read_positions(kept.entries())

    async def _creatable(self, rights: Rights, names: Collection[str]) -> frozenset[str] | None:
        """Those of these topics that may be created; None where any may, or where nothing tells."""
        if rights.cluster is None or CREATE in rights.cluster:
            return None
        asked = creatable_topics(self.cluster, names)
        return await self._try(asked, "rights to create topics", None)

    async def _missing_rights(
        self, touching: Iterable[RouteSpec], creatable: Collection[str] | None
    ) -> tuple[MissingRights, ...]:
        name, cluster = self.spec.name, self.cluster
        asked = [missing_at_source(cluster, route) for route in touching if route.source == name]
        writing = [route for route in touching if route.destination == name]
        asked += [missing_at_destination(cluster, route, creatable) for route in writing]
        return tuple(missing for found in await asyncio.gather(*asked) for missing in found)

    async def _groups(self) -> tuple[str, ...] | None:
        listed = await self._try(self._admin.list_groups(), "groups", None)
        return None if listed is None else tuple(group.group_id for group in listed)

    async def _rules(self) -> tuple[AccessRule, ...] | None:
        admin = AclAdmin(self.cluster, timeout_ms=QUERY_TIMEOUT_MS)
        try:
            return tuple(await admin.rules())
        except ProtocolError as error:
            self._is_open = error.code is ErrorCode.SECURITY_DISABLED
            if not self._is_open:
                self._problems.append(f"access rules: {error}")
            return None

    async def _try(self, asked: Awaitable[_T], what: str, otherwise: _T) -> _T:
        """The answer, or `otherwise` where the cluster refuses: then that is a problem. A cluster that does
        not answer at all fails the visit.
        """
        try:
            return await asked
        except (ProtocolError, ConfigurationError) as error:
            self._problems.append(f"{what}: {error}")
            return otherwise


def _partition_traffic(
    start: int, end: int, day: OffsetAndTimestamp | None, size: int | None, now_ms: float
) -> PartitionTraffic:
    """`day`: the first record of the last 24 hours, None where that is not told."""
    if day is None:
        return PartitionTraffic(start=start, end=end, day_start=None, bytes=size)
    begins_within = 0 <= day.offset <= start and day.timestamp >= 0
    return PartitionTraffic(
        start=start,
        end=end,
        day_start=end if day.offset < 0 else max(day.offset, start),
        bytes=size,
        day_ms=min(max(now_ms - day.timestamp, 0), DAY_MS) if begins_within else DAY_MS,
    )


def _places(found: Mapping[TopicPartition, OffsetAndTimestamp]) -> dict[TopicPartition, int]:
    return {partition: at.offset for partition, at in found.items()}


def _by_topic(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[str, dict[int, int]]:
    positions: dict[str, dict[int, int]] = defaultdict(dict)
    for partition, at in committed.items():
        positions[partition.topic][partition.partition] = at.offset
    return positions


def _texts(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, str]:
    return {partition: at.metadata for partition, at in committed.items()}
