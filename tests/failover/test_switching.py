"""The stages of a planned switch; clusters are stood in for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client.group_offsets import OffsetAndMetadata
from broker.errors import ConnectionFailedError
from broker.types import TopicPartition
from mirrormaker.failover import switching
from mirrormaker.failover.partitions import PartitionPlace, noted_offset
from mirrormaker.failover.settling import Terms
from mirrormaker.failover.sides import FailoverError
from mirrormaker.failover.switching import GroupSwitch
from mirrormaker.failover.tail import Tail
from mirrormaker.reconcile.switches import Side, Stage, Switch
from mirrormaker.topology.model import ClusterName, Delivery, RouteName, RouteSpec, TopicSelection
from tests.client.running import run

SOURCE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = "a0b1c2d3-0000-4000-8000-000000000001"
DRAINING = Switch(side=Side.STANDBY, stage=Stage.DRAINING, fence={"orders": None})


def route(delivery: Delivery = Delivery.AT_MOST_ONCE) -> RouteSpec:
    return RouteSpec(
        name=RouteName("forth"),
        source=ClusterName("primary"),
        destination=ClusterName("standby"),
        topics=TopicSelection(include=("orders",)),
        delivery=delivery,
    )


def place(committed: int | None, noted: int | None = None) -> PartitionPlace:
    """Of a partition that ends at 10."""
    return PartitionPlace(
        route=route(),
        source=SOURCE,
        to=SOURCE,
        committed=committed,
        noted=noted,
        start=0,
        stable_end=10,
        end=10,
    )


class Surroundings:
    """A route that is at work or at rest as the stage says, and the place that is read meanwhile."""

    def __init__(self, at_work: PartitionPlace, at_rest: list[PartitionPlace]) -> None:
        """`at_rest`: each time that it has come to rest; the last for ever."""
        self.switch = DRAINING
        self.clusters = dict.fromkeys(Side)
        self.stages: list[Stage] = []
        self.done: list[str] = []
        self.tails: list[Tail] = []
        self.unread: dict[TopicPartition, int] = {}
        """What groups were not to be carried past."""
        self._at_work = at_work
        self._at_rest = at_rest
        self.leaving = lambda side: ()
        self.cluster = lambda side: None
        self.name = lambda side: side.value
        self.check_alone = lambda: None
        self.group = SimpleNamespace(name="orders")

    async def look_alone(self) -> None: ...

    async def record(self, switch: Switch) -> None:
        self.switch = switch
        self.stages.append(switch.stage)

    async def read_places(self, sides: Any, side: Side) -> list[PartitionPlace]:
        if self.switch.stage is Stage.DRAINING:
            return [self._at_work]
        return [self._at_rest.pop(0) if len(self._at_rest) > 1 else self._at_rest[0]]

    async def find_tails(self, *given: Any) -> tuple[list[Tail], dict[TopicPartition, int]]:
        return self.tails, {SOURCE: 10, OTHER: 20}

    async def carry_groups(self, *given: Any) -> tuple[list[Any], list[str]]:
        self.done.append("carried")
        self.unread = given[-1]
        return [], []

    async def close_topics(self, cluster: Any, fence: Mapping[str, str | None]) -> None:
        self.done.append("closed")

    async def open_topics(self, cluster: Any, fence: Mapping[str, str | None]) -> None:
        self.done.append("opened")

    async def set_starts(self, *given: Any) -> None:
        self.done.append("set")


def go_over(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, timeout_ms: int = 60_000, *, force: bool = False
) -> None:
    for name in ("read_places", "find_tails", "carry_groups", "close_topics", "open_topics", "set_starts"):
        monkeypatch.setattr(switching, name, getattr(around, name))
    monkeypatch.setattr(switching, "LOOK_MS", 1)
    sides: Any = around
    group = GroupSwitch(sides, Terms(timeout_ms=timeout_ms, force=force), lambda line: None)

    async def main() -> None:
        await group._switch(Side.STANDBY)

    run(main)


def test_what_a_route_at_rest_turns_out_not_to_have_sent_is_copied_before_anything_is_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Surroundings(place(10), [place(4), place(7), place(10)])
    go_over(around, monkeypatch)
    back_and_forth = [Stage.SWITCHING, Stage.DRAINING] * 2
    assert around.stages == [*back_and_forth, Stage.SWITCHING, Stage.SETTLED]
    assert around.done == ["closed", "closed", "closed", "carried", "set", "opened"]


def test_a_switch_that_never_gets_all_copied_is_called_off_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Surroundings(place(10), [place(4)])
    with pytest.raises(FailoverError, match=r"after 300 ms 6 records of 1 partitions .*orders-0 at 4 of 10"):
        go_over(around, monkeypatch, timeout_ms=300)
    assert (around.switch.stage, around.switch.side, around.switch.fence) == (Stage.SETTLED, Side.HOME, {})
    assert around.done[-1] == "opened"
    assert "carried" not in around.done


def test_a_switch_by_force_that_never_gets_all_copied_goes_on_without_the_rest_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Surroundings(place(10), [place(4)])
    go_over(around, monkeypatch, timeout_ms=300, force=True)
    switch = around.switch
    assert (switch.stage, switch.side, switch.forced) == (Stage.AWAY, Side.STANDBY, True)
    assert switch.fence == {"orders": None}, "closed until what is there has been dealt with"
    assert {"opened", "carried"}.isdisjoint(around.done)


def test_a_switch_by_force_outlives_the_side_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(place(10), [place(4)])

    async def lost(*given: Any) -> list[PartitionPlace]:
        raise ConnectionFailedError("no node can be reached")

    monkeypatch.setattr(around, "read_places", lost)
    with pytest.raises(ConnectionFailedError):
        go_over(around, monkeypatch)
    assert around.stages == []
    go_over(around, monkeypatch, force=True)
    assert (around.switch.stage, around.switch.side) == (Stage.AWAY, Side.STANDBY)


def test_a_switch_that_was_killed_once_all_was_copied_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Surroundings(place(0), [place(10)])
    around.switch = replace(DRAINING, stage=Stage.SWITCHING)
    go_over(around, monkeypatch)
    assert around.stages == [Stage.SETTLED]
    assert around.done == ["carried", "set", "opened"]


def test_groups_are_not_carried_past_what_came_to_the_new_side_while_the_rest_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Surroundings(place(10), [place(10)])
    late = Tail(topic="orders", partition=0, first=7, last=8, records=2, bytes=99, first_ms=1, last_ms=1)
    around.tails = [late]
    go_over(around, monkeypatch)
    assert around.unread == {SOURCE: 7, OTHER: 20}, "of the other one what is not committed yet"


@pytest.mark.parametrize(
    ("note", "noted"),
    [
        ("", None),
        (" 10", None),
        (" 4", 4),
        (' {"lanes":[10,12],"there":[10,11],"to":[["orders",0,2]]}', 11),
        (' {"lanes":[10,12],"there":[3,12],"to":[["orders",0,2]]}', 3),
    ],
)
def test_of_what_is_copied_at_most_once_only_what_is_there_counts_as_copied(
    note: str, noted: int | None
) -> None:
    stored = OffsetAndMetadata(offset=10, metadata=f"{ID}{note}")
    assert noted_offset(route(), stored) == noted
    assert noted_offset(route(Delivery.AT_LEAST_ONCE), stored) is None
    found = place(10, noted)
    assert found.copied_to == min(noted or 10, 10)
    assert found.is_copied == (found.copied_to == 10)


def test_a_partition_of_which_nothing_is_stored_is_copied_to_where_it_begins() -> None:
    assert noted_offset(route(), None) is None
    assert place(None).copied_to == 0
