"""What is carried on and what is left out, by where it has been: the decisions alone, without any cluster."""

from __future__ import annotations

from collections import Counter, deque
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader, Codec, read_header
from broker.records.builder import BatchBuilder
from mirrormaker.flow.intake import OriginUnknownError
from mirrormaker.flow.provenance import PATHS_MAX, PRODUCERS_KEPT, Path, Provenance
from mirrormaker.topology.model import ClusterId, ClusterName, TopicSelection
from mirrormaker.topology.ways import Way, Ways

TOPIC = "orders"
NAMES = tuple(map(ClusterName, "abcde"))
OWN, FOREIGN, OTHER = 100, 200, 300
"""Producer ids."""

Edge = tuple[ClusterName, ClusterName]


def id_of(name: ClusterName) -> ClusterId:
    return ClusterId(f"id-{name}")


def way(edge: Edge, *include: str) -> Way:
    return Way(
        source=edge[0], destination=edge[1], topics=TopicSelection(include=include or (".*",), name="{topic}")
    )


def provenance(edge: Edge = (NAMES[0], NAMES[1]), *ways: Way) -> Provenance:
    made = Provenance(id_of(edge[0]), id_of(edge[1]))
    found = Ways(ways)
    made.plan(found, {name: id_of(name) for name in found.clusters})
    return made


def header(producer_id: int) -> BatchHeader:
    sequence = 0 if producer_id >= 0 else -1
    builder = BatchBuilder(
        Codec.NONE, size_max=1000, producer_id=producer_id, producer_epoch=sequence, base_sequence=sequence
    )
    builder.append(0, None, b"value")
    return read_header(builder.build())


def path(names: str) -> Path:
    return tuple(id_of(ClusterName(name)) for name in names)


@given(edges=st.sets(st.sampled_from(list(permutations(NAMES, 2)))), data=st.data())
def test_whatever_the_routes_each_record_comes_to_each_cluster_that_they_lead_to_once_and_then_all_is_quiet(
    edges: set[Edge], data: st.DataObject
) -> None:
    ways = [way(edge) for edge in data.draw(st.permutations(sorted(edges)))]
    routes = {edge: provenance(edge, *ways) for edge in edges}
    for origin in NAMES:
        arrived: Counter[ClusterName] = Counter()
        moving: deque[tuple[ClusterName, Path]] = deque([(origin, ())])
        while moving:
            here, been = moving.popleft()
            arrived[here] += 1
            for (source, destination), route in routes.items():
                if source != here:
                    continue
                route.learn([FOREIGN], {FOREIGN: been} if been else {}, {})
                number = route.of_topic(TOPIC).origin_of(header(FOREIGN))
                if number is not None:
                    moving.append((destination, route.path_of(number)))
        assert arrived == dict.fromkeys(reachable(origin, edges), 1)


def reachable(origin: ClusterName, edges: set[Edge]) -> set[ClusterName]:
    found, new = {origin}, {origin}
    while new:
        new = {destination for source, destination in edges if source in new} - found
        found |= new
    return found


def test_an_id_that_was_not_looked_for_has_to_be_and_is_the_clusters_own_when_it_is_not_registered() -> None:
    asked: list[str] = []
    known = Provenance(id_of(NAMES[0]), id_of(NAMES[1]), on_unknown=lambda: asked.append("look"))
    origins = known.of_topic(TOPIC)
    for producer_id in (OWN, FOREIGN):
        with pytest.raises(OriginUnknownError):
            origins.origin_of(header(producer_id))
    assert (asked, known.unknown) == (["look"] * 2, {OWN, FOREIGN})
    known.learn([OWN, FOREIGN], {FOREIGN: path("c")}, {})
    assert (origins.origin_of(header(OWN)), origins.origin_of(header(FOREIGN))) == (0, 1)
    assert (known.path_of(0), known.path_of(1)) == (path("a"), path("ca"))
    assert known.unknown == set()


def test_what_has_no_producer_id_was_born_at_the_source() -> None:
    assert provenance().of_topic(TOPIC).origin_of(header(-1)) == 0


@pytest.mark.parametrize(("been", "carried"), [("b", False), ("cb", False), ("bc", False), ("c", True)])
def test_what_has_been_at_the_destination_is_left_out(been: str, carried: bool) -> None:
    known = provenance()
    known.learn([FOREIGN], {FOREIGN: path(been)}, {})
    assert (known.of_topic(TOPIC).origin_of(header(FOREIGN)) is not None) is carried


@pytest.mark.parametrize(("been", "came_back"), [("b", True), ("cb", True), ("bc", False), ("", False)])
def test_only_what_was_at_the_destination_last_came_straight_from_there(been: str, came_back: bool) -> None:
    known = provenance()
    known.learn([FOREIGN], {FOREIGN: path(been)} if been else {}, {})
    assert known.of_topic(TOPIC).came_back(header(FOREIGN)) is came_back


def test_origins_of_one_path_share_a_number() -> None:
    known = provenance()
    known.learn([1, 2, 3], {1: path("c"), 2: path("c"), 3: path("d")}, {})
    numbers = [known.of_topic(TOPIC).origin_of(header(each)) for each in (1, 2, 3)]
    assert numbers == [1, 1, 2]


