"""`clusters` of a topology file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from mirrormaker.topology.document import Place
from mirrormaker.topology.kinds.collections import ListOf, MapOf
from mirrormaker.topology.kinds.kind import Kind
from mirrormaker.topology.kinds.numbers import Integer
from mirrormaker.topology.kinds.records import Derived, Given, Record
from mirrormaker.topology.kinds.scalars import Address, Setting, Text
from mirrormaker.topology.kinds.times import Duration
from mirrormaker.topology.model import ClusterName, ClusterSpec, EmbeddedSpec, TopicSpec
from mirrormaker.topology.readers.security import Security
from mirrormaker.topology.readers.simulation import SIMULATED_CLUSTER

PARTITIONS_MAX = 100_000
REPLICATION_MAX = 32_767
_ROUND_TRIP_MS_MAX = 60_000

TOPIC = Record(
    TopicSpec,
    {
        "partitions": Integer(1, PARTITIONS_MAX),
        "replication": Integer(1, REPLICATION_MAX),
        "config": MapOf("setting", Setting()),
    },
)


def clusters(folder: Path) -> Kind[dict[ClusterName, ClusterSpec]]:
    """The section; relative paths in it are below `folder`."""
    return _Clusters(cluster(folder))


def cluster(folder: Path) -> Record[ClusterSpec]:
    """One cluster."""
    return Record(
        ClusterSpec,
        {
            "bootstrap": ListOf(Address(), empty=False),
            "embedded": _EMBEDDED,
            "zookeeper": Text(),
            "security": Security(folder),
            "cluster_id": Text(empty=False),
            "datacenter": Text(empty=False),
            "round_trip_ms": Duration(0, _ROUND_TRIP_MS_MAX, bare=True),
            "topics": MapOf("topic", TOPIC),
            "simulate": SIMULATED_CLUSTER,
        },
        derived={"name": Derived("its key", _name_of)},
        check=_check_location,
    )


class _Clusters(Kind[dict[ClusterName, ClusterSpec]]):
    """Clusters by name; one that is unreadable is kept by its name, since routes refer to it."""

    def __init__(self, item: Record[ClusterSpec]) -> None:
        self.item = item
        self._map = MapOf("name", item)

    @property
    def words(self) -> str:
        return self._map.words

    @property
    def stand_in(self) -> dict[ClusterName, ClusterSpec]:
        return {}

    def read(self, place: Place) -> dict[ClusterName, ClusterSpec]:
        read = self._map.read(place)
        assert isinstance(place.node, yaml.MappingNode)
        if not place.node.value:
            place.report("there are no clusters")
        names = [ClusterName(key.value) for key, _ in place.node.value if isinstance(key, yaml.ScalarNode)]
        return {name: read.get(name) or ClusterSpec(name=name) for name in names}

    def schema(self) -> dict[str, object]:
        return self._map.schema() | {"minProperties": 1}


def _name_of(given: Given) -> ClusterName:
    return ClusterName(given.place.path.removeprefix("clusters."))


def _check_ports(spec: EmbeddedSpec, given: Given) -> EmbeddedSpec:
    if spec.port + spec.brokers - 1 > 65535:
        message = f"{spec.brokers} consecutive ports from {spec.port} on go beyond 65535"
        given.place.problems.report(given.place.path_of("port"), message)
    return spec


def _check_location(spec: ClusterSpec, given: Given) -> ClusterSpec:
    place, values = given.place, given.values
    if spec.embedded is not None:
        for key in ("bootstrap", "zookeeper"):
            if key in values:
                message = "an embedded cluster has addresses of its own: leave this out"
                place.problems.report(place.path_of(key), message)
        if "security" in values:
            message = "an embedded cluster has no secured listeners: leave this out"
            place.problems.report(place.path_of("security"), message)
        return replace(spec, bootstrap=spec.embedded.bootstrap)
    wrong = any(place.problems.covers(place.path_of(key)) for key in ("embedded", "bootstrap"))
    if "bootstrap" not in values and not wrong:
        place.report("says neither 'bootstrap' nor 'embedded'")
    return spec


_EMBEDDED = Record(
    EmbeddedSpec,
    {"brokers": Integer(1, 99), "port": Integer(1, 65535)},
    check=_check_ports,
)
