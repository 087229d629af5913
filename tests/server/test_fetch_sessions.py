"""Fetch sessions: what a client need not say again, what it is not told again, and who keeps a session."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.errors import ErrorCode, ProtocolError
from broker.server.fetch_sessions import (
    EPOCH_MAX,
    NO_SESSION,
    Asker,
    FetchedPartition,
    FetchSessions,
    FetchTurn,
)
from broker.types import NO_TOPIC_ID
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

EVICTION_MS = 1000
ALICE = Asker("alice", is_by_id=False, is_privileged=False)
BOB = Asker("bob", is_by_id=False, is_privileged=False)
BY_ID = Asker("alice", is_by_id=True, is_privileged=False)
FOLLOWER = Asker("alice", is_by_id=False, is_privileged=True)


def name_of(topic: FetchTopic) -> str:
    return topic.topic


def fetch_request(
    *numbers: int, session_id: int = 0, epoch: int = 0, forget: tuple[int, ...] = (), offset: int = 0
) -> FetchRequest:
    wanted = [FetchPartition(partition=number, fetch_offset=offset) for number in numbers]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def answer_to(partition: FetchedPartition, *, records: bytes = b"", high_watermark: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=partition.wanted.partition,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
        records=records,
    )


class Sessions:
    """The sessions of a node, with a clock that a test moves."""

    def __init__(self, *, slots_max: int = 10) -> None:
        ids = count(1)
        self.machine = FetchSessions(slots_max=slots_max, eviction_ms=EVICTION_MS, draw_id=lambda: next(ids))
        self.now_ms = 0

    def begin(self, request: FetchRequest, asker: Asker = ALICE) -> FetchTurn:
        return self.machine.begin(request, asker, name_of=name_of, now_ms=self.now_ms)

    def finish(
        self, turn: FetchTurn, *, with_records: tuple[int, ...] = (), high_watermark: int = 0
    ) -> tuple[int, list[int]]:
        answers = [
            answer_to(
                partition,
                records=b"x" if partition.wanted.partition in with_records else b"",
                high_watermark=high_watermark,
            )
            for partition in turn.partitions
        ]
        session_id, told = self.machine.finish(turn, answers, now_ms=self.now_ms)
        return session_id, [answer.partition_index for _, answer in told]

    def open(self, *numbers: int, asker: Asker = ALICE) -> int:
        return self.finish(self.begin(fetch_request(*numbers), asker))[0]

    def refusal(self, request: FetchRequest, asker: Asker = ALICE) -> ErrorCode:
        with pytest.raises(ProtocolError) as refused:
            self.begin(request, asker)
        return refused.value.code


def numbers_of(turn: FetchTurn) -> list[int]:
    return [partition.wanted.partition for partition in turn.partitions]


def test_a_fetch_that_names_nothing_reads_all_that_was_named_before_and_tells_nothing_old() -> None:
    sessions = Sessions()
    session_id, told = sessions.finish(sessions.begin(fetch_request(1, 2, 3)))
    assert (session_id, told) == (1, [1, 2, 3])
    turn = sessions.begin(fetch_request(session_id=1, epoch=1))
    assert numbers_of(turn) == [1, 2, 3]
    assert sessions.finish(turn) == (1, [])
    turn = sessions.begin(fetch_request(session_id=1, epoch=2))
    assert sessions.finish(turn, with_records=(2,)) == (1, [2])


@pytest.mark.parametrize(
    "change",
    [
        {"high_watermark": 1},
        {"last_stable_offset": 1},
        {"log_start_offset": 1},
        {"records": b"x"},
        {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_partition_is_told_again_when_anything_about_it_changed(change: dict[str, object]) -> None:
    partition = FetchedPartition("t", NO_TOPIC_ID, FetchPartition())
    answer = answer_to(partition)
    assert partition.must_tell(answer)
    partition.tell(answer)
    assert not partition.must_tell(answer)
    for name, value in change.items():
        setattr(answer, name, value)
    assert partition.must_tell(answer)


def test_a_partition_is_told_again_once_its_error_is_gone() -> None:
    partition = FetchedPartition("t", NO_TOPIC_ID, FetchPartition())
    failed = answer_to(partition)
    failed.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.tell(failed)
    assert partition.must_tell(failed)
    assert partition.must_tell(answer_to(partition))


def test_a_partition_is_told_again_to_whom_it_was_told_along_with_another_history() -> None:
    partition = FetchedPartition("t", NO_TOPIC_ID, FetchPartition())
    parted = answer_to(partition)
    parted.diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    partition.tell(parted)
    assert partition.must_tell(answer_to(partition))


def test_a_partition_is_told_again_to_whom_asks_in_another_leader_epoch() -> None:
    partition = FetchedPartition("t", NO_TOPIC_ID, FetchPartition(current_leader_epoch=1))
    partition.tell(answer_to(partition))
    partition.ask(FetchPartition(current_leader_epoch=1, fetch_offset=3))
    assert not partition.must_tell(answer_to(partition))
    partition.ask(FetchPartition(current_leader_epoch=2, fetch_offset=3))
    assert partition.must_tell(answer_to(partition))


def test_new_partitions_join_changed_ones_change_and_forgotten_ones_leave() -> None:
    sessions = Sessions()
    session_id = sessions.open(1, 2)
    turn = sessions.begin(fetch_request(2, 3, session_id=session_id, epoch=1, forget=(1, 9), offset=7))
    assert [(number.wanted.partition, number.wanted.fetch_offset) for number in turn.partitions] == [
        (2, 7),
        (3, 7),
    ]


def test_partitions_that_got_records_come_last_the_next_time() -> None:
    sessions = Sessions()
    turn = sessions.begin(fetch_request(1, 2, 3, 4))
    session_id, _ = sessions.finish(turn, with_records=(1, 2))
    turn = sessions.begin(fetch_request(session_id=session_id, epoch=1))
    assert numbers_of(turn) == [3, 4, 1, 2]
    sessions.finish(turn, with_records=(4,))
    assert numbers_of(sessions.begin(fetch_request(session_id=session_id, epoch=2))) == [3, 1, 2, 4]


@pytest.mark.parametrize("served_at_once", [1, 7, 99])
def test_a_limit_that_serves_few_partitions_at_a_time_serves_all_in_turn(served_at_once: int) -> None:
    sessions = Sessions()
    session_id = sessions.open(*range(100))
    served: list[int] = []
    for epoch in range(1, 2 + 99 // served_at_once):
        turn = sessions.begin(fetch_request(session_id=session_id, epoch=epoch))
        first = tuple(numbers_of(turn)[:served_at_once])
        served += first
        sessions.finish(turn, with_records=first)
    assert set(served) == set(range(100))
    assert sorted(served[:100]) == list(range(100))


def test_a_session_whose_partitions_are_all_forgotten_ends() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    turn = sessions.begin(fetch_request(session_id=session_id, epoch=1, forget=(1,)))
    assert sessions.finish(turn) == (NO_SESSION, [])
    assert len(sessions.machine) == 0


def test_a_fetch_that_wants_no_session_opens_none_and_ends_the_one_it_names() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    turn = sessions.begin(fetch_request(1, session_id=session_id, epoch=-1))
    assert sessions.finish(turn) == (NO_SESSION, [1])
    assert len(sessions.machine) == 0


def test_a_full_fetch_opens_a_session_in_place_of_the_one_it_names() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    turn = sessions.begin(fetch_request(1, session_id=session_id, epoch=0))
    assert sessions.finish(turn) == (session_id + 1, [1])
    assert len(sessions.machine) == 1


def test_unknown_sessions_and_wrong_epochs_are_refused() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    assert (
        sessions.refusal(fetch_request(session_id=99, epoch=1)),
        sessions.refusal(fetch_request(session_id=0, epoch=1)),
        sessions.refusal(fetch_request(session_id=session_id, epoch=2)),
        sessions.refusal(fetch_request(session_id=session_id, epoch=-2)),
    ) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    )


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    (session,) = sessions.machine
    session.epoch = EPOCH_MAX
    sessions.begin(fetch_request(session_id=session_id, epoch=EPOCH_MAX))
    sessions.begin(fetch_request(session_id=session_id, epoch=1))


def test_of_two_fetches_of_one_epoch_only_the_first_is_taken() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    sessions.begin(fetch_request(session_id=session_id, epoch=1))
    refused = sessions.refusal(fetch_request(session_id=session_id, epoch=1))
    assert refused is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_answer_that_a_later_fetch_overtook_is_refused() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    waiting = sessions.begin(fetch_request(session_id=session_id, epoch=1))
    sessions.begin(fetch_request(session_id=session_id, epoch=2))
    with pytest.raises(ProtocolError) as refused:
        sessions.finish(waiting)
    assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_nobody_sees_or_ends_the_session_of_another_principal() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    refused = sessions.refusal(fetch_request(session_id=session_id, epoch=1), BOB)
    assert refused is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.begin(fetch_request(1, session_id=session_id, epoch=-1), BOB)
    sessions.begin(fetch_request(session_id=session_id, epoch=1))


def test_a_session_keeps_to_names_or_to_ids() -> None:
    sessions = Sessions()
    session_id = sessions.open(1)
    refused = sessions.refusal(fetch_request(session_id=session_id, epoch=1), BY_ID)
    assert refused is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_partitions_of_sessions_by_id_are_told_apart_by_it() -> None:
    sessions = Sessions()
    one, two = UUID(int=1), UUID(int=2)
    wanted = [FetchPartition(partition=0)]
    request = FetchRequest(
        session_epoch=0,
        topics=[FetchTopic(topic_id=one, partitions=wanted), FetchTopic(topic_id=two, partitions=wanted)],
    )
    session_id, _ = sessions.finish(sessions.begin(request, BY_ID))
    request = FetchRequest(
        session_id=session_id,
        session_epoch=1,
        forgotten_topics_data=[ForgottenTopic(topic_id=one, partitions=[0])],
    )
    (left,) = sessions.begin(request, BY_ID).partitions
    assert left.topic_id == two


# Who keeps a session when there are too many


def test_without_slots_there_are_no_sessions() -> None:
    assert Sessions(slots_max=0).open(1) == NO_SESSION


def test_a_session_that_was_silent_for_long_makes_room() -> None:
    sessions = Sessions(slots_max=2)
    silent, used = sessions.open(1, 2, 3), sessions.open(1, 2, 3)
    sessions.now_ms = EVICTION_MS
    sessions.begin(fetch_request(session_id=used, epoch=1))
    sessions.now_ms = EVICTION_MS + 1
    assert sessions.open(1) != NO_SESSION
    assert sessions.refusal(fetch_request(session_id=silent, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.begin(fetch_request(session_id=used, epoch=2))


@pytest.mark.parametrize(("size", "gets_one"), [(1, False), (2, False), (3, True)])
def test_an_old_session_in_use_makes_room_for_a_larger_one_only(size: int, gets_one: bool) -> None:
    sessions = Sessions(slots_max=1)
    session_id = sessions.open(1, 2)
    sessions.now_ms = EVICTION_MS
    sessions.begin(fetch_request(session_id=session_id, epoch=1))
    sessions.now_ms = EVICTION_MS + 1
    sessions.begin(fetch_request(session_id=session_id, epoch=2))
    assert (sessions.open(*range(size)) != NO_SESSION) == gets_one


def test_a_young_session_makes_room_for_a_follower_only() -> None:
    sessions = Sessions(slots_max=1)
    sessions.open(1, 2, 3)
    assert sessions.open(1, 2, 3, 4) == NO_SESSION
    follower = sessions.open(1, asker=FOLLOWER)
    assert follower != NO_SESSION
    assert sessions.open(1, 2, asker=FOLLOWER) == NO_SESSION
    assert sessions.open(1, 2) == NO_SESSION


class FetchSessionsMachine(RuleBasedStateMachine):
    """A client and a node, against a model that knows what the client was told of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions(slots_max=3)
        self.ends = dict.fromkeys(range(6), 0)
        """Log ends, as the node knows them."""
        self.clients: dict[int, tuple[int, dict[int, int]]] = {}
        """By session: the next epoch, and the client's offsets, which it also takes the log ends for."""

    def fetch(self, turn: FetchTurn, left: int) -> tuple[int, dict[int, PartitionData]]:
        """Up to `left` records, in the order that the sessions give; one partition gets at most one."""
        answers = []
        for partition in turn.partitions:
            number, offset = partition.wanted.partition, partition.wanted.fetch_offset
            has_record = offset < self.ends[number] and left > 0
            left -= has_record
            answers.append(answer_to(partition, records=b"x" * has_record, high_watermark=self.ends[number]))
        session_id, told = self.sessions.machine.finish(turn, answers, now_ms=self.sessions.now_ms)
        return session_id, {answer.partition_index: answer for _, answer in told}

    @rule(number=st.integers(0, 5))
    def a_record_is_appended(self, number: int) -> None:
        self.ends[number] += 1

    @rule(elapsed_ms=st.integers(1, EVICTION_MS))
    def time_passes(self, elapsed_ms: int) -> None:
        self.sessions.now_ms += elapsed_ms

    @rule(numbers=st.sets(st.integers(0, 5), min_size=1), asker=st.sampled_from([ALICE, FOLLOWER]))
    def a_session_is_opened(self, numbers: set[int], asker: Asker) -> None:
        session_id, told = self.fetch(self.sessions.begin(fetch_request(*numbers), asker), 0)
        assert told.keys() == numbers
        kept = {session.session_id for session in self.sessions.machine}
        self.clients = {known: client for known, client in self.clients.items() if known in kept}
        if session_id != NO_SESSION:
            self.clients[session_id] = (1, dict.fromkeys(numbers, 0))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), left=st.integers(0, 6))
    def a_session_goes_on(self, data: st.DataObject, left: int) -> None:
        session_id = data.draw(st.sampled_from(sorted(self.clients)))
        epoch, offsets = self.clients[session_id]
        forgotten = data.draw(st.sets(st.sampled_from(sorted(offsets))))
        added = data.draw(st.sets(st.integers(0, 5))) - offsets.keys()
        for number in forgotten:
            del offsets[number]
        offsets.update(dict.fromkeys(added, 0))
        request = fetch_request(session_id=session_id, epoch=epoch, forget=tuple(forgotten))
        request.topics = [
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=offset)
                    for number, offset in offsets.items()
                ],
            )
        ]
        answered_id, told = self.fetch(self.sessions.begin(request), left)
        if not offsets:
            assert (answered_id, told) == (NO_SESSION, {})
            del self.clients[session_id]
            return
        assert answered_id == session_id
        readable = {number for number, offset in offsets.items() if offset < self.ends[number]}
        served = {number for number, answer in told.items() if answer.records}
        assert served <= readable
        assert len(served) == min(left, len(readable))
        assert told.keys() >= added | served
        for number in served:
            offsets[number] += 1
        self.clients[session_id] = (epoch + 1, offsets)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_session_is_ended(self, data: st.DataObject) -> None:
        session_id = data.draw(st.sampled_from(sorted(self.clients)))
        self.sessions.begin(fetch_request(session_id=session_id, epoch=-1))
        del self.clients[session_id]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), wrong=st.integers(2, 9))
    def a_wrong_epoch_is_refused(self, data: st.DataObject, wrong: int) -> None:
        session_id = data.draw(st.sampled_from(sorted(self.clients)))
        epoch, _ = self.clients[session_id]
        request = fetch_request(session_id=session_id, epoch=epoch + wrong)
        assert self.sessions.refusal(request) is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    @invariant()
    def the_cache_holds_what_the_clients_have(self) -> None:
        machine = self.sessions.machine
        held = {session.session_id: session.partitions for session in machine}
        assert {
            session_id: {number for _, number in partitions} for session_id, partitions in held.items()
        } == {session_id: set(offsets) for session_id, (_, offsets) in self.clients.items()}
        assert machine.partition_count == sum(map(len, held.values()))
        assert len(machine) <= 3


FetchSessionsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_history_of_sessions = FetchSessionsMachine.TestCase
