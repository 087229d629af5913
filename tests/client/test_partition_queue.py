from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.partition_queue import PartitionQueue
from broker.client.producer_batch import ProducerBatch
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from tests.client.leaders import SIZE_MAX, Leader

PARTITION = TopicPartition("t", 0)
FIRST, SECOND = ProducerIdentity(1, 0), ProducerIdentity(2, 0)
NOT_WRITTEN = ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)
MAYBE_WRITTEN = ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Of a leader that had waited for replicas, or did not lead when it was asked."""
LOST = ConnectionFailedError("connection lost")
GAP = ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
REFUSED = ProtocolError(ErrorCode.INVALID_RECORD)


def batch(*values: bytes, created_at: float = 0.0) -> ProducerBatch:
    made = ProducerBatch(PARTITION, created_at=created_at, builder=BatchBuilder(size_max=SIZE_MAX))
    for value in values:
        made.append(0, None, value, ())
    made.due = True
    return made


def queue_of(*batches: ProducerBatch, window: int = 5) -> PartitionQueue:
    queue = PartitionQueue(PARTITION, window=window)
    queue.waiting.extend(batches)
    return queue


def proven_queue_of(*batches: ProducerBatch) -> PartitionQueue:
    """The leader knows the identity by one record: it notices gaps from now on, and the window is open."""
    queue = queue_of(batch(b"first"))
    queue.settle(queue.take(FIRST, 1), 0, -1)
    queue.waiting.extend(batches)
    return queue


def in_loop(scenario: Callable[[], None]) -> None:
    """Batches carry futures, which want a loop."""

    async def main() -> None:
        scenario()

    asyncio.run(main())


def send_all(queue: PartitionQueue, identity: ProducerIdentity = FIRST) -> list[ProducerBatch]:
    sent = []
    while queue.sendable(hurry=False):
        sent.append(queue.take(identity, 1))
    return sent


def test_batches_are_numbered_without_gaps_within_the_window() -> None:
    def scenario() -> None:
        queue = proven_queue_of(*(batch(b"a", b"b") for _ in range(7)))
        assert [sent.base_sequence for sent in send_all(queue)] == [1, 3, 5, 7, 9]
        queue.settle(queue.in_flight[0], 0, -1)
        assert [sent.base_sequence for sent in send_all(queue)] == [11]

    in_loop(scenario)


def test_a_fresh_identity_sends_one_batch_until_one_is_acknowledged() -> None:
    """A leader that knows nothing of it would take the second batch although it refused the first."""

    def scenario() -> None:
        queue = queue_of(*(batch(b"x") for _ in range(4)))
        (first,) = send_all(queue)
        queue.fail(first, NOT_WRITTEN)
        assert send_all(queue) == [first]
        queue.settle(first, 0, -1)
        assert [sent.base_sequence for sent in send_all(queue)] == [1, 2, 3]

    in_loop(scenario)


def test_a_new_epoch_of_a_known_producer_has_nothing_to_prove() -> None:
    def scenario() -> None:
        queue = proven_queue_of(batch(b"a"), batch(b"b"))
        sent = send_all(queue, ProducerIdentity(FIRST.producer_id, FIRST.epoch + 1))
        assert [(again.identity.epoch, again.base_sequence) for again in sent] == [(1, 0), (1, 1)]

    in_loop(scenario)


def test_no_batch_is_sent_further_ahead_of_the_oldest_than_a_leader_remembers() -> None:
    def scenario() -> None:
        queue = proven_queue_of(*(batch(b"x") for _ in range(8)))
        oldest, *others = send_all(queue)
        queue.fail(oldest, ProtocolError(ErrorCode.REQUEST_TIMED_OUT))
        for other in others:
            queue.settle(other, 0, -1)
        assert send_all(queue) == [oldest]
        queue.settle(oldest, 0, -1)
        assert [sent.base_sequence for sent in send_all(queue)] == [6, 7, 8]

    in_loop(scenario)


def test_without_an_identity_one_batch_at_a_time_keeps_the_order() -> None:
    def scenario() -> None:
        queue = queue_of(batch(b"a"), batch(b"b"), window=1)
        (first,) = send_all(queue, NO_IDENTITY)
        assert not first.is_sequenced
        queue.fail(first, NOT_WRITTEN)
        assert send_all(queue, NO_IDENTITY) == [first]

    in_loop(scenario)


def test_nothing_is_sent_between_a_failure_and_the_last_answer_then_all_again_in_order() -> None:
    def scenario() -> None:
        queue = proven_queue_of(*(batch(b"x") for _ in range(5)))
        sent = send_all(queue)
        queue.settle(sent[0], 0, -1)
        queue.fail(sent[1], NOT_WRITTEN)
        for later in sent[2:]:
            assert not queue.sendable(hurry=True)
            queue.fail(later, GAP)
        assert send_all(queue) == [sent[1]]
        queue.settle(sent[1], 0, -1)
        assert send_all(queue) == sent[2:]
        assert [again.base_sequence for again in queue.in_flight] == [3, 4, 5]

    in_loop(scenario)


def test_a_refused_batch_fails_and_those_behind_it_move_up_in_the_sequence() -> None:
    def scenario() -> None:
        first, refused, third = batch(b"a"), batch(b"b", b"b"), batch(b"c")
        queue = proven_queue_of(first, refused, third)
        send_all(queue)
        queue.settle(first, 0, -1)
        queue.fail(refused, REFUSED)
        queue.fail(third, GAP)
        assert refused.done.exception() is REFUSED
        assert send_all(queue) == [third]
        assert third.base_sequence == 2

    in_loop(scenario)


def test_a_leader_that_forgot_the_producer_is_served_under_a_new_identity() -> None:
    def scenario() -> None:
        first, second = batch(b"a"), batch(b"b")
        queue = proven_queue_of(first, second)
        send_all(queue)
        queue.fail(first, GAP)
        queue.fail(second, GAP)
        assert queue.left_identity == FIRST
        assert send_all(queue, SECOND) == [first]
        queue.settle(first, 0, -1)
        assert send_all(queue, SECOND) == [second]
        assert [(sent.identity, sent.base_sequence) for sent in (first, second)] == [(SECOND, 0), (SECOND, 1)]

    in_loop(scenario)


def test_when_a_batch_that_may_be_written_expires_those_that_may_be_too_are_given_up_with_it() -> None:
    def scenario() -> None:
        lost, also_lost, unsent = batch(b"a"), batch(b"b", created_at=5), batch(b"c", created_at=5)
        queue = proven_queue_of(lost, also_lost)
        send_all(queue)
        queue.fail(lost, LOST)
        queue.fail(also_lost, LOST)
        queue.waiting.append(unsent)
        queue.expire(1.0, RequestTimedOutError("late"))
        assert isinstance(lost.done.exception(), RequestTimedOutError)
        assert isinstance(also_lost.done.exception(), ProtocolError)
        assert send_all(queue, SECOND) == [unsent]
        assert unsent.base_sequence == 0

    in_loop(scenario)


def test_what_was_never_sent_expires_without_a_trace() -> None:
    def scenario() -> None:
        sent, expired, later = batch(b"a"), batch(b"b"), batch(b"c", created_at=5)
        queue = queue_of(sent, window=5)
        send_all(queue)
        queue.waiting.extend([expired, later])
        queue.expire(1.0, RequestTimedOutError("late"))
        assert expired.done.done()
        queue.settle(sent, 0, -1)
        assert send_all(queue) == [later]
        assert later.base_sequence == 1

    in_loop(scenario)


def test_a_duplicate_counts_as_written() -> None:
    def scenario() -> None:
        queue = queue_of(batch(b"a"))
        (sent,) = send_all(queue)
        queue.fail(sent, ProtocolError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert sent.done.result() == -1

    in_loop(scenario)


def test_sequence_numbers_wrap_and_keep_their_order() -> None:
    def scenario() -> None:
        queue = queue_of(batch(b"a"))
        (before,) = send_all(queue)
        queue.settle(before, 0, -1)
        queue._next_sequence = (1 << 31) - 1
        first, second = batch(b"b", b"b"), batch(b"c")
        queue.waiting.extend([first, second])
        send_all(queue)
        assert (first.base_sequence, second.base_sequence) == ((1 << 31) - 1, 1)
        queue.fail(first, NOT_WRITTEN)
        queue.fail(second, GAP)
        assert send_all(queue) == [first]
        queue.settle(first, 0, -1)
        assert send_all(queue) == [second]

    in_loop(scenario)


def test_halves_of_a_batch_take_its_place_in_the_sequence() -> None:
    def scenario() -> None:
        whole, behind = batch(b"a", b"b", b"c"), batch(b"d")
        queue = proven_queue_of(whole, behind)
        send_all(queue)
        queue.replace(whole, whole.split(codec=Codec.NONE, level=None, decoded_bytes_max=SIZE_MAX))
        queue.fail(behind, GAP)
        again = []
        while sent := send_all(queue):
            again += sent
            for written in sent:
                queue.settle(written, 0, -1)
        assert [(half.base_sequence, half.count) for half in again] == [(1, 1), (2, 2), (4, 1)]

    in_loop(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_the_number_of_a_batch_that_its_former_leader_may_have_passed_on_is_not_given_to_another(
    code: ErrorCode,
) -> None:
    """The next leader would take that for the first, and say that it has been written."""

    def scenario() -> None:
        late, behind = batch(b"a"), batch(b"b")
        queue = proven_queue_of(late, behind)
        queue.take(FIRST, 1)
        queue.fail(late, ProtocolError(code))
        late.created_at = -1
        queue.expire(0, RequestTimedOutError("late"))
        assert queue.left_identity == FIRST
        (again,) = send_all(queue, SECOND)
        assert (again, again.identity, again.base_sequence) == (behind, SECOND, 0)

    in_loop(scenario)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_fails_each_record_is_written_once_and_in_order_or_its_sender_is_told(seed: int) -> None:
    def scenario() -> None:
        random = Random(seed)
        leader, queue = Leader(), PartitionQueue(PARTITION, window=5)
        identity, made = FIRST, []
        for step in range(120):
            if step < 60 and random.random() < 0.6:
                made.append(
                    batch(*(b"%d-%d" % (step, i) for i in range(random.randrange(1, 4))), created_at=step)
                )
                queue.waiting.append(made[-1])
            while queue.sendable(hurry=False) and random.random() < 0.8:
                if queue.left_identity == identity:
                    identity = ProducerIdentity(identity.producer_id + 1, 0)
                queue.take(identity, 1)
            answer_some(queue, leader, random, calm=step >= 60)
            if random.random() < 0.02:
                queue.expire(step - 15, RequestTimedOutError("late"))
        while queue.batches:
            while queue.sendable(hurry=False):
                if queue.left_identity == identity:
                    identity = ProducerIdentity(identity.producer_id + 1, 0)
                queue.take(identity, 1)
            answer_some(queue, leader, random, calm=True)
        written = [value for sent in made if sent.done.exception() is None for value in values_of(sent)]
        assert len(set(leader.values)) == len(leader.values), "written twice"
        known = set(written)
        assert [value for value in leader.values if value in known] == written, "lost or out of order"

    in_loop(scenario)


def values_of(sent: ProducerBatch) -> list[bytes]:
    leader = Leader()
    sent.unsequence()
    sent.stamp(NO_IDENTITY, -1)
    leader.append(sent.records)
    return leader.values


def answer_some(queue: PartitionQueue, leader: Leader, random: Random, *, calm: bool) -> None:
    """The leader answers from the oldest on; or the connection breaks after some of them."""
    breaks = not calm and random.random() < 0.15
    reached = random.randrange(len(queue.in_flight) + 1)
    for number, sent in enumerate(list(queue.in_flight)):
        if breaks:
            if number < reached:
                leader.append(sent.records)
            queue.fail(sent, LOST)
            continue
        if not calm and random.random() < 0.1:
            queue.fail(sent, REFUSED if random.random() < 0.2 else NOT_WRITTEN)
            continue
        if not calm and random.random() < 0.1:
            if random.random() < 0.5:
                leader.append(sent.records)
            queue.fail(sent, MAYBE_WRITTEN)
            continue
        code, offset = leader.append(sent.records)
        if code is ErrorCode.NONE:
            queue.settle(sent, offset, -1)
        else:
            error: BrokerError = ProtocolError(code)
            queue.fail(sent, error)


@pytest.mark.parametrize("due", [True, False])
def test_an_open_batch_waits_for_more_records_unless_there_is_a_hurry(due: bool) -> None:
    def scenario() -> None:
        only = batch(b"a")
        only.due = due
        queue = queue_of(only)
        assert queue.sendable(hurry=False) is due
        assert queue.sendable(hurry=True)

    in_loop(scenario)
