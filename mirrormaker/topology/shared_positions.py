"""Routes that have one position for a topic, as both are exactly once and copy it to one place. Pure.

How far such a route is stands at its destination, by where records come from and go to (`flow/positions`):
each of two that bring one topic to one topic would go on where the other is. Where that is sure from the
file, `clashes` refuses it. Where only a topic that there is shows it, the route that stands first has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirrormaker.topology.model import Delivery, RouteName, RouteSpec
from mirrormaker.topology.naming import compile_naming


def share_positions(one: RouteSpec, other: RouteSpec) -> bool:
    """Whether a topic that both bring to one topic has one position there."""
    ends = one.source == other.source and one.destination == other.destination
    return ends and one.delivery is other.delivery is Delivery.EXACTLY_ONCE


def earlier_sharers(routes: Sequence[RouteSpec]) -> dict[RouteName, tuple[RouteSpec, ...]]:
    """For each route that has any: those before it, of the ones that may run, that share positions and
    topics with it.
    """
    sharing = [route for route in routes if route.topics.merge and route.may_run]
    found = {
        route.name: tuple(each for each in sharing[:number] if share_positions(each, route))
        for number, route in enumerate(sharing)
    }
    return {name: earlier for name, earlier in found.items() if earlier}


class EarlierCopies:
    """What other routes that share positions with one bring to its destination."""

    def __init__(self, routes: Iterable[RouteSpec] = ()) -> None:
        """`routes`: see `earlier_sharers`. Patterns must be legal."""
        self._namings = [(route.name, compile_naming(route.source, route.topics)) for route in routes]

    def route_of(self, topic: str, name: str) -> RouteName | None:
        """The first that copies `topic` of the source to `name` of the destination."""
        for route, naming in self._namings:
            if naming.selects(topic) and naming.destination_of(topic) == name:
                return route
        return None


def routes_beside(routes: Sequence[RouteSpec]) -> dict[RouteName, tuple[RouteSpec, ...]]:
    """For each route that may bring a topic to a topic where another brings it too: those others, whatever
    their delivery.
    """
    sharing = [route for route in routes if route.topics.merge and route.may_run]
    found = {
        route.name: tuple(
            each
            for each in sharing
            if each is not route and (each.source, each.destination) == (route.source, route.destination)
        )
        for route in sharing
    }
    return {name: beside for name, beside in found.items() if beside}


class PositionOwners:
    """Whose a position is that the destination keeps under the name of some route. It is of records that go
    from one topic to one; of several routes that bring these each goes on by its own.
    """

    def __init__(self, route: RouteSpec, beside: Iterable[RouteSpec] = ()) -> None:
        """`beside`: see `routes_beside`. Patterns must be legal."""
        self._name = route.name
        self._shares = route.topics.merge
        self._beside = {each.name: compile_naming(each.source, each.topics) for each in beside}

    def may_take(self, name: object, topic: str, to: str) -> bool:
        """Whether the route goes on there: not where that is another's which still brings the topic there. A
        name that no route has is that which this one had before.
        """
        naming = self._beside.get(RouteName(name)) if isinstance(name, str) else None
        return naming is None or not (naming.selects(topic) and naming.destination_of(topic) == to)

    def may_withdraw(self, name: object, topic: str, to: str) -> bool:
        """Whether nobody else goes by it, as far as the file tells: other daemons may run routes that share
        the topic by files of their own.
        """
        is_known = name == self._name or not self._shares or name in self._beside
        return is_known and self.may_take(name, topic, to)
