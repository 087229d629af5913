"""The controller's decisions: what happens when brokers, topics and in-sync sets change. Pure.

`ControllerMachine.handle(event)` returns effects: state znodes to write, conditionally, and orders for
brokers. The rules of the protocol between machine and driver:

- Effects with writes carry no orders. The driver performs the writes and hands their results in as
  WritesDone before any other event; refused writes come back with what was read instead and are decided
  again. Orders follow once every write of the step is done, so that no broker hears of a state that
  ZooKeeper does not hold.
- A machine lives for one controller epoch. Its first event is SnapshotRead, which makes good whatever its
  predecessor left undone and tells every broker everything; all later orders carry only changes.
- Events are levels: they say what there is now. Handling one twice changes nothing.

States of a topic: known (in `_topics`), being deleted (in `_deleting` too, with the replicas still to be
deleted), gone. Unreadable partitions are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from broker.cluster.election import Electorate, elected_state, first_state, preferred_state, repaired
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
    ReplicasDeleted,
    ReplicasLost,
    ShutdownAsked,
    SnapshotRead,
    StatesRead,
    StateWrite,
    StoredState,
    TopicsRead,
    UncleanDefaultSet,
    UncleanRead,
    WritesDone,
)
from broker.cluster.image import UNKNOWN_EPOCH, BrokerInfo, ImageUpdate, PartitionImage
from broker.cluster.orders import EPOCH_DURING_DELETE, BrokerOrders, RoleOrder, StopOrder
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicPartition


@dataclass(slots=True)
class _Step:
    """What the event under way leads to, collected until its writes are done."""

    writes: dict[TopicPartition, PartitionStateZnode] = field(default_factory=dict)
    roles: set[TopicPartition] = field(default_factory=set)
    new: set[TopicPartition] = field(default_factory=set)
    metadata: set[TopicPartition] = field(default_factory=set)
    brokers_changed: bool = False
    joined: set[BrokerId] = field(default_factory=set)
    asked_again: set[BrokerId] = field(default_factory=set)
    removed: dict[TopicPartition, TopicId] = field(default_factory=dict)
    deletions: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    halted: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    dismissed: list[str] = field(default_factory=list)
    elections: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


class ControllerMachine:
    """The controller of one epoch."""

    def __init__(
        self, *, controller_id: BrokerId, controller_epoch: int, settings: ControllerSettings
    ) -> None:
        self._controller_id = controller_id
        self._epoch = controller_epoch
        self._settings = settings
        self._brokers: Mapping[BrokerId, BrokerInfo] = {}
        self._stopping: set[BrokerId] = set()
        self._topics: dict[str, TopicZnode] = {}
        self._states: dict[TopicPartition, StoredState] = {}
        self._on_broker: dict[BrokerId, set[TopicPartition]] = {}
        self._deleting: dict[str, set[tuple[BrokerId, TopicPartition]]] = {}
        self._lost: dict[TopicPartition, set[BrokerId]] = {}
        self._unclean: Mapping[str, bool] = {}
        self._unreadable: frozenset[TopicPartition] = frozenset()
        self._step: _Step | None = None

    @property
    def brokers(self) -> Mapping[BrokerId, BrokerInfo]:
        return self._brokers

    @property
    def topics(self) -> Mapping[str, TopicZnode]:
        return self._topics

    def led_by(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions with more than one replica that `broker_id` leads: a shutdown should not leave any."""
        return sorted(
            tp
            for tp in self._on_broker.get(broker_id, ())
            if self._leader(tp) == broker_id and len(self._replicas(tp)) > 1
        )

    def handle(self, event: Event) -> ControllerEffects:
        """Decide what `event` leads to; the module's docstring has the rules."""
        if isinstance(event, WritesDone):
            assert self._step is not None, "results of writes that were never asked for"
            self._writes_done(self._step, event)
        else:
            assert self._step is None, "an event before the writes of the last one were done"
            self._step = _Step()
            self._decide(self._step, event)
        return self._effects(self._step)

    def _decide(self, step: _Step, event: Event) -> None:
        match event:
            case SnapshotRead():
                self._snapshot_read(step, event)
            case BrokersRead():
                self._brokers_read(step, event.brokers)
            case TopicsRead():
                self._topics_read(step, event)
            case StatesRead():
                self._states_read(step, event.states)
            case DeletionsRead():
                self._deletions_read(step, event.topics)
            case ReplicasDeleted():
                self._replicas_deleted(step, event)
            case DirectoriesFailed():
                step.asked_again = set(event.brokers & self._brokers.keys())
            case ReplicasLost():
                self._replicas_lost(step, event)
            case UncleanRead():
                self._unclean = event.unclean
                self._repair(step, self._leaderless())
            case UncleanDefaultSet():
                self._settings = replace(self._settings, unclean_leader_election=event.allowed)
                self._repair(step, self._leaderless())
            case ShutdownAsked():
                self._stopping.add(event.broker_id)
                self._shutdown_asked(step, event.broker_id)
            case ElectionAsked():
                self._election_asked(step, event)
            case BalanceDue():
                self._balance_due(step)
            case WritesDone():
                raise AssertionError("handled before")
            case _:
                assert_never(event)

    # Events

    def _snapshot_read(self, step: _Step, event: SnapshotRead) -> None:
        self._brokers = event.brokers
        self._unclean = event.unclean
        self._unreadable = event.unreadable
        self._states = dict(event.states)
        for name, topic in event.topics.items():
            self._adopt(name, topic)
        self._deletions_read(step, event.deletions)
        step.joined = set(event.brokers)
        self._repair(step, self._all_partitions())
        self._renew_restarted_leaders(step)

    def _renew_restarted_leaders(self, step: _Step) -> None:
        """A leader that registered after its state was written has restarted: it may have lost what it led.

        Its epoch ended with the old process; going on in the same one could give an offset two values.
        """
        for tp in self._all_partitions():
            stored = self._states.get(tp)
            if stored is None or tp in step.writes or stored.state.leader not in self._brokers:
                continue
            if self._brokers[stored.state.leader].epoch > stored.mzxid:
                elected = elected_state(
                    stored.state, self._replicas(tp), self._electorate(tp), controller_epoch=self._epoch
                )
                if elected is not None:
                    step.writes[tp] = elected

    def _brokers_read(self, step: _Step, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        joined, left = brokers.keys() - self._brokers.keys(), self._brokers.keys() - brokers.keys()
        if brokers == self._brokers:
            return
        self._brokers = brokers
        self._stopping -= joined | left
        for broker_id in left:
            for tp in self._on_broker.get(broker_id, ()):
                self._lost.get(tp, set()).discard(broker_id)
        step.brokers_changed = True
        step.joined |= joined
        touched = {tp for broker_id in joined | left for tp in self._on_broker.get(broker_id, ())}
        step.metadata |= touched - self._being_deleted()
        self._repair(step, touched)
        for broker_id in joined:
            self._stop_deleted_replicas(step, broker_id)

    def _topics_read(self, step: _Step, event: TopicsRead) -> None:
        for name in event.gone & self._topics.keys():
            self._forget(step, name)
        for name, topic in event.topics.items():
            known = self._topics.get(name)
            if known is not None and known.topic_id != topic.topic_id:
                self._forget(step, name)
                known = None
            self._adopt(name, topic)
            if name not in self._deleting:
                before = known.partitions if known else {}
                self._repair(step, (TopicPartition(name, p) for p in topic.partitions if p not in before))

    def _states_read(self, step: _Step, states: Mapping[TopicPartition, StoredState]) -> None:
        changed = {tp for tp in states if self._is_newer(tp, states[tp])} - self._being_deleted()
        step.roles |= {tp for tp in changed if states[tp].state.leader_epoch > self._leader_epoch(tp)}
        self._states.update({tp: states[tp] for tp in changed})
        step.metadata |= changed
        self._repair(step, changed)

    def _is_newer(self, tp: TopicPartition, stored: StoredState) -> bool:
        known = self._states.get(tp)
        return self._exists(tp) and (known is None or stored.version > known.version)

    def _deletions_read(self, step: _Step, names: frozenset[str]) -> None:
        for name in sorted(names - self._deleting.keys()):
            topic = self._topics.get(name)
            if topic is None:
                step.dismissed.append(name)
                continue
            partitions = {TopicPartition(name, p): replicas for p, replicas in topic.partitions.items()}
            self._deleting[name] = {(r, tp) for tp, replicas in partitions.items() for r in replicas}
            step.removed.update(dict.fromkeys(partitions, topic.topic_id))
            for broker_id in {r for r, _ in self._deleting[name]} & self._brokers.keys():
                self._stop_deleted_replicas(step, broker_id)
            self._erase_if_deleted(step, name)

    def _stop_deleted_replicas(self, step: _Step, broker_id: BrokerId) -> None:
        for remaining in self._deleting.values():
            for replica, tp in remaining:
                if replica == broker_id:
                    step.deletions.setdefault(broker_id, set()).add(tp)

    def _replicas_deleted(self, step: _Step, event: ReplicasDeleted) -> None:
        for name in sorted({tp.topic for tp in event.partitions} & self._deleting.keys()):
            self._deleting[name] -= {(event.broker_id, tp) for tp in event.partitions}
            self._erase_if_deleted(step, name)

    def _replicas_lost(self, step: _Step, event: ReplicasLost) -> None:
        """The broker lives, but not these replicas: others lead, until it registers anew."""
        if event.broker_id not in self._brokers:
            return
        lost = {
            tp
            for tp in event.partitions
            if self._exists(tp)
            and event.broker_id in self._replicas(tp)
            and event.broker_id not in self._lost.setdefault(tp, set())
        }
        for tp in lost:
            self._lost[tp].add(event.broker_id)
        step.metadata |= lost - self._being_deleted()
        self._repair(step, lost)

    def _erase_if_deleted(self, step: _Step, name: str) -> None:
        if not self._deleting[name]:
            step.erased.append(name)
            self._drop(name)

    def _shutdown_asked(self, step: _Step, broker_id: BrokerId) -> None:
        led = set(self.led_by(broker_id))
        followed = {
            tp
            for tp in self._on_broker.get(broker_id, set()) - self._being_deleted()
            if self._leader(tp) != broker_id and tp in self._states
        }
        self._repair(step, led | followed)
        step.halted[broker_id] = followed

    def _election_asked(self, step: _Step, event: ElectionAsked) -> None:
        partitions = self._all_partitions() if event.partitions is None else event.partitions
        for tp in sorted(partitions):
            step.elections[tp] = self._elect(step, tp, event.kind)

    def _elect(self, step: _Step, tp: TopicPartition, kind: ElectionKind) -> ErrorCode:
        stored = self._states.get(tp)
        if stored is None or tp in self._being_deleted():
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state, replicas = stored.state, self._replicas(tp)
        if kind is ElectionKind.PREFERRED:
            if state.leader == replicas[0]:
                return ErrorCode.ELECTION_NOT_NEEDED
            elected = preferred_state(state, replicas, self._electorate(tp), controller_epoch=self._epoch)
            unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            if state.leader in self._electorate(tp).alive:
                return ErrorCode.ELECTION_NOT_NEEDED
            elected = repaired(
                state, replicas, self._electorate(tp), controller_epoch=self._epoch, unclean=True
            )
            unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if elected is None or elected.leader == NO_LEADER:
            return unavailable
        step.writes[tp] = elected
        return ErrorCode.NONE

    def _balance_due(self, step: _Step) -> None:
        for broker_id in self._brokers:
            preferred = [
                tp for tp in self._on_broker.get(broker_id, ()) if self._replicas(tp)[0] == broker_id
            ]
            lacking = [tp for tp in preferred if self._leader(tp) != broker_id]
            if len(lacking) * 100 > self._settings.leader_imbalance_per_broker_percentage * len(preferred):
                for tp in lacking:
                    self._elect(step, tp, ElectionKind.PREFERRED)

    def _writes_done(self, step: _Step, event: WritesDone) -> None:
        for tp, version in event.done.items():
            if tp not in self._states:
                step.new.add(tp)
            self._states[tp] = StoredState(state=step.writes[tp], version=version)
            step.roles.add(tp)
        step.writes = {}
        for tp, stored in event.refused.items():
            if tp in step.elections:
                step.elections[tp] = ErrorCode.LEADER_NOT_AVAILABLE
            if stored is None:
                self._states.pop(tp, None)
            else:
                self._states[tp] = stored
                step.metadata.add(tp)
        self._repair(step, (tp for tp in event.refused if self._exists(tp) and event.refused[tp]))

    # State

    def _electorate(self, tp: TopicPartition) -> Electorate:
        alive, lost = self._brokers.keys(), self._lost.get(tp)
        return Electorate(alive=alive - lost if lost else alive, stopping=self._stopping)

    def _repair(self, step: _Step, partitions: Iterable[TopicPartition]) -> None:
        """Collect the writes that make these partitions right for the brokers there are."""
        being_deleted = self._being_deleted()
        for tp in partitions:
            if tp in self._unreadable or tp in being_deleted:
                continue
            stored, replicas, electorate = self._states.get(tp), self._replicas(tp), self._electorate(tp)
            if stored is None:
                state = first_state(replicas, electorate, self._epoch)
                step.metadata.add(tp)
            else:
                unclean = self._unclean.get(tp.topic, self._settings.unclean_leader_election)
                state = repaired(
                    stored.state, replicas, electorate, controller_epoch=self._epoch, unclean=unclean
                )
            if state is not None:
                step.writes[tp] = state

    def _adopt(self, name: str, topic: TopicZnode) -> None:
        known = self._topics.get(name)
        for partition, replicas in known.partitions.items() if known else ():
            for replica in replicas:
                self._on_broker[replica].discard(TopicPartition(name, partition))
        self._topics[name] = topic
        for partition, replicas in topic.partitions.items():
            for replica in replicas:
                self._on_broker.setdefault(replica, set()).add(TopicPartition(name, partition))

    def _forget(self, step: _Step, name: str) -> None:
        """A topic whose znodes somebody removed by hand: nodes drop it from their image, logs stay."""
        topic = self._topics[name]
        step.removed.update(
            dict.fromkeys((TopicPartition(name, p) for p in topic.partitions), topic.topic_id)
        )
        self._drop(name)

    def _drop(self, name: str) -> None:
        for partition, replicas in self._topics.pop(name).partitions.items():
            tp = TopicPartition(name, partition)
            self._states.pop(tp, None)
            self._lost.pop(tp, None)
            for replica in replicas:
                self._on_broker[replica].discard(tp)
        self._deleting.pop(name, None)

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def _replicas(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        return self._topics[tp.topic].partitions[tp.partition]

    def _leader(self, tp: TopicPartition) -> BrokerId:
        stored = self._states.get(tp)
        return stored.state.leader if stored else NO_LEADER

    def _leader_epoch(self, tp: TopicPartition) -> int:
        stored = self._states.get(tp)
        return stored.state.leader_epoch if stored else UNKNOWN_EPOCH

    def _leaderless(self) -> list[TopicPartition]:
        return [tp for tp in self._states if self._leader(tp) == NO_LEADER]

    def _all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, p) for name, topic in self._topics.items() for p in topic.partitions]

    def _being_deleted(self) -> set[TopicPartition]:
        return {TopicPartition(n, p) for n in self._deleting for p in self._topics[n].partitions}

    # Effects

    def _effects(self, step: _Step) -> ControllerEffects:
        if step.writes:
            return ControllerEffects(
                writes={
                    tp: StateWrite(state=s, expected_version=self._version(tp))
                    for tp, s in step.writes.items()
                }
            )
        self._step = None
        return ControllerEffects(
            orders=self._orders(step),
            erased=tuple(step.erased),
            dismissed=tuple(step.dismissed),
            elections=dict(step.elections),
        )

    def _version(self, tp: TopicPartition) -> int | None:
        stored = self._states.get(tp)
        return stored.version if stored else None

    def _orders(self, step: _Step) -> dict[BrokerId, BrokerOrders]:
        changes = self._metadata_changes(step)
        whole = self._full_metadata() if step.joined else None
        roles = self._roles(step)
        orders: dict[BrokerId, BrokerOrders] = {}
        for broker_id in self._brokers:
            joined = broker_id in step.joined
            order = BrokerOrders(
                roles=(
                    self._all_roles(broker_id, step)
                    if joined or broker_id in step.asked_again
                    else roles.get(broker_id, {})
                ),
                full_roles=joined,
                metadata=whole if joined else changes,
                stops=self._stops(broker_id, step),
            )
            if order:
                orders[broker_id] = order
        return orders

    def _stops(self, broker_id: BrokerId, step: _Step) -> dict[TopicPartition, StopOrder]:
        halted = {
            tp: StopOrder(leader_epoch=self._states[tp].state.leader_epoch, delete=False)
            for tp in step.halted.get(broker_id, ())
            if tp in self._states
        }
        deletion = StopOrder(leader_epoch=EPOCH_DURING_DELETE, delete=True)
        return {**halted, **dict.fromkeys(step.deletions.get(broker_id, ()), deletion)}

    def _metadata_changes(self, step: _Step) -> ImageUpdate | None:
        changed = {tp for tp in step.roles | step.metadata if self._exists(tp)}
        if not (changed or step.removed or step.brokers_changed):
            return None
        return ImageUpdate(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            brokers=self._brokers,
            partitions={tp: self._image(tp) for tp in changed},
            topic_ids={
                **{tp.topic: topic_id for tp, topic_id in step.removed.items()},
                **{tp.topic: self._topics[tp.topic].topic_id for tp in changed},
            },
            removed=frozenset(step.removed.keys() - changed),
        )

    def _full_metadata(self) -> ImageUpdate:
        shown = set(self._all_partitions()) - self._being_deleted()
        return ImageUpdate(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            brokers=self._brokers,
            partitions={tp: self._image(tp) for tp in shown},
            topic_ids={tp.topic: self._topics[tp.topic].topic_id for tp in shown},
            full=True,
        )

    def _roles(self, step: _Step) -> dict[BrokerId, dict[TopicPartition, RoleOrder]]:
        roles: dict[BrokerId, dict[TopicPartition, RoleOrder]] = {}
        for tp in step.roles:
            role = self._role(tp, step)
            for replica in self._replicas(tp):
                if tp not in step.halted.get(replica, ()):
                    roles.setdefault(replica, {})[tp] = role
        return roles

    def _all_roles(self, broker_id: BrokerId, step: _Step) -> dict[TopicPartition, RoleOrder]:
        partitions = self._on_broker.get(broker_id, set()) - self._being_deleted()
        return {tp: self._role(tp, step) for tp in partitions if tp in self._states}

    def _role(self, tp: TopicPartition, step: _Step) -> RoleOrder:
        return RoleOrder(
            topic_id=self._topics[tp.topic].topic_id, image=self._image(tp), is_new=tp in step.new
        )

    def _image(self, tp: TopicPartition) -> PartitionImage:
        topic, stored = self._topics[tp.topic], self._states.get(tp)
        replicas = self._replicas(tp)
        return PartitionImage(
            leader=stored.state.leader if stored else NO_LEADER,
            leader_epoch=stored.state.leader_epoch if stored else LeaderEpoch(UNKNOWN_EPOCH),
            isr=stored.state.isr if stored else (),
            replicas=replicas,
            partition_epoch=stored.version if stored else UNKNOWN_EPOCH,
            controller_epoch=stored.state.controller_epoch if stored else self._epoch,
            offline=tuple(replica for replica in replicas if replica not in self._electorate(tp).alive),
            adding=topic.adding.get(tp.partition, ()),
            removing=topic.removing.get(tp.partition, ()),
        )
