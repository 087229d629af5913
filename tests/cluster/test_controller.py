"""The controller's machine, driven against a store of states that accepts conditional writes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.cluster.controller import ControllerMachine
from broker.cluster.events import (
    BalanceDue,
    BrokersRead,
    ControllerEffects,
    ControllerSettings,
    DeletionsRead,
    DirectoriesFailed,
    ElectionAsked,
    ElectionKind,
    Event,
    ReassignmentsAsked,
    ReplicasDeleted,
    ReplicasLost,
    ShutdownAsked,
    SnapshotRead,
    StatesRead,
    StoredState,
    TopicsRead,
    UncleanRead,
    WritesDone,
    broker_steps,
)
from broker.cluster.image import BrokerInfo, ClusterImage
from broker.cluster.orders import BrokerOrders
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition
from tests.cluster.scenes import T0, T1, T2, ids, live, topic

ME = BrokerId(1)


@dataclass
class Scene:
    """A machine, the states that ZooKeeper would hold, and what brokers were told."""

    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=lambda: live(1, 2, 3))
    topics: dict[str, TopicZnode] = field(default_factory=dict)
    states: dict[TopicPartition, StoredState] = field(default_factory=dict)
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    epoch: int = 5
    zxid: int = 1000
    told: dict[BrokerId, BrokerOrders] = field(default_factory=dict)
    images: dict[BrokerId, ClusterImage] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    dismissed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = self._machine()

    def _machine(self) -> ControllerMachine:
        return ControllerMachine(controller_id=ME, controller_epoch=self.epoch, settings=self.settings)

    def start(self, deletions: frozenset[str] = frozenset(), **snapshot: object) -> ControllerEffects:
        return self.handle(
            SnapshotRead(
                brokers=self.brokers,
                topics=dict(self.topics),
                states=dict(self.states),
                deletions=deletions,
                **snapshot,  # type: ignore[arg-type]
            )
        )

    def fail_over(self) -> None:
        self.epoch += 1
        self.machine = self._machine()
        self.start()

    def handle(self, event: Event) -> ControllerEffects:
        self.told = {}
        effects = self.machine.handle(event)
        while effects.writes or effects.topic_writes:
            assert not effects.orders
            effects = self.machine.handle(self._write(effects))
        for broker_id, orders in effects.orders.items():
            self.told[broker_id] = orders
            if orders.metadata is not None:
                image = self.images.get(broker_id, ClusterImage(cluster_id="c"))
                self.images[broker_id] = image.apply(orders.metadata)
        self.erased += effects.erased
        self.dismissed += effects.dismissed
        for name in effects.erased:
            self.topics.pop(name, None)
            self.states = {tp: stored for tp, stored in self.states.items() if tp.topic != name}
        return effects

    def _write(self, effects: ControllerEffects) -> WritesDone:
        done: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, StoredState | None] = {}
        for tp, write in effects.writes.items():
            stored = self.states.get(tp)
            if (stored.version if stored else None) != write.expected_version or tp.topic not in self.topics:
                refused[tp] = stored
                continue
            self.store(tp, write.state)
            done[tp] = self.states[tp].version
        topics_done, topics_refused = set[str](), dict[str, TopicZnode | None]()
        for name, wanted in effects.topic_writes.items():
            if self.topics.get(name) == wanted.expected:
                self.topics[name] = wanted.topic
                topics_done.add(name)
            else:
                topics_refused[name] = self.topics.get(name)
        return WritesDone(
            done=done, refused=refused, topics_done=frozenset(topics_done), topics_refused=topics_refused
        )

    def reassign(self, tp: TopicPartition, *target: int) -> ProtocolError | None:
        """Ask for a move; without a target, cancel the one under way."""
        effects = self.handle(ReassignmentsAsked(targets={tp: ids(*target) if target else None}))
        return effects.reassignments[tp]

    def replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        return self.topics[tp.topic].partitions[tp.partition]

    def catch_up(self, tp: TopicPartition, *isr: int) -> None:
        """What a leader does, and tells."""
        self.change_isr(tp, *isr)
        self.handle(StatesRead(states={tp: self.states[tp]}))

    def store(self, tp: TopicPartition, state: PartitionStateZnode) -> None:
        self.zxid += 1
        version = self.states[tp].version + 1 if tp in self.states else 0
        self.states[tp] = StoredState(state=state, version=version, mzxid=self.zxid)

    def change_isr(self, tp: TopicPartition, *isr: int) -> None:
        """What a leader does."""
        self.store(tp, replace(self.states[tp].state, isr=ids(*isr)))

    def set_brokers(self, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        for step in broker_steps(self.brokers, brokers):
            self.handle(BrokersRead(brokers=step))
        self.brokers = brokers

    def create(self, name: str, znode: TopicZnode) -> None:
        self.topics[name] = znode
        self.handle(TopicsRead(topics={name: znode}))

    def role(self, tp: TopicPartition) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch and ISR as stored."""
        state = self.states[tp].state
        return state.leader, state.leader_epoch, state.isr


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.start()
    return scene


