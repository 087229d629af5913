"""A route whose topics change while its clusters are looked at; what is around its reconciler is stood in
for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.errors import ConnectionFailedError
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.reconcile.routes import RouteWork, work_of
from mirrormaker.reconcile.topic_pictures import TopicPictures
from mirrormaker.reconcile.topics import TopicReconciler
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import RouteName
from mirrormaker.topology.naming import TopicNaming
from tests.client.running import run

TOPICS = {name: ObservedTopic(name=name, partitions=1) for name in ("flights", "planes")}
HOLDS = "holds records already"


def work(*include: str) -> RouteWork:
    text = (
        "clusters: {jfk: {bootstrap: ['a:1']}, lga: {bootstrap: ['b:1']}}\n"
        "routes: [{name: a, from: jfk, to: lga, heartbeats: false,"
        f" topics: {{include: [{', '.join(include)}], name: '{{topic}}'}}}}]\n"
    )
    return work_of(parse_topology(text, Path("t.yaml")))[RouteName("a")]


class Surroundings:
    """Two clusters that both have the topics, those of the destination with records of others in `planes`."""

    def __init__(self) -> None:
        self.drift = ()
        self.at: dict[str, Callable[[], None]] = {}
        """What happens once at a step."""
        self.judged: list[set[str]] = []
        """Topics that were looked at for circles."""
        self.told: dict[str, str] = {}
        self.failed = asyncio.Event()

    def _come_to(self, step: str) -> None:
        self.at.pop(step, lambda: None)()

    def look_closely(self) -> None: ...

    async def take(
        self, naming: TopicNaming, declared: Collection[str], further: Callable[[str], Collection[str]]
    ) -> TopicPictures:
        there = {name: topic for name, topic in TOPICS.items() if naming.selects(name)}
        self._come_to("picture")
        return TopicPictures(source=TOPICS, destination=there, nodes=1, has_settings=False)

    async def find(self, topics: Collection[str]) -> dict[str, str]:
        self.judged.append(set(topics))
        self._come_to("circles")
        return {}

    async def repair(self, admin: Any, steps: Any, sync: Any, *, is_unseen: Any) -> Any:
        return SimpleNamespace(results=(), drift=())

    async def find_absent(self, naming: TopicNaming, selected: Collection[str]) -> dict[str, str]:
        return {}

    def look_failed(self) -> None:
        self.failed.set()

    def look_at_steps(self, results: Any, plan: Any) -> None: ...

    def find_misshapen(self, *_: Any) -> dict[str, str]:
        return {}

    async def find_refused(
        self, route: Any, written: Mapping[str, Collection[str]], there: Mapping[str, ObservedTopic]
    ) -> dict[str, str]:
        """As those are that have records; one that is not seen there has none."""
        return {topic: HOLDS for topic in written if topic == "planes" and topic in there}

    def note(self, event: str, **details: object) -> None: ...

    note_end = note


def reconciler_of(around: Any) -> TopicReconciler:
    ends: Any = SimpleNamespace()
    reconciler = TopicReconciler(
        work("flights"),
        ends,
        ends,
        DestinationClaims(),
        lambda topics: around.told.update(topics),
        *[around] * 5,
    )
    reconciler._camera = reconciler._repairer = around
    return reconciler


@pytest.mark.parametrize("step", ["picture", "circles"])
def test_topics_that_are_added_while_the_clusters_are_looked_at_wait_for_the_next_look(step: str) -> None:
    """Nobody has looked yet whether they go in circles, or hold records of others at the destination."""
    around = Surroundings()
    reconciler = reconciler_of(around)
    around.at[step] = lambda: reconciler.change(work("flights", "planes"))

    async def main() -> None:
        await reconciler.look()
        assert around.told == {"flights": "flights"}
        await reconciler.look()

    run(main)
    assert around.judged == [{"flights"}, {"flights", "planes"}]
    assert (around.told, reconciler.obstacles) == ({"flights": "flights"}, {"planes": HOLDS})


def test_a_look_that_fails_is_none_that_did_not_find_a_topic() -> None:
    around = Surroundings()

    def fail() -> None:
        raise ConnectionFailedError("away")

    async def main() -> None:
        reconciler = reconciler_of(around)
        around.at["picture"] = fail
        reconciler.look_soon()
        looking = asyncio.create_task(reconciler.run())
        await around.failed.wait()
        looking.cancel()

    run(main)
