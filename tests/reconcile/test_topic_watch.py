"""Troubles of whole topics are told once, and once more when they had passed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from broker.client.cluster import Cluster
from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.trouble import WHOLE_TOPIC, Trouble
from mirrormaker.plan.steps import AddPartitions
from mirrormaker.plan.topics import Destination
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.reconcile.topic_steps import StepResult
from mirrormaker.reconcile.topic_watch import TopicWatch
from mirrormaker.topology.model import ClusterName, RouteSpec, TopicSelection
from mirrormaker.topology.naming import compile_naming
from tests.plan.worlds import route

TOPIC = "flights"
WHOLE = TopicPartition(TOPIC, WHOLE_TOPIC)


class Heard:
    """What the watch tells, and a source whose topic answers with `error`."""

    def __init__(self) -> None:
        self.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.told: list[str] = []
        self.halts: dict[TopicPartition, Trouble] = {}
        self.route: RouteSpec = replace(route(), topics=TopicSelection(include=(TOPIC,)))
        self.watch = TopicWatch(cast(Cluster, self), cast(RouteHalts, self), self)

    async def refresh(self, names: set[str]) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=self.error) for name in names})

    def deleted_topics(self) -> set[str]:
        return set()

    def standing(self, source: TopicPartition) -> Trouble | None:
        return self.halts.get(source)

    def is_released(self, trouble: Trouble) -> bool:
        return False

    def meet(self, trouble: Trouble) -> None:
        self.told.append(trouble.kind.value)
        self.halts[trouble.source] = trouble

    def passed(self, source: TopicPartition) -> None:
        assert source == WHOLE
        self.told.append("passed")

    def absent(self, *here: str) -> dict[str, str]:
        naming = compile_naming(ClusterName("jfk"), self.route.topics)
        return asyncio.run(self.watch.find_absent(naming, here))


def test_a_right_that_is_withdrawn_twice_is_told_twice() -> None:
    heard = Heard()
    for _ in range(2):
        assert heard.absent(TOPIC) == {}
        for _ in range(2):
            assert "TOPIC_AUTHORIZATION_FAILED" in heard.absent()[TOPIC]
    assert heard.told == ["unauthorized", "passed", "unauthorized"]


def test_a_deleted_topic_is_told_again_when_what_was_written_of_it_is_gone() -> None:
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.absent(TOPIC)
    for _ in range(3):
        heard.absent()
    assert heard.told == ["topic_deleted"]
    heard.halts.clear()
    heard.absent()
    assert heard.told == ["topic_deleted", "passed", "topic_deleted"]


def test_a_topic_of_another_shape_is_told_whenever_it_is_so_anew() -> None:
    heard = Heard()

    def look(there: int) -> None:
        destination = Destination(name=ClusterName("aggregate"), topics={TOPIC: observed(there)})
        heard.watch.find_misshapen(heard.route, {TOPIC: TOPIC}, {TOPIC: observed(2)}, destination)

    for there in (3, 3, 2, 3):
        look(there)
    assert heard.told == ["partition_mismatch", "passed", "partition_mismatch"]


def test_a_step_that_is_refused_again_is_told_again() -> None:
    heard = Heard()
    step = AddPartitions(cluster=ClusterName("aggregate"), name=TOPIC, have=2, partitions=3)
    refused = StepResult(step=step, error="no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for results in ((refused,), (refused,), (), (refused,)):
        heard.watch.look_at_steps(results, {TOPIC: TOPIC})
    assert heard.told == ["unauthorized", "passed", "unauthorized"]


def observed(partitions: int) -> ObservedTopic:
    return ObservedTopic(name=TOPIC, partitions=partitions)