def test_the_first_act_tells_every_broker_everything() -> None:
    scene = Scene(topics={"t": topic({0: [1, 2], 1: [2, 3]})})
    scene.start()
    assert {broker: set(orders.roles) for broker, orders in scene.told.items()} == {
        1: {T0},
        2: {T0, T1},
        3: {T1},
    }
    for orders in scene.told.values():
        assert orders.full_roles
        assert orders.metadata is not None
        assert orders.metadata.full
        assert set(orders.metadata.partitions) == {T0, T1}


def test_a_new_topic_gets_leaders_and_is_announced(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2], 1: [2, 3]}))
    assert scene.role(T0) == (1, 0, (1, 2))
    assert scene.role(T1) == (2, 0, (2, 3))
    assert scene.told[ids(2)[0]].roles[T1].is_new
    assert not scene.told[ids(2)[0]].full_roles
    image = scene.images[ids(3)[0]].partition(T0)
    assert image is not None
    assert (image.leader, image.partition_epoch, image.controller_epoch) == (1, 0, 5)


def test_the_same_event_twice_changes_nothing(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    before = dict(scene.states)
    scene.create("t", scene.topics["t"])
    scene.set_brokers(scene.brokers)
    scene.handle(StatesRead(states=scene.states))
    assert scene.states == before
    assert scene.told == {}


def test_added_partitions_get_leaders_and_old_ones_keep_theirs(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.create("t", topic({0: [1, 2], 1: [3, 1]}))
    assert scene.role(T0) == (1, 0, (1, 2))
    assert scene.role(T1) == (3, 0, (3, 1))
    assert set(scene.told[BrokerId(1)].roles) == {T1}


def test_a_topic_without_live_replicas_waits_for_one(scene: Scene) -> None:
    scene.create("t", topic({0: [7]}))
    assert T0 not in scene.states
    image = scene.images[ME].partition(T0)
    assert image is not None
    assert not image.has_leader
    scene.set_brokers(live(1, 2, 3, 7))
    assert scene.role(T0) == (7, 0, (7,))


def lost(broker_id: int, *partitions: TopicPartition) -> ReplicasLost:
    return ReplicasLost(broker_id=BrokerId(broker_id), partitions=frozenset(partitions))


def test_a_broker_whose_disk_failed_is_told_its_roles_again(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2], 1: [2, 3]}))
    scene.handle(DirectoriesFailed(brokers=frozenset(ids(2, 9))))
    assert set(scene.told) == {2}
    assert set(scene.told[BrokerId(2)].roles) == {T0, T1}
    assert not scene.told[BrokerId(2)].full_roles


def test_a_replica_on_a_failed_disk_does_not_lead_and_is_told_to_be_away(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2], 1: [2, 1]}))
    scene.handle(lost(1, T0))
    assert scene.role(T0) == (2, 1, (1, 2))
    assert scene.role(T1) == (2, 0, (2, 1))
    image = scene.images[BrokerId(3)].partition(T0)
    assert image is not None
    assert image.offline == (1,)
    scene.handle(lost(1, T0, T1))
    assert scene.role(T1) == (2, 0, (2, 1))
    image = scene.images[BrokerId(2)].partition(T1)
    assert image is not None
    assert image.offline == (1,)


