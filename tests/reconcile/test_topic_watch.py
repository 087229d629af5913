"""Troubles of whole topics are told once, and once more when they had passed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.cluster import Cluster
from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.trouble import WHOLE_TOPIC, Trouble
from mirrormaker.plan.steps import AddPartitions
from mirrormaker.plan.topics import Destination, TopicPlan
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.former_topics import FormerTopics
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.reconcile.topic_steps import StepResult
from mirrormaker.reconcile.topic_watch import DELETED_AFTER_MS, TopicWatch
from mirrormaker.topology.model import ClusterName, PartitionPolicy, RouteName, RouteSpec, TopicSelection
from mirrormaker.topology.naming import TopicNaming, compile_naming
from tests.plan.worlds import route
from tests.storage.samples import ManualClock

TOPIC = "flights"
WHOLE = TopicPartition(TOPIC, WHOLE_TOPIC)


class Heard:
    """What the watch tells, and a source whose topic answers with `error`."""

    def __init__(self) -> None:
        self.name = "jfk"
        self.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.told: list[str] = []
        self.deleted: set[str] = set()
        self.halts: dict[TopicPartition, Trouble] = {}
        self.former: frozenset[str] | None = frozenset()
        self.settled_deletions: frozenset[str] | None = frozenset()
        self.looks_for_former = 0
        self.route: RouteSpec = replace(route(), topics=TopicSelection(include=(TOPIC,)))
        self.clock = ManualClock()
        self.watch = TopicWatch(
            cast(Cluster, self), cast(RouteHalts, self), cast(FormerTopics, self), self, self.clock
        )
        self.naming = compile_naming(ClusterName("jfk"), self.route.topics)

    async def find(self, asked: RouteSpec, naming: TopicNaming, here: set[str]) -> frozenset[str] | None:
        assert asked is self.route
        self.looks_for_former += 1
        return self.former

    async def settled(self, asked: RouteName) -> frozenset[str] | None:
        assert asked == self.route.name
        return self.settled_deletions

    async def refresh(self, names: set[str]) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=self.error) for name in names})

    def deleted_topics(self) -> set[str]:
        return self.deleted

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

    def found(self, source: TopicPartition) -> None:
        assert source == WHOLE
        self.told.append("found")

    def find_misshapen(self, there: int, *steps: AddPartitions, **further: int) -> dict[str, str]:
        """The source has two partitions, the destination as many as it is said, of `further` topics too."""
        topics = {name: observed(count) for name, count in {TOPIC: there, **further}.items()}
        destination = Destination(name=ClusterName("aggregate"), topics=topics)
        plan = planned(*further)
        return self.watch.find_misshapen(self.route, plan, {TOPIC: observed(2)}, destination, steps)

    def absent(self, *here: str, after_ms: int = DELETED_AFTER_MS) -> dict[str, str]:
        self.clock.advance(after_ms)
        return asyncio.run(self.watch.find_absent(self.naming, here))


def test_a_topic_is_not_deleted_where_the_source_could_not_be_asked_in_between() -> None:
    """Nobody knows whether it was there then: a node may have started twice."""
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.absent(TOPIC)
    heard.absent()
    heard.watch.look_failed()
    assert heard.absent() == {}
    assert heard.told == []
    assert heard.absent() != {}


def test_a_right_that_is_withdrawn_twice_is_told_twice() -> None:
    heard = Heard()
    for _ in range(2):
        assert heard.absent(TOPIC) == {}
        for _ in range(2):
            assert "TOPIC_AUTHORIZATION_FAILED" in heard.absent()[TOPIC]
    assert heard.told == ["unauthorized", "passed", "unauthorized"]


def test_a_topic_that_the_file_names_and_that_was_never_seen_is_told_where_it_may_not_be() -> None:
    """One that is not there yet is nobody's business."""
    heard = Heard()
    for _ in range(2):
        assert heard.absent()[TOPIC].endswith("lacks the right to Describe topic 'flights' at 'jfk'")
    assert (heard.told, heard.watch.hidden) == (["unauthorized"], {TOPIC})
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(3):
        assert heard.absent() == {}
    assert (heard.told, heard.watch.hidden) == (["unauthorized", "passed"], frozenset())


def test_a_topic_that_may_not_be_seen_is_told_again_where_it_is_wanted_again() -> None:
    heard = Heard()
    for topics in (TOPIC, "gates.*", TOPIC):
        heard.naming = compile_naming(ClusterName("jfk"), TopicSelection(include=(topics,)))
        heard.absent()
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


def test_a_deleted_topic_that_another_process_has_gone_on_behind_is_not_told_again() -> None:
    """That has noted it, and taken back what was written of it, before this one looked."""
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.absent(TOPIC)
    for _ in range(3):
        heard.absent()
    heard.halts.clear()
    heard.settled_deletions = frozenset({TOPIC})
    for _ in range(3):
        assert heard.absent() == {}
    assert heard.told == ["topic_deleted", "passed"]


