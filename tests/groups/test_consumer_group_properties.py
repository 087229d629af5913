"""Any sequence of requests, timers, topics and answers of the log, invariants checked after every step."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.groups.consumer_groups.config import MigrationPolicy
from broker.groups.consumer_groups.events import ConsumerHeartbeatReply
from broker.groups.consumer_groups.image import GroupImage, GroupState
from broker.groups.events import SyncReply
from tests.groups.scripted_consumers import CONFIG, REBALANCE_MS, ScriptedConsumers, cooperative

MEMBERS = ("m1", "m2", "m3", "m4")
CLASSIC = ("c1", "c2")
member = st.sampled_from(MEMBERS)
classic = st.sampled_from(CLASSIC)
topics = st.sampled_from([("flights",), ("flights", "weather"), ("weather",), ("nothing",)])
step = st.one_of(
    st.tuples(st.just("join"), member, topics),
    st.tuples(st.just("join"), member, topics),
    st.tuples(st.just("join by pattern"), member),
    st.tuples(st.just("follow"), member),
    st.tuples(st.just("follow"), member),
    st.tuples(st.just("live"), member),
    st.tuples(st.just("lose an answer"), member),
    st.tuples(st.just("leave"), member),
    st.tuples(st.just("static"), st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("static away"), st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("classic join"), classic),
    st.tuples(st.just("classic sync"), classic),
    st.tuples(st.just("classic heartbeat"), classic),
    st.tuples(st.just("classic leave"), classic),
    st.tuples(st.just("grow"), st.sampled_from(["flights", "weather"])),
    st.tuples(st.just("delete topic")),
    st.tuples(st.just("wait"), st.sampled_from([1_000, 10_000, CONFIG.session_timeout_ms, REBALANCE_MS])),
    st.tuples(st.just("store")),
    st.tuples(st.just("store")),
    st.tuples(st.just("fail")),
)


class Walk:
    """One group on its way through random steps, watched. It never becomes a classic one."""

    def __init__(self, *, stores_at_once: bool) -> None:
        config = CONFIG.__class__(migration=MigrationPolicy.UPGRADE)
        self.group = ScriptedConsumers({"flights": 5, "weather": 2}, config)
        self.group.stores_at_once = stores_at_once
        self.group.join("anchor")
        if not stores_at_once:
            self.group.store()

    def take(self, action: tuple[object, ...]) -> None:
        group = self.group
        if group.retired:
            return
        match action:
            case ("join", str(name), tuple(wanted)):
                group.join(name, *wanted)
            case ("join by pattern", str(name)):
                group.join(name, pattern="f.*|w.*")
            case ("follow", str(name)):
                group.follow(name)
            case ("live", str(name)):
                group.heartbeat(name)
            case ("lose an answer", str(name)):
                before = group.members.get(name)
                epoch = before.epoch if before is not None else 0
                group.follow(name)
                group.members[name].epoch = epoch
            case ("leave", str(name)):
                group.leave(name)
            case ("static", str(name)):
                group.join(f"{name}-{len(group.answers)}", instance_id=name)
            case ("static away", str(name)):
                holder = group.image.static_member(name)
                if holder is not None:
                    group.leave(holder, instance_id=name, static=True)
            case ("classic join", str(name)):
                self._classic_join(name)
            case ("classic sync", str(name)) if group.storing is None:
                group.classic_sync(name, group.image.assignment(name).epoch)
            case ("classic heartbeat", str(name)) if group.storing is None:
                group.classic_heartbeat(name, group.image.assignment(name).epoch)
            case ("classic leave", str(name)) if group.storing is None:
                group.classic_leave(name)
            case ("grow", str(topic)):
                known = group.topics.current().named(topic)
                group.topics.put(topic, 1 if known is None else known.partition_count + 1)
            case ("delete topic",):
                if group.topics.current().named("weather") is not None:
                    group.topics.remove("weather")
            case ("wait", int(milliseconds)):
                group.wait(milliseconds)
            case ("store",) if group.storing is not None:
                group.store()
            case ("fail",) if group.storing is not None:
                group.fail_store()

    def _classic_join(self, name: str) -> None:
        held = sorted(each.partition for each in self.group.image.assignment(name).assigned)
        has = {"flights": held} if held else {}
        self.group.classic_join(name, protocols={"sticky": cooperative(["flights", "weather"], has)})

    def check(self) -> None:
        image = self.group.image
        held = Counter(partition for name in image for partition in image.assignment(name).held)
        assert all(count == 1 for count in held.values()), "a partition belongs to one member at a time"
        targets = Counter(partition for name in image for partition in image.target(name))
        assert all(count == 1 for count in targets.values()), "a partition is to belong to one member"
        assert all(image.assignment(name).epoch <= image.group_epoch for name in image)
        assert image.target_epoch <= image.group_epoch
        if self.group.storing is None and not self.group.retired:
            assert _says_the_same(self.group.replayed(), image)

    def come_to_rest(self) -> None:
        group = self.group
        while group.storing is not None:
            group.store()
        group.stores_at_once = True
        if group.retired:
            return
        for name in [name for name in CLASSIC if name in group.image]:
            group.classic_leave(name)
        consumers = list(group.image)
        for name in consumers:
            group.join(name, "flights", "weather", instance_id=group.image.subscriptions[name].instance_id)
        group.settle(*consumers)
        if not consumers:
            assert group.state is GroupState.EMPTY
            return
        assert group.state is GroupState.STABLE
        wanted = sum(topic.partition_count for topic in group.image.topics)
        assert sum(len(group.image.assignment(name).assigned) for name in consumers) == wanted
        assert sum(len(group.members[name].assigned) for name in consumers) == wanted


def _says_the_same(read: GroupImage, image: GroupImage) -> bool:
    return (
        (read.epoch, read.target_epoch, read.topics) == (image.epoch, image.target_epoch, image.topics)
        and read.subscriptions == image.subscriptions
        and read.patterns == image.patterns
        and all(read.assignment(name) == image.assignment(name) for name in image)
        and all(read.target(name) == image.target(name) for name in image)
    )


@settings(max_examples=150)
@given(st.booleans(), st.lists(step, max_size=40))
def test_whatever_happens_every_partition_has_one_owner_and_the_group_comes_to_rest(
    stores_at_once: bool, actions: list[tuple[object, ...]]
) -> None:
    walk = Walk(stores_at_once=stores_at_once)
    for action in actions:
        walk.take(action)
        walk.check()
    walk.come_to_rest()


@settings(max_examples=100)
@given(st.lists(step, max_size=40))
def test_every_waiter_is_answered_once(actions: list[tuple[object, ...]]) -> None:
    walk = Walk(stores_at_once=False)
    for action in actions:
        walk.take(action)
    while walk.group.storing is not None:
        walk.group.store()
    if not walk.group.retired:
        assert walk.group.answers.keys() == walk.group.asked
    for answer in walk.group.answers.values():
        assert isinstance(answer.error, ErrorCode)
        if isinstance(answer, ConsumerHeartbeatReply) and answer.error is ErrorCode.NONE:
            assert answer.member_id
        if isinstance(answer, SyncReply) and answer.error is not ErrorCode.NONE:
            assert answer.assignment == b""
