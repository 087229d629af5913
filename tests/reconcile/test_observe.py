"""What clusters tell, put together."""

from __future__ import annotations

from mirrormaker.plan.world import UnreachableCluster
from mirrormaker.reconcile.observe import with_kept_positions
from mirrormaker.topology.model import RouteName
from tests.plan.worlds import AGGREGATE, JFK, cluster

ROUTE, OTHER = RouteName("exact"), RouteName("plain")


def test_positions_of_the_group_count_where_the_destination_keeps_none() -> None:
    """Of a route that was at-least-once until a moment ago."""
    of_groups = {ROUTE: {"flights": {0: 5, 1: 6}, "planes": {0: 7}}, OTHER: {"flights": {0: 8}}}
    kept = {ROUTE: {"flights": {0: 50}, "new": {0: 1}}}
    told = with_kept_positions(cluster(JFK, positions=of_groups), kept)
    assert not isinstance(told, UnreachableCluster)
    assert told.positions == {
        ROUTE: {"flights": {0: 50, 1: 6}, "planes": {0: 7}, "new": {0: 1}},
        OTHER: {"flights": {0: 8}},
    }
    away = UnreachableCluster(name=AGGREGATE, problem="away")
    assert with_kept_positions(away, kept) is away