def test_a_topic_that_a_node_does_not_know_for_a_moment_is_not_deleted() -> None:
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.absent(TOPIC)
    for _ in range(5):
        assert heard.absent(after_ms=DELETED_AFTER_MS // 5) == {}
    heard.absent(TOPIC)
    for _ in range(5):
        assert heard.absent(after_ms=DELETED_AFTER_MS // 5) == {}
    assert heard.absent(after_ms=DELETED_AFTER_MS // 5) != {}
    assert heard.told == ["topic_deleted"]


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_was_found_in_between_is_looked_for_anew(code: ErrorCode) -> None:
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.absent(TOPIC)
    heard.absent()
    heard.error = code
    heard.absent()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert heard.absent() == {}
    assert "topic_deleted" not in heard.told
    assert heard.absent() != {}


def test_a_topic_that_was_deleted_while_nobody_looked_is_told_once_it_is_known_to_be_a_copied_one() -> None:
    heard = Heard()
    heard.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    heard.former = None
    for _ in range(3):
        assert heard.absent() == {}
    heard.former = frozenset({TOPIC, "weather"})
    assert heard.absent() == {}
    assert heard.absent() == {TOPIC: "the topic was deleted at the source"}, "the file takes no other"
    assert heard.told == ["topic_deleted"]
    assert heard.looks_for_former == 4
    heard.naming = replace(heard.naming)
    heard.absent()
    assert heard.looks_for_former == 5, "by other rules there may be others"


def test_a_topic_that_another_process_took_for_deleted_is_told_to_be_there() -> None:
    heard = Heard()
    heard.deleted = {TOPIC}
    assert heard.absent(TOPIC) == {}
    assert heard.told == ["found"]


def test_a_topic_of_another_shape_is_told_whenever_it_is_so_anew() -> None:
    heard = Heard()

    for there in (3, 3, 2, 3, 2, 1):
        heard.find_misshapen(there)
    assert heard.told == [*["partition_mismatch", "passed"] * 2, "partition_mismatch"]


def test_a_topic_with_fewer_partitions_at_the_destination_is_told_and_copied_as_far_as_it_goes() -> None:
    heard = Heard()
    growth = AddPartitions(cluster=ClusterName("aggregate"), name=TOPIC, have=1, partitions=2)
    assert heard.find_misshapen(1, growth) == {}
    assert heard.find_misshapen(0) == {}, "it is not there yet"
    assert heard.told == []
    assert heard.find_misshapen(1) == {}
    (told,) = heard.halts.values()
    assert told.problem == (
        "'flights' has 1 partitions at the destination, the source 2: the others have no place"
    )
    assert heard.told == ["partition_mismatch"]


def test_a_topic_that_steps_send_records_to_is_looked_at_as_well() -> None:
    heard = Heard()
    assert heard.find_misshapen(2, late=1) == {}
    assert "'late' has 1 partitions" in heard.halts[WHOLE].problem
    heard.find_misshapen(2, late=2)
    spread = replace(heard.route, topics=replace(heard.route.topics, partitions=PartitionPolicy.KEY))
    heard.route = spread
    heard.find_misshapen(1, late=1)
    assert heard.told == ["partition_mismatch", "passed"]


def test_a_step_that_is_refused_again_is_told_again() -> None:
    heard = Heard()
    step = AddPartitions(cluster=ClusterName("aggregate"), name=TOPIC, have=2, partitions=3)
    refused = StepResult(step=step, error="no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for results in ((refused,), (refused,), (), (refused,)):
        heard.watch.look_at_steps(results, planned())
    assert heard.told == ["unauthorized", "passed", "unauthorized"]
    late = replace(refused, step=replace(step, name="late"), code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    heard.watch.look_at_steps((late,), planned("late"))
    assert heard.told[-1] == "destination_full"


def test_a_topic_of_the_destination_that_may_not_be_seen_is_a_right_that_is_missing_until_it_may() -> None:
    heard, hidden = Heard(), TopicPlan(obstacles={TOPIC: "no"}, hidden={TOPIC: "no"})
    for plan in (planned(), hidden, hidden, planned()):
        heard.watch.look_at_steps((), plan)
    assert heard.told == ["unauthorized", "passed"]


def test_what_one_look_finds_on_is_told_again_once_what_another_found_has_passed() -> None:
    heard = Heard()
    step = AddPartitions(cluster=ClusterName("aggregate"), name=TOPIC, have=1, partitions=2)
    refused = StepResult(step=step, error="no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heard.watch.look_at_steps((), planned())
    heard.find_misshapen(1)
    for _ in range(3):  # it is to grow, and may not
        heard.watch.look_at_steps((refused,), planned())
        heard.find_misshapen(1, step)
    assert heard.told == ["partition_mismatch", "unauthorized", "passed", "unauthorized"]


def planned(*further: str) -> TopicPlan:
    return TopicPlan(destinations={TOPIC: TOPIC}, written={TOPIC: frozenset((TOPIC, *further))})


def observed(partitions: int) -> ObservedTopic:
    return ObservedTopic(name=TOPIC, partitions=partitions)
