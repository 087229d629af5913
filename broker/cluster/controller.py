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

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import assert_never

from broker.cluster.election import elected_state, first_state, preferred_state, repaired
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
    StateWrite,
    StoredState,
    TopicsRead,
    TopicWrite,
    UncleanDefaultSet,
    UncleanRead,
    WritesDone,
)
from broker.cluster.image import BrokerInfo
from broker.cluster.knowledge import Knowledge
from broker.cluster.reassignment import begun, cancelled, completed, has_caught_up, is_settled, settled_state
from broker.cluster.step import Step
from broker.coordination.znodes import TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_LEADER, BrokerId, TopicPartition


class ControllerMachine:
    """The controller of one epoch."""

    def __init__(
        self, *, controller_id: BrokerId, controller_epoch: int, settings: ControllerSettings
    ) -> None:
        self._known = Knowledge(controller_id=controller_id, epoch=controller_epoch)
        self._settings = settings
        self._unclean: Mapping[str, bool] = {}
        self._step: Step | None = None

    @property
    def brokers(self) -> Mapping[BrokerId, BrokerInfo]:
        return self._known.brokers

    @property
    def topics(self) -> Mapping[str, TopicZnode]:
        return self._known.topics

    @property
    def moving(self) -> frozenset[TopicPartition]:
        """Partitions that are being reassigned."""
        return frozenset(self._known.moving)

    @property
    def unreadable(self) -> Set[TopicPartition]:
        """Partitions whose state cannot be read."""
        return self._known.unreadable

    def led_by(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions with more than one replica that `broker_id` leads: a shutdown should not leave any."""
        return self._known.led_by(broker_id)

    def handle(self, event: Event) -> ControllerEffects:
        """Decide what `event` leads to; the module's docstring has the rules."""
        if isinstance(event, WritesDone):
            assert self._step is not None, "results of writes that were never asked for"
            self._writes_done(self._step, event)
        else:
            assert self._step is None, "an event before the writes of the last one were done"
            self._step = Step()
            self._decide(self._step, event)
        return self._effects(self._step)

    def _decide(self, step: Step, event: Event) -> None:
        match event:
            case SnapshotRead():
                self._snapshot_read(step, event)
            case BrokersRead():
                self._brokers_read(step, event.brokers)
            case TopicsRead():
                self._topics_read(step, event)
            case StatesRead():
                self._states_read(step, event)
            case DeletionsRead():
                self._deletions_read(step, event.topics)
            case ReplicasDeleted():
                self._replicas_deleted(step, event)
            case DirectoriesFailed():
                step.asked_again = set(event.brokers & self._known.brokers.keys())
            case ReplicasLost():
                self._replicas_lost(step, event)
            case UncleanRead():
                self._unclean = event.unclean
                self._repair(step, self._known.leaderless())
            case UncleanDefaultSet():
                self._settings = replace(self._settings, unclean_leader_election=event.allowed)
                self._repair(step, self._known.leaderless())
            case ShutdownAsked():
                self._known.stopping.add(event.broker_id)
                self._shutdown_asked(step, event.broker_id)
            case ElectionAsked():
                self._election_asked(step, event)
            case ReassignmentsAsked():
                self._reassignments_asked(step, event.targets)
            case BalanceDue():
                self._balance_due(step)
            case WritesDone():
                raise AssertionError("handled before")
            case _:
                assert_never(event)

    # Events

    def _snapshot_read(self, step: Step, event: SnapshotRead) -> None:
        self._known.brokers = event.brokers
        self._unclean = event.unclean
        self._known.unreadable = set(event.unreadable)
        self._known.states = dict(event.states)
        for name, topic in event.topics.items():
            self._known.adopt(name, topic)
        self._deletions_read(step, event.deletions)
        step.joined = set(event.brokers)
        self._repair(step, self._known.all_partitions())
        self._renew_restarted_leaders(step)

    def _renew_restarted_leaders(self, step: Step) -> None:
        """A leader that registered after its state was written has restarted: it may have lost what it led.

        Its epoch ended with the old process; going on in the same one could give an offset two values.
        """
        for tp in self._known.all_partitions():
            stored = self._known.states.get(tp)
            if stored is None or tp in step.writes or stored.state.leader not in self._known.brokers:
                continue
            if self._known.brokers[stored.state.leader].epoch > stored.mzxid:
                self._renew(step, tp)

    def _renew(self, step: Step, tp: TopicPartition) -> None:
        """Begin a new epoch, with a leader of the ISR, if one of it can lead."""
        elected = elected_state(
            self._known.states[tp].state,
            self._known.replicas(tp),
            self._known.electorate(tp),
            controller_epoch=self._known.epoch,
        )
        if elected is not None:
            step.writes[tp] = elected

    def _brokers_read(self, step: Step, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        joined, left = (
            brokers.keys() - self._known.brokers.keys(),
            self._known.brokers.keys() - brokers.keys(),
        )
        if brokers == self._known.brokers:
            return
        self._known.brokers = brokers
        self._known.stopping -= joined | left
        for broker_id in left:
            for tp in self._known.hosted_by(broker_id):
                self._known.lost.get(tp, set()).discard(broker_id)
        step.brokers_changed = True
        step.joined |= joined
        touched = {tp for broker_id in joined | left for tp in self._known.hosted_by(broker_id)}
        step.metadata |= touched - self._known.being_deleted()
        self._repair(step, touched)
        for broker_id in joined:
            self._stop_deleted_replicas(step, broker_id)

    def _topics_read(self, step: Step, event: TopicsRead) -> None:
        for name in event.gone & self._known.topics.keys():
            self._forget(step, name)
        for name, topic in event.topics.items():
            self._topic_read(step, name, topic)

    def _topic_read(self, step: Step, name: str, topic: TopicZnode) -> None:
        known = self._known.topics.get(name)
        if known is not None and known.topic_id != topic.topic_id:
            self._forget(step, name)
            known = None
        self._known.adopt(name, topic)
        if name in self._known.deleting:
            return
        before = known.partitions if known else {}
        changed = (p for p in topic.partitions if topic.partitions[p] != before.get(p))
        self._repair(step, (TopicPartition(name, p) for p in changed))
        if known is not None:
            self._tell_reassigned(step, name, known, topic)

    def _tell_reassigned(self, step: Step, name: str, before: TopicZnode, after: TopicZnode) -> None:
        """Replicas that came are told their roles. Those that went are deleted, unless the partition still
        counts on one of them, as it may after a change by hand.
        """
        for number in before.partitions.keys() & after.partitions.keys():
            had, has = before.partitions[number], after.partitions[number]
            if had == has and before.removing.get(number) == after.removing.get(number):
                continue
            tp = TopicPartition(name, number)
            step.metadata.add(tp)
            if tp in self._known.states:
                step.roles.add(tp)
            step.added |= {(replica, tp) for replica in has if replica not in had}
            stored = self._known.states.get(tp)
            if stored is None or not stored.state.isr or not set(stored.state.isr) <= set(has):
                continue
            for replica in set(had) - set(has):
                step.deletions.setdefault(replica, set()).add(tp)
                self._known.lost.get(tp, set()).discard(replica)

    def _states_read(self, step: Step, event: StatesRead) -> None:
        states = event.states
        changed = {tp for tp in states if self._is_newer(tp, states[tp])} - self._known.being_deleted()
        step.roles |= {tp for tp in changed if states[tp].state.leader_epoch > self._known.leader_epoch(tp)}
        for tp in changed & self._known.lost.keys():  # its leader vouches for who joined
            self._known.lost[tp] -= set(states[tp].state.isr) - set(self._known.isr(tp))
        self._known.states.update({tp: states[tp] for tp in changed})
        step.metadata |= changed
        put_right = changed & self._known.unreadable
        self._note_unreadable(event.unreadable)
        self._known.unreadable -= states.keys()
        self._repair(step, changed)
        for tp in put_right:  # meanwhile its leader may have restarted unseen
            self._renew(step, tp)

    def _note_unreadable(self, partitions: Iterable[TopicPartition]) -> None:
        self._known.unreadable.update(tp for tp in partitions if self._known.exists(tp))

    def _is_newer(self, tp: TopicPartition, stored: StoredState) -> bool:
        known = self._known.states.get(tp)
        return self._known.exists(tp) and (known is None or stored.version > known.version)

    def _deletions_read(self, step: Step, names: frozenset[str]) -> None:
        for name in sorted(names - self._known.deleting.keys()):
            topic = self._known.topics.get(name)
            if topic is None:
                step.dismissed.append(name)
                continue
            partitions = {TopicPartition(name, p): replicas for p, replicas in topic.partitions.items()}
            self._known.deleting[name] = {(r, tp) for tp, replicas in partitions.items() for r in replicas}
            step.removed.update(dict.fromkeys(partitions, topic.topic_id))
            for broker_id in {r for r, _ in self._known.deleting[name]} & self._known.brokers.keys():
                self._stop_deleted_replicas(step, broker_id)
            self._erase_if_deleted(step, name)

    def _stop_deleted_replicas(self, step: Step, broker_id: BrokerId) -> None:
        for remaining in self._known.deleting.values():
            for replica, tp in remaining:
                if replica == broker_id:
                    step.deletions.setdefault(broker_id, set()).add(tp)

    def _replicas_deleted(self, step: Step, event: ReplicasDeleted) -> None:
        for name in sorted({tp.topic for tp in event.partitions} & self._known.deleting.keys()):
            self._known.deleting[name] -= {(event.broker_id, tp) for tp in event.partitions}
            self._erase_if_deleted(step, name)

    def _replicas_lost(self, step: Step, event: ReplicasLost) -> None:
        """The broker lives, but not these replicas: others lead, until it registers anew."""
        if event.broker_id not in self._known.brokers:
            return
        lost = {
            tp
            for tp in event.partitions
            if self._known.exists(tp)
            and event.broker_id in self._known.replicas(tp)
            and event.broker_id not in self._known.lost.setdefault(tp, set())
        }
        for tp in lost:
            self._known.lost[tp].add(event.broker_id)
        step.metadata |= lost - self._known.being_deleted()
        self._repair(step, lost)

    def _erase_if_deleted(self, step: Step, name: str) -> None:
        if not self._known.deleting[name]:
            step.erased.append(name)
            self._known.drop(name)

    def _shutdown_asked(self, step: Step, broker_id: BrokerId) -> None:
        self._repair(step, self._known.led_by(broker_id))

    def _election_asked(self, step: Step, event: ElectionAsked) -> None:
        partitions = self._known.all_partitions() if event.partitions is None else event.partitions
        for tp in sorted(partitions):
            step.elections[tp] = self._elect(step, tp, event.kind)

    def _elect(self, step: Step, tp: TopicPartition, kind: ElectionKind) -> ErrorCode:
        stored = self._known.states.get(tp)
        if stored is None or tp in self._known.being_deleted():
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state, replicas = stored.state, self._known.replicas(tp)
        if kind is ElectionKind.PREFERRED:
            if state.leader == replicas[0]:
                return ErrorCode.ELECTION_NOT_NEEDED
            elected = preferred_state(
                state, replicas, self._known.electorate(tp), controller_epoch=self._known.epoch
            )
            unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            if state.leader in self._known.electorate(tp).alive:
                return ErrorCode.ELECTION_NOT_NEEDED
            elected = repaired(
                state, replicas, self._known.electorate(tp), controller_epoch=self._known.epoch, unclean=True
            )
            unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if elected is None or elected.leader == NO_LEADER:
            return unavailable
        step.writes[tp] = elected
        return ErrorCode.NONE

    def _reassignments_asked(
        self, step: Step, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> None:
        for tp, target in targets.items():
            try:
                self._reassign(step, tp, target)
            except ProtocolError as error:
                step.reassignments[tp] = error
            else:
                step.reassignments[tp] = None

    def _reassign(self, step: Step, tp: TopicPartition, target: tuple[BrokerId, ...] | None) -> None:
        topic = step.topics.get(tp.topic) or self._known.topics.get(tp.topic)
        if topic is None or tp.topic in self._known.deleting:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        step.topics[tp.topic] = (
            cancelled(topic, tp.partition)
            if target is None
            else begun(topic, tp.partition, target, self._known.brokers.keys())
        )

    def _settle_moved(self, step: Step) -> None:
        """Have partitions arrive whose added replicas caught up: first their states are written, then their
        topics.
        """
        for tp in sorted(self._known.moving - self._known.being_deleted()):
            stored, topic = self._known.states.get(tp), self._known.topics[tp.topic]
            electorate = self._known.electorate(tp)
            if stored is None or not has_caught_up(topic, tp.partition, stored.state, electorate):
                continue
            if tp in step.written and is_settled(topic, tp.partition, stored.state):
                step.topics[tp.topic] = completed(step.topics.get(tp.topic, topic), tp.partition)
                continue
            settled = settled_state(
                topic, tp.partition, stored.state, electorate, controller_epoch=self._known.epoch
            )
            if settled is not None:
                step.writes[tp] = settled

    def _balance_due(self, step: Step) -> None:
        for broker_id in self._known.brokers:
            preferred = [
                tp for tp in self._known.hosted_by(broker_id) if self._known.replicas(tp)[0] == broker_id
            ]
            lacking = [tp for tp in preferred if self._known.leader(tp) != broker_id]
            if len(lacking) * 100 > self._settings.leader_imbalance_per_broker_percentage * len(preferred):
                for tp in lacking:
                    self._elect(step, tp, ElectionKind.PREFERRED)

    def _writes_done(self, step: Step, event: WritesDone) -> None:
        for tp, version in event.done.items():
            if tp not in self._known.states:
                step.new.add(tp)
            self._known.states[tp] = StoredState(state=step.writes[tp], version=version)
            step.roles.add(tp)
            step.written.add(tp)
        step.writes = {}
        step.written -= event.refused.keys()
        for tp, stored in event.refused.items():
            if tp in step.elections:
                step.elections[tp] = ErrorCode.LEADER_NOT_AVAILABLE
            if stored is None:
                self._known.states.pop(tp, None)
            else:
                if stored.state.leader_epoch > self._known.leader_epoch(tp):  # begun by who left its ISRs
                    step.roles.add(tp)
                self._known.states[tp] = stored
                step.metadata.add(tp)
        self._note_unreadable(event.unreadable)
        self._repair(step, (tp for tp in event.refused if self._known.exists(tp) and event.refused[tp]))
        self._topic_writes_done(step, event)

    def _topic_writes_done(self, step: Step, event: WritesDone) -> None:
        written = {name: step.topics.pop(name) for name in event.topics_done | event.topics_refused.keys()}
        for name in event.topics_done:
            self._topic_read(step, name, written[name])
        for name, topic in event.topics_refused.items():
            asked = {tp for tp in step.reassignments if tp.topic == name and not step.reassignments[tp]}
            changed = ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name!r} was changed meanwhile")
            step.reassignments.update(dict.fromkeys(asked, changed))
            if topic is not None:
                self._topic_read(step, name, topic)
            elif name in self._known.topics:
                self._forget(step, name)

    # State

    def _repair(self, step: Step, partitions: Iterable[TopicPartition]) -> None:
        """Collect the writes that make these partitions right for the brokers there are."""
        being_deleted = self._known.being_deleted()
        for tp in partitions:
            if tp in self._known.unreadable or tp in being_deleted:
                continue
            stored, replicas, electorate = (
                self._known.states.get(tp),
                self._known.replicas(tp),
                self._known.electorate(tp),
            )
            if stored is None:
                state = first_state(replicas, electorate, self._known.epoch)
                step.metadata.add(tp)
            else:
                unclean = self._unclean.get(tp.topic, self._settings.unclean_leader_election)
                state = repaired(
                    stored.state, replicas, electorate, controller_epoch=self._known.epoch, unclean=unclean
                )
            if state is not None:
                step.writes[tp] = state

    def _forget(self, step: Step, name: str) -> None:
        """A topic whose znodes somebody removed by hand: nodes drop it from their image, logs stay."""
        topic = self._known.topics[name]
        step.removed.update(
            dict.fromkeys((TopicPartition(name, p) for p in topic.partitions), topic.topic_id)
        )
        self._known.drop(name)

    # Effects

    def _effects(self, step: Step) -> ControllerEffects:
        if not step.writes and not step.topics:
            self._settle_moved(step)
        if step.writes:
            return ControllerEffects(
                writes={
                    tp: StateWrite(state=s, expected_version=self._known.version(tp))
                    for tp, s in step.writes.items()
                }
            )
        if step.topics:
            return ControllerEffects(
                topic_writes={
                    name: TopicWrite(topic=topic, expected=self._known.topics[name])
                    for name, topic in step.topics.items()
                }
            )
        self._step = None
        return ControllerEffects(
            orders=step.orders(self._known),
            erased=tuple(step.erased),
            dismissed=tuple(step.dismissed),
            elections=dict(step.elections),
            reassignments=dict(step.reassignments),
        )