def test_another_route_brings_what_comes_to_the_destination_on_a_shorter_way() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(3), 2)]
    known = provenance((NAMES[1], NAMES[2]), *mesh)
    known.learn([FOREIGN], {FOREIGN: path("a")}, {})
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) is None
    known.plan(Ways(each for each in mesh if (each.source, each.destination) != NAMES[0:3:2]), ids("abc"))
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) == 1


def ids(names: str) -> dict[ClusterName, ClusterId]:
    return {ClusterName(name): id_of(ClusterName(name)) for name in names}


def test_ways_are_those_of_the_topic() -> None:
    known = provenance(
        (NAMES[1], NAMES[2]),
        way((NAMES[0], NAMES[1])),
        way((NAMES[1], NAMES[2])),
        way((NAMES[0], NAMES[2]), "flights"),
    )
    known.learn([FOREIGN], {FOREIGN: path("a")}, {})
    assert known.of_topic("flights").origin_of(header(FOREIGN)) is None
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) == 1


def test_what_came_otherwise_than_planned_is_carried_rather_than_lost() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(4), 2)]
    known = provenance((NAMES[1], NAMES[2]), *mesh)
    known.learn([FOREIGN], {FOREIGN: path("ad")}, {})
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) == 1


def test_what_came_from_a_cluster_outside_of_the_file_counts_from_where_it_came_in() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(3), 2)]
    known = provenance((NAMES[1], NAMES[2]), *mesh)
    known.learn([FOREIGN, OTHER], {FOREIGN: path("xa"), OTHER: path("x")}, {})
    known.settle(path("x"))
    origins = known.of_topic(TOPIC)
    assert (origins.origin_of(header(FOREIGN)), origins.origin_of(header(OTHER))) == (None, 2)


def test_a_cluster_that_never_told_its_id_holds_back_only_what_may_have_come_from_it() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(3), 2)]
    known = provenance((NAMES[1], NAMES[2]), *mesh)
    known.plan(Ways(mesh), ids("bc"))
    known.learn([OWN, FOREIGN], {FOREIGN: path("a")}, {})
    origins = known.of_topic(TOPIC)
    assert origins.origin_of(header(OWN)) == 0
    with pytest.raises(OriginUnknownError):
        origins.origin_of(header(FOREIGN))
    assert (known.nameless, known.nameless_clusters) == (set(path("a")), {"a"})
    known.plan(Ways(mesh), ids("abc"))
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) is None


def test_a_cluster_that_was_made_anew_is_known_by_its_new_id_before_anything_of_it_goes_on() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(3), 2)]
    known = provenance((NAMES[1], NAMES[2]), *mesh)
    known.learn([FOREIGN, OTHER], {FOREIGN: path("x"), OTHER: path("a")}, {})
    with pytest.raises(OriginUnknownError):
        known.of_topic(TOPIC).origin_of(header(FOREIGN))
    assert (known.nameless, known.nameless_clusters) == (set(path("x")), set())
    known.plan(Ways(mesh), ids("bc") | {NAMES[0]: ClusterId("id-x")})
    known.settle(path("x"))
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) is None
    with pytest.raises(OriginUnknownError):
        known.of_topic(TOPIC).origin_of(header(OTHER))
    known.settle(path("a"))
    assert known.of_topic(TOPIC).origin_of(header(OTHER)) == 2


def test_an_id_of_none_of_the_clusters_may_be_that_of_one_that_comes_to_them() -> None:
    mesh = [way((NAMES[source], NAMES[to])) for source, to in permutations(range(4), 2)]
    old = [each for each in mesh if NAMES[3] not in (each.source, each.destination)]
    known = provenance((NAMES[1], NAMES[2]), *old)
    known.learn([FOREIGN], {FOREIGN: path("d")}, {})
    known.settle(path("d"))
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) == 1
    known.plan(Ways(mesh), ids("abc"))
    with pytest.raises(OriginUnknownError):
        known.of_topic(TOPIC).origin_of(header(FOREIGN))
    known.plan(Ways(mesh), ids("abcd"))
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) is None


def test_an_entry_that_cannot_be_read_is_no_reason_to_guess() -> None:
    known = provenance()
    known.learn([FOREIGN], {}, {FOREIGN: "it names no path"})
    with pytest.raises(CorruptRecordsError, match="producer 200 have been: it names no path"):
        known.of_topic(TOPIC).origin_of(header(FOREIGN))
    assert known.unknown == {FOREIGN}
    known.learn([FOREIGN], {FOREIGN: path("c")}, {})
    assert known.of_topic(TOPIC).origin_of(header(FOREIGN)) == 1


def test_paths_and_producers_are_bounded() -> None:
    known = provenance()
    many = {number: (ClusterId(f"x{number}"),) for number in range(PATHS_MAX)}
    known.learn(many, many, {})
    with pytest.raises(CorruptRecordsError, match=f"more than {PATHS_MAX} different paths"):
        known.of_topic(TOPIC).origin_of(header(PATHS_MAX - 1))
    known.learn(range(PATHS_MAX, PATHS_MAX + PRODUCERS_KEPT), {}, {})
    known.learn([1 << 40], {}, {})
    assert known.of_topic(TOPIC).origin_of(header(1 << 40)) == 0
    with pytest.raises(OriginUnknownError):
        known.of_topic(TOPIC).origin_of(header(PATHS_MAX))