def test_the_last_replica_on_a_failed_disk_leaves_its_partition_without_leader(scene: Scene) -> None:
    scene.create("t", topic({0: [1], 1: [2]}))
    scene.handle(lost(1, T0))
    assert scene.role(T0) == (NO_LEADER, 1, (1,))
    assert scene.role(T1) == (2, 0, (2,))
    scene.handle(ElectionAsked(partitions=None, kind=ElectionKind.PREFERRED))
    assert scene.role(T0) == (NO_LEADER, 1, (1,))


def test_a_repeated_answer_of_a_failed_disk_changes_nothing(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.handle(lost(1, T0))
    before = dict(scene.states)
    scene.handle(lost(1, T0))
    assert scene.states == before
    assert scene.told == {}


def test_a_broker_that_registers_anew_may_lead_again(scene: Scene) -> None:
    scene.create("t", topic({0: [1]}))
    scene.handle(lost(1, T0))
    scene.set_brokers(live(2, 3))
    scene.set_brokers(live(1, 2, 3))
    assert scene.role(T0)[0] == 1


def test_a_dead_leader_is_followed_by_an_in_sync_replica(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2, 3]}))
    scene.change_isr(T0, 1, 3)
    scene.set_brokers(live(2, 3))
    assert scene.role(T0) == (3, 1, (1, 3))
    image = scene.images[BrokerId(2)].partition(T0)
    assert image is not None
    assert image.offline == (1,)
    assert image.leader == 3


def test_the_last_in_sync_replica_is_waited_for(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.change_isr(T0, 1)
    scene.set_brokers(live(2, 3))
    assert scene.role(T0) == (NO_LEADER, 1, (1,))
    scene.set_brokers(live(1, 2, 3, epoch_1=20))
    assert scene.role(T0) == (1, 2, (1,))
    assert scene.told[ME].full_roles


def test_unclean_election_is_for_topics_that_allow_it(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.create("u", topic({0: [1, 2]}, number=2))
    u0 = TopicPartition("u", 0)
    for tp in (T0, u0):
        scene.change_isr(tp, 1)
    scene.set_brokers(live(2, 3))
    scene.handle(UncleanRead(unclean={"u": True}))
    assert scene.role(T0) == (NO_LEADER, 1, (1,))
    assert scene.role(u0) == (2, 2, (2,))


def test_a_broker_that_registered_again_loses_what_it_led(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.set_brokers(live(1, 2, 3, epoch_1=30))
    assert scene.role(T0) == (2, 1, (1, 2))
    assert scene.told[ME].full_roles
    assert T0 in scene.told[ME].roles


def test_a_leader_that_restarted_before_the_election_gets_a_new_epoch() -> None:
    scene = Scene(brokers=live(1, epoch_1=5000), topics={"t": topic({0: [1]})})
    scene.store(
        T0, PartitionStateZnode(controller_epoch=1, leader=ME, leader_epoch=LeaderEpoch(4), isr=ids(1))
    )
    scene.start()
    assert scene.role(T0) == (1, 5, (1,))
    scene.brokers = live(1, epoch_1=500)
    scene.fail_over()
    assert scene.role(T0) == (1, 5, (1,))


def test_a_refused_write_is_decided_again_from_what_is_there(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2, 3]}))
    scene.change_isr(T0, 1, 3)  # the controller has not heard of it
    scene.set_brokers(live(2, 3))
    assert scene.role(T0)[0] == 3


def test_an_isr_change_reaches_every_image(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2, 3]}))
    scene.change_isr(T0, 1, 2)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    for image in scene.images.values():
        partition = image.partition(T0)
        assert partition is not None
        assert partition.isr == (1, 2)
    assert all(not orders.roles for orders in scene.told.values())


