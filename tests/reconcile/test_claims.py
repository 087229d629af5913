"""Two routes never write the same topic of one destination."""

from __future__ import annotations

from mirrormaker.reconcile.topics import DestinationClaims
from mirrormaker.topology.model import RouteName

ONE, OTHER = RouteName("one"), RouteName("other")


def test_the_first_route_to_claim_a_topic_keeps_it() -> None:
    claims = DestinationClaims()
    claims.claim(ONE, frozenset({"a", "b"}))
    claims.claim(OTHER, frozenset({"b", "c"}))
    assert claims.of_others(ONE) == {"c": OTHER}
    assert claims.of_others(OTHER) == {"a": ONE, "b": ONE}


def test_a_topic_that_a_route_writes_no_more_is_free_for_the_other() -> None:
    claims = DestinationClaims()
    claims.claim(ONE, frozenset({"a"}))
    claims.claim(ONE, frozenset())
    claims.claim(OTHER, frozenset({"a"}))
    assert claims.of_others(ONE) == {"a": OTHER}
