"""Two routes never write the same topic of one destination."""

from __future__ import annotations

from mirrormaker.reconcile.claims import Decision, DestinationClaims
from mirrormaker.topology.model import RouteName

ONE, OTHER = RouteName("one"), RouteName("other")


def test_the_first_route_to_claim_a_topic_keeps_it() -> None:
    claims = DestinationClaims()
    claims.claim(ONE, frozenset({"a", "b"}))
    claims.claim(OTHER, frozenset({"b", "c"}))
    assert claims.of_others(ONE) == {"c": OTHER}
    assert claims.of_others(OTHER) == {"a": ONE, "b": ONE}


def test_routes_that_share_their_topics_on_purpose_may_write_the_same_and_others_may_not() -> None:
    claims, third = DestinationClaims(), RouteName("third")
    claims.claim(ONE, frozenset({"a"}), shares=True)
    claims.claim(OTHER, frozenset({"a"}), shares=True)
    assert claims.of_others(OTHER, shares=True) == {}
    assert claims.of_others(third).keys() == {"a"}
    claims.claim(third, frozenset({"a"}))
    assert claims.of_others(ONE, shares=True) == {}


def test_a_topic_that_a_route_writes_no_more_is_free_for_the_other() -> None:
    claims = DestinationClaims()
    claims.claim(ONE, frozenset({"a"}))
    claims.claim(ONE, frozenset())
    claims.claim(OTHER, frozenset({"a"}))
    assert claims.of_others(ONE) == {"a": OTHER}


def test_where_another_process_decides_a_route_writes_what_it_is_granted() -> None:
    claims = DestinationClaims()
    claims.decide(Decision(granted={}, sharing=()))
    claims.claim(ONE, frozenset({"a", "b"}))
    assert claims.granted(ONE) == frozenset(), "not told yet"
    claims.decide(Decision(granted={ONE: frozenset({"a"}), OTHER: frozenset({"b"})}, sharing=()))
    assert claims.granted(ONE) == {"a"}
    assert claims.of_others(ONE) == {"b": OTHER}
    claims.decide(None)
    assert claims.granted(ONE) == {"a", "b"}


def test_where_all_daemons_decide_about_some_topics_this_process_decides_about_the_others() -> None:
    claims = DestinationClaims()
    granted = {OTHER: frozenset({"b"})}
    claims.decide(Decision(granted=granted, sharing=(), is_about=lambda _, topic: topic in "bc"))
    claims.claim(ONE, frozenset({"a", "b", "c"}))
    assert claims.granted(ONE) == {"a"}
    assert claims.of_others(ONE) == {"b": OTHER}
    assert claims.of_others(OTHER) == {"a": ONE}, "nobody has c yet"
    claims.claim(OTHER, frozenset({"a", "b", "c"}))
    assert claims.granted(OTHER) == {"b"}
    assert claims.all()[OTHER] == {"b", "c"}, "it asks for that"