def test_a_leader_epoch_that_another_than_the_controller_began_is_told_to_every_replica(
    scene: Scene,
) -> None:
    scene.create("t", topic({0: [1, 2, 3]}))
    stored = scene.states[T0]
    left = replace(stored.state, leader_epoch=LeaderEpoch(1), isr=ids(1, 2))
    scene.states[T0] = replace(stored, state=left, version=stored.version + 1)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    for broker_id in ids(1, 2, 3):
        assert scene.told[broker_id].roles[T0].image.leader_epoch == 1


def test_a_leader_epoch_that_is_met_where_a_write_is_refused_is_told_to_every_replica(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2, 3]}))
    scene.set_brokers(live(2, 3))
    scene.set_brokers(live(1, 2, 3))
    stored = scene.states[T0]
    left = replace(stored.state, leader_epoch=LeaderEpoch(2), isr=ids(2, 3))
    scene.states[T0] = replace(stored, state=left, version=stored.version + 1)
    scene.handle(ElectionAsked(partitions=frozenset([T0]), kind=ElectionKind.PREFERRED))
    for broker_id in ids(1, 2, 3):
        assert scene.told[broker_id].roles[T0].image.leader_epoch == 2


def test_a_stopping_broker_hands_its_leaderships_over(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2], 1: [2, 1], 2: [1]}))
    scene.handle(ShutdownAsked(broker_id=ME))
    assert scene.role(T0) == (2, 1, (1, 2))
    assert scene.role(T1) == (2, 0, (2, 1))
    assert scene.role(T2) == (1, 0, (1,))
    assert scene.machine.led_by(ME) == []
    assert set(scene.told[ME].roles) == {T0}


