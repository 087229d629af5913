"""Which topics an exactly-once route has begun, by what it keeps at its destination."""

from __future__ import annotations

from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow.positions import Place, SourceId, value_of
from mirrormaker.reconcile.kept_positions import begun_topics, moved_topics, read_positions
from mirrormaker.topology.model import ClusterId, RouteName, TopicSelection
from mirrormaker.topology.naming import compile_naming
from tests.reconcile.kept_entries import kept_of

ROUTE = RouteName("exact")
NAMING = compile_naming("jfk", TopicSelection(include=(".*",)))


def test_a_topic_is_begun_where_its_cluster_and_its_destination_are_those_of_now() -> None:
    kept = kept_of(
        ROUTE,
        ("now", "flights", "jfk.flights", 5),
        ("now", "planes", "planes.old", 5),
        ("former", "airports", "jfk.airports", 5),
        ("now", "both", "both.old", 5),
        ("now", "both", "jfk.both", 5),
    )[ROUTE]
    assert begun_topics(kept, "now", NAMING) == {"flights", "both"}
    of_group = {"flights": "flights.old", "gates": "gates.old"}
    assert moved_topics(kept, "now", NAMING, {}) == {"planes": "planes.old"}
    assert moved_topics(kept, "now", NAMING, of_group) == {"planes": "planes.old", "gates": "gates.old"}
    assert begun_topics(kept, "former", NAMING) == {"airports"}
    assert begun_topics(kept, None, NAMING) == set()


def test_a_cluster_that_tells_no_id_has_the_positions_that_name_none() -> None:
    kept = kept_of(ROUTE, (None, "flights", "jfk.flights", 5))[ROUTE]
    assert begun_topics(kept, None, NAMING) == {"flights"}
    assert begun_topics(kept, "now", NAMING) == set()


def test_positions_of_records_that_came_from_elsewhere_and_strange_records_are_passed_over() -> None:
    at = SourceId(
        cluster_id="now", topic_id=NO_TOPIC_ID, partition=TopicPartition("flights", 0), to="jfk.flights"
    )
    entries = [
        (at.on((ClusterId("lga"),)).key(), value_of(ROUTE, Place((5,)))),
        ({"topic": 7}, {"route": ROUTE, "position": 5}),
        (at.key(), {"route": ROUTE}),
    ]
    assert read_positions(entries) == {}