def test_a_stopping_broker_keeps_what_nobody_can_take(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.change_isr(T0, 1)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    scene.handle(ShutdownAsked(broker_id=ME))
    assert scene.machine.led_by(ME) == [T0]


def test_a_topic_is_deleted_once_every_replica_is(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.set_brokers(live(1, 3))
    scene.handle(DeletionsRead(topics=frozenset(["t"])))
    assert T0 in scene.told[ME].deletions
    assert scene.images[BrokerId(3)].topics == {}
    scene.handle(ReplicasDeleted(broker_id=ME, partitions=frozenset([T0])))
    assert scene.erased == []
    scene.set_brokers(live(1, 2, 3, epoch_2=40))
    assert T0 in scene.told[BrokerId(2)].deletions
    assert T0 not in scene.told[BrokerId(2)].roles
    scene.handle(ReplicasDeleted(broker_id=BrokerId(2), partitions=frozenset([T0])))
    assert scene.erased == ["t"]
    scene.create("t", topic({0: [3]}, number=9))
    assert scene.role(T0) == (3, 0, (3,))


def test_a_deletion_goes_on_under_the_next_controller(scene: Scene) -> None:
    scene.create("t", topic({0: [1]}))
    scene.machine = ControllerMachine(controller_id=ME, controller_epoch=6, settings=scene.settings)
    scene.start(deletions=frozenset(["t", "unknown"]))
    assert scene.dismissed == ["unknown"]
    assert scene.told[ME].roles == {}
    assert T0 in scene.told[ME].deletions
    assert scene.images[ME].topics == {}


def test_a_topic_that_was_removed_by_hand_leaves_the_images(scene: Scene) -> None:
    scene.create("t", topic({0: [1]}))
    del scene.topics["t"]
    scene.handle(TopicsRead(topics={}, gone=frozenset(["t"])))
    assert all(image.topics == {} for image in scene.images.values())


def test_a_replica_that_counts_is_not_deleted_when_an_assignment_is_changed_by_hand(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.handle(TopicsRead(topics={"t": topic({0: [3]})}))
    assert all(T0 not in told.deletions for told in scene.told.values())


def test_a_lost_replica_that_its_leader_took_into_the_isr_is_lost_no_more(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.handle(ReplicasLost(broker_id=BrokerId(2), partitions=frozenset([T0])))
    scene.change_isr(T0, 1)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    scene.change_isr(T0, 1, 2)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    assert scene.states[T0].state.isr == (1, 2)
    image = scene.images[ME].partition(T0)
    assert image is not None
    assert image.offline == ()


def test_a_topic_that_was_put_back_with_its_states_has_its_roles_told(scene: Scene) -> None:
    scene.create("t", topic({0: [2]}))
    state = scene.states[T0]
    scene.handle(TopicsRead(topics={}, gone=frozenset(["t"])))
    scene.states[T0] = state
    scene.handle(TopicsRead(topics={"t": scene.topics["t"]}))
    assert scene.states[T0] == state
    assert T0 in scene.told[BrokerId(2)].roles


def test_an_assignment_that_is_put_right_gives_the_partition_its_leader_back() -> None:
    scene = Scene(topics={"t": topic({0: [2]})})
    scene.start()
    scene.handle(TopicsRead(topics={"t": topic({0: [1]})}))
    scene.set_brokers(live(1))
    scene.store(T0, replace(scene.states[T0].state, leader=NO_LEADER))
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    scene.set_brokers(live(1, 2))
    assert scene.states[T0].state.leader == NO_LEADER
    scene.handle(TopicsRead(topics={"t": topic({0: [2]})}))
    assert scene.states[T0].state.leader == 2


def test_an_unreadable_state_is_left_alone() -> None:
    scene = Scene(topics={"t": topic({0: [1, 2], 1: [2]})})
    scene.start(unreadable=frozenset([T0]))
    assert set(scene.states) == {T1}
    scene.set_brokers(live(2, 3))
    assert set(scene.states) == {T1}


@pytest.mark.parametrize(
    ("partition", "alive", "isr", "kind", "expected"),
    [
        (0, (1, 2, 3), (2, 1), ElectionKind.PREFERRED, ErrorCode.NONE),
        (0, (1, 2, 3), (2,), ElectionKind.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (9, (1, 2, 3), (2, 1), ElectionKind.PREFERRED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, (1, 2, 3), (2, 1), ElectionKind.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (0, (1, 3), (2,), ElectionKind.UNCLEAN, ErrorCode.NONE),
        (0, (3,), (2,), ElectionKind.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_an_election_on_request(
    partition: int, alive: tuple[int, ...], isr: tuple[int, ...], kind: ElectionKind, expected: ErrorCode
) -> None:
    scene = Scene(topics={"t": topic({0: [1, 2]})})
    state = PartitionStateZnode(
        controller_epoch=1, leader=BrokerId(2), leader_epoch=LeaderEpoch(3), isr=ids(*isr)
    )
    scene.store(T0, state)
    scene.start()
    scene.set_brokers(live(*alive))
    asked = TopicPartition("t", partition)
    effects = scene.handle(ElectionAsked(partitions=frozenset([asked]), kind=kind))
    assert effects.elections == {asked: expected}
    if expected is ErrorCode.NONE:
        assert scene.role(T0)[0] == 1


def test_leaderships_go_back_to_preferred_replicas(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2], 1: [2, 1], 2: [3, 1]}))
    scene.set_brokers(live(2, 3))
    scene.set_brokers(live(1, 2, 3, epoch_1=50))
    scene.change_isr(T0, 2, 1)
    scene.handle(StatesRead(states={T0: scene.states[T0]}))
    scene.handle(BalanceDue())
    assert scene.role(T0)[0] == 1
    before = dict(scene.states)
    scene.handle(BalanceDue())
    assert scene.states == before


def test_a_partition_moves_once_the_new_replicas_caught_up(scene: Scene) -> None:
    scene.set_brokers(live(1, 2, 3, 4))
    scene.create("t", topic({0: [1, 2]}))
    assert scene.reassign(T0, 3, 4) is None
    assert scene.replicas(T0) == (3, 4, 1, 2)
    assert scene.topics["t"].adding == {0: (3, 4)}
    assert scene.topics["t"].removing == {0: (1, 2)}
    assert scene.told[BrokerId(3)].roles[T0].is_new
    assert not scene.told[BrokerId(1)].roles[T0].is_new
    assert scene.role(T0)[0] == 1
    scene.catch_up(T0, 1, 2, 3)
    assert scene.machine.moving == {T0}
    scene.catch_up(T0, 1, 2, 3, 4)
    assert scene.role(T0) == (3, 1, (3, 4))
    assert scene.topics["t"] == topic({0: [3, 4]})
    assert scene.machine.moving == frozenset()
    for removed in ids(1, 2):
        assert T0 in scene.told[removed].deletions
        assert T0 not in scene.told[removed].roles
    image = scene.images[BrokerId(1)].partition(T0)
    assert image is not None
    assert image.replicas == (3, 4)


def test_a_leader_that_stays_goes_on_leading(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.reassign(T0, 3, 1)
    scene.catch_up(T0, 1, 2, 3)
    assert scene.role(T0) == (1, 1, (1, 3))
    assert scene.replicas(T0) == (3, 1)


def test_another_order_of_replicas_is_taken_at_once(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    assert scene.reassign(T0, 2, 1) is None
    assert scene.topics["t"] == topic({0: [2, 1]})
    assert scene.machine.moving == frozenset()
    assert scene.told[BrokerId(2)].roles[T0].image.replicas == (2, 1)


def test_a_cancelled_move_deletes_what_was_added(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.reassign(T0, 3)
    scene.catch_up(T0, 1)
    assert scene.reassign(T0) is None
    assert scene.topics["t"] == topic({0: [1, 2]})
    assert T0 in scene.told[BrokerId(3)].deletions
    assert scene.role(T0)[0] == 1
    error = scene.reassign(T0)
    assert error is not None
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_takes_another_direction(scene: Scene) -> None:
    scene.set_brokers(live(1, 2, 3, 4))
    scene.create("t", topic({0: [1, 2]}))
    scene.reassign(T0, 3, 2)
    assert scene.reassign(T0, 4, 2) is None
    assert scene.topics["t"].adding == {0: (4,)}
    assert set(scene.topics["t"].removing[0]) == {1, 3}
    scene.catch_up(T0, 1, 2, 4)
    assert scene.topics["t"] == topic({0: [4, 2]})
    assert {broker for broker, orders in scene.told.items() if T0 in orders.deletions} == {1, 3}


def test_a_removed_replica_on_a_dead_broker_holds_nothing_up(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.set_brokers(live(1, 3))
    scene.reassign(T0, 1, 3)
    scene.catch_up(T0, 1, 3)
    assert scene.topics["t"] == topic({0: [1, 3]})
    scene.set_brokers(live(1, 2, 3, epoch_2=60))
    assert scene.told[BrokerId(2)].full_roles
    assert T0 not in scene.told[BrokerId(2)].roles


def test_a_move_goes_on_under_the_next_controller(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.reassign(T0, 3)
    scene.change_isr(T0, 1, 2, 3)
    scene.fail_over()
    assert scene.topics["t"] == topic({0: [3]})
    assert scene.role(T0)[0] == 3


@pytest.mark.parametrize(
    ("partition", "target", "code"),
    [
        (0, (9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (7, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (7, (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, (), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_move_that_cannot_be_is_refused(
    scene: Scene, partition: int, target: tuple[int, ...], code: ErrorCode
) -> None:
    scene.create("t", topic({0: [1, 2]}))
    before = scene.topics["t"]
    error = scene.reassign(TopicPartition("t", partition), *target)
    assert error is not None
    assert error.code is code
    assert scene.topics["t"] == before


def test_a_topic_that_changed_meanwhile_is_not_written_over(scene: Scene) -> None:
    scene.create("t", topic({0: [1, 2]}))
    scene.topics["t"] = topic({0: [1, 2], 1: [3, 1]})  # the controller has not heard of it
    error = scene.reassign(T0, 3, 2)
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert scene.role(T1) == (3, 0, (3, 1))
    assert scene.reassign(T0, 3, 2) is None


class AnyHistory(RuleBasedStateMachine):
    """Brokers come and go, leaders change ISRs, controllers fail over: the promises hold after every step."""

    @initialize(
        layout=st.lists(st.permutations([1, 2, 3, 4]).map(lambda p: p[:3]), min_size=1, max_size=3),
    )
    def begin(self, layout: list[list[int]]) -> None:
        self.scene = Scene(brokers=live(1, 2, 3, 4), topics={"t": topic(dict(enumerate(layout)))})
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.scene.start()

    @rule(alive=st.sets(st.integers(1, 4)), fresh=st.booleans())
    def brokers_change(self, alive: set[int], fresh: bool) -> None:
        self.scene.zxid += 1
        brokers = live(*sorted(alive))
        for broker_id in brokers:
            known = self.scene.brokers.get(broker_id)
            epoch = self.scene.zxid if known is None or fresh else known.epoch
            brokers[broker_id] = replace(brokers[broker_id], epoch=epoch)
        self.scene.set_brokers(brokers)

    @rule(index=st.integers(0, 2), data=st.data(), told=st.booleans())
    def a_leader_changes_its_isr(self, index: int, data: st.DataObject, told: bool) -> None:
        tp = TopicPartition("t", index)
        stored = self.scene.states.get(tp)
        if stored is None or stored.state.leader not in self.scene.brokers:
            return
        others = [r for r in self.scene.topics["t"].partitions[index] if r != stored.state.leader]
        followers = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        self.scene.change_isr(tp, stored.state.leader, *followers)
        if told:
            self.scene.handle(StatesRead(states={tp: self.scene.states[tp]}))

    @precondition(lambda self: self.scene.brokers)
    @rule(data=st.data())
    def a_broker_stops(self, data: st.DataObject) -> None:
        self.scene.handle(ShutdownAsked(broker_id=data.draw(st.sampled_from(sorted(self.scene.brokers)))))

    @rule(kind=st.sampled_from([ElectionKind.PREFERRED]))
    def somebody_asks_for_elections(self, kind: ElectionKind) -> None:
        self.scene.handle(ElectionAsked(partitions=None, kind=kind))

    @rule(index=st.integers(0, 2), wanted=st.lists(st.integers(1, 4), unique=True))
    def somebody_moves_a_partition(self, index: int, wanted: list[int]) -> None:
        self.scene.reassign(TopicPartition("t", index), *wanted)

    @rule(index=st.integers(0, 2))
    def a_leader_has_all_replicas_in_sync(self, index: int) -> None:
        tp = TopicPartition("t", index)
        stored = self.scene.states.get(tp)
        if stored is not None and stored.state.leader in self.scene.brokers:
            self.scene.catch_up(tp, *(r for r in self.scene.replicas(tp) if r in self.scene.brokers))

    @invariant()
    def a_move_that_can_end_has_ended(self) -> None:
        topic, known = self.scene.topics["t"], self.scene.machine._known
        for tp in self.scene.machine.moving & known.states.keys():
            isr, number = set(known.states[tp].state.isr), tp.partition
            staying = set(topic.partitions[number]) - set(topic.removing.get(number, ()))
            can_lead = isr & staying & (known.brokers.keys() - known.stopping)
            assert not (can_lead and isr.issuperset(topic.adding.get(number, ())))

    @rule()
    def the_controller_fails_over(self) -> None:
        self.scene.fail_over()

    @invariant()
    def one_leader_per_epoch_and_it_is_in_sync(self) -> None:
        for tp, stored in self.scene.states.items():
            state = stored.state
            assert state.isr
            assert set(state.isr) <= set(self.scene.topics["t"].partitions[tp.partition])
            if state.leader != NO_LEADER:
                assert state.leader in state.isr
                assert self.leaders.setdefault((tp, state.leader_epoch), state.leader) == state.leader

    @invariant()
    def a_partition_has_a_leader_when_an_in_sync_replica_lives(self) -> None:
        for stored in self.scene.states.values():
            if stored.state.leader == NO_LEADER:
                stopping = self.scene.machine._known.stopping
                assert not (set(stored.state.isr) & self.scene.brokers.keys()) - stopping

    @invariant()
    def every_live_broker_knows_the_leaders(self) -> None:
        for broker_id in self.scene.brokers:
            for tp, stored in self.scene.states.items():
                known = self.scene.images[broker_id].partition(tp)
                assert known is not None
                assert known.leader == stored.state.leader
                assert known.leader_epoch == stored.state.leader_epoch


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
