"""What a follower asks its leader, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.replication.following import (
    BACKOFF_MS_MIN,
    PAUSED_WAIT_MS,
    Append,
    FetchBounds,
    Following,
    Overrun,
    Refused,
    Restart,
    cut_offset,
)
from broker.storage.leader_epochs import EpochEnd
from broker.types import BrokerId, LeaderEpoch, TopicId
from broker.wire.messages.fetch import FetchRequest
from tests.replication.histories import TOPIC_ID, History, Leader, follow, partition, perform

BOUNDS = FetchBounds(backoff_ms=1_000)
BROKER_EPOCH = 44


def new() -> Following:
    return Following(BrokerId(2), BOUNDS)


def asked(following: Following, now_ms: int = 0) -> FetchRequest:
    request = following.next_request(BROKER_EPOCH, now_ms)
    assert request is not None
    return request


def named(request: FetchRequest) -> dict[int, tuple[int, int, int]]:
    """Offset, last epoch and current epoch asked for, by partition."""
    return {
        each.partition: (each.fetch_offset, each.last_fetched_epoch, each.current_leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    }


def forgotten(request: FetchRequest) -> list[int]:
    return sorted(number for topic in request.forgotten_topics_data for number in topic.partitions)


def history(*runs: tuple[int, int]) -> History:
    """Of so many records of each epoch in turn."""
    made = History()
    for epoch, count in runs:
        made.append(*[(epoch, made.end + index) for index in range(count)])
    return made


def turn(
    following: Following,
    leader: Leader,
    logs: Sequence[History],
    now_ms: int = 0,
    records_max: int | None = None,
) -> FetchRequest:
    """One request, its answer, and what follows from it."""
    request = asked(following, now_ms)
    response = leader.answer(request)
    if response.error_code:
        following.lost_session()
        return request
    for step in following.answered(response, now_ms):
        perform(following, step, logs[step.followed.topic_partition.partition], records_max=records_max)
    return request


# Sessions


def test_the_first_request_names_everything_and_later_ones_what_changed() -> None:
    logs, leader, following = [History() for _ in range(3)], Leader({n: History() for n in range(3)}), new()
    leader.histories[1] = history((1, 2))
    for number, log in enumerate(logs):
        follow(following, log, number)
    first = turn(following, leader, logs)
    assert named(first) == {0: (0, -1, 1), 1: (0, -1, 1), 2: (0, -1, 1)}
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, BROKER_EPOCH)
    second = turn(following, leader, logs)
    assert named(second) == {1: (2, 1, 1)}
    assert (second.session_id, second.session_epoch) == (1, 1)
    assert named(turn(following, leader, logs)) == {}
    leader.histories[2].append((1, 9))
    turn(following, leader, logs)
    assert logs[2].records == [(1, 9)]
    assert named(turn(following, leader, logs)) == {2: (1, 1, 1)}


def test_what_is_followed_no_longer_is_forgotten_by_the_session() -> None:
    logs, leader, following = [History(), History()], Leader({0: History(), 1: History()}), new()
    follow(following, logs[0])
    other = following.follow(partition(1), TOPIC_ID, LeaderEpoch(1), logs[1].position)
    turn(following, leader, logs)
    following.forget(other)
    request = turn(following, leader, logs)
    assert forgotten(request) == [1]
    assert named(request) == {}
    assert forgotten(turn(following, leader, logs)) == []


def test_without_partitions_there_is_nothing_to_ask() -> None:
    following = new()
    assert following.next_request(BROKER_EPOCH, 0) is None
    followed = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), History().position)
    turn(following, Leader({0: History()}), [History()])
    following.forget(followed)
    assert following.next_request(BROKER_EPOCH, 0) is None
    assert following.next_due_ms() is None


@pytest.mark.parametrize("loses", ["leader", "connection"])
def test_a_lost_session_begins_with_a_full_request_that_ends_the_old_one(loses: str) -> None:
    logs, leader, following = [History(), History()], Leader({0: History(), 1: History()}), new()
    for number, log in enumerate(logs):
        follow(following, log, number)
    turn(following, leader, logs)
    if loses == "leader":
        leader.sessions = Leader({}).sessions
        turn(following, leader, logs)
    else:
        following.lost_session()
    request = turn(following, leader, logs)
    assert sorted(named(request)) == [0, 1]
    assert (request.session_id, request.session_epoch) == (1, 0)
    assert len(leader.sessions) == 1
    assert named(turn(following, leader, logs)) == {}


def test_without_room_for_a_session_every_request_is_full() -> None:
    logs, leader, following = [History()], Leader({0: History()}), new()
    leader.sessions._slots_max = 0
    follow(following, logs[0])
    for _ in range(3):
        assert list(named(turn(following, leader, logs))) == [0]


def test_a_topic_made_anew_is_another_one() -> None:
    following = new()
    old = following.follow(partition(), TOPIC_ID, LeaderEpoch(4), History().position)
    following.forget(old)
    following.follow(partition(), TopicId(type(TOPIC_ID)(int=8)), LeaderEpoch(0), History().position)
    assert [topic.topic_id.int for topic in asked(following).topics] == [8]


# Answers that come too late


def test_an_answer_for_another_epoch_counts_no_more() -> None:
    log, leader, following = History(), Leader({0: history((1, 5))}), new()
    follow(following, log)
    response = leader.answer(asked(following))
    follow(following, log, epoch=2)
    assert following.answered(response, 0) == []
    assert named(asked(following)) == {0: (0, -1, 2)}


def test_an_answer_for_a_partition_that_is_gone_counts_no_more() -> None:
    following, leader = new(), Leader({0: history((1, 5))})
    followed = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), History().position)
    response = leader.answer(asked(following))
    following.forget(followed)
    assert following.answered(response, 0) == []


def test_what_was_followed_in_another_epoch_changes_nothing() -> None:
    following, log = new(), history((1, 3))
    old = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), History().position)
    follow(following, History(), epoch=2)
    following.advanced(old, log.position)
    following.pause(old)
    following.back_off(old, log.position, 0)
    following.forget(old)
    assert named(asked(following)) == {0: (0, -1, 2)}


# Partitions that wait


def test_a_partition_whose_log_is_being_cut_is_not_asked_for() -> None:
    logs, leader, following = [History(), History()], Leader({0: History(), 1: History()}), new()
    followed = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), logs[0].position)
    follow(following, logs[1], 1)
    turn(following, leader, logs)
    following.pause(followed)
    assert forgotten(turn(following, leader, logs)) == [0]
    following.advanced(followed, logs[0].position)
    assert list(named(turn(following, leader, logs))) == [0]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_partition_that_is_refused_rests_and_others_go_on(code: ErrorCode) -> None:
    logs, leader, following = [History(), History()], Leader({0: History(), 1: history((1, 3))}), new()
    leader.errors[0] = code
    for number, log in enumerate(logs):
        follow(following, log, number)
    turn(following, leader, logs)
    assert logs[1].end == 3
    request = turn(following, leader, logs)
    assert forgotten(request) == [0]
    due_ms = following.next_due_ms()
    assert due_ms is not None
    assert BACKOFF_MS_MIN <= due_ms <= BOUNDS.backoff_ms
    assert 0 not in named(turn(following, leader, logs, due_ms - 1))
    del leader.errors[0]
    leader.histories[0].append((1, 7))
    assert list(named(turn(following, leader, logs, due_ms))) == [0]
    assert logs[0].records == [(1, 7)]


def test_rests_grow_up_to_the_setting_and_begin_anew_after_a_success() -> None:
    logs, leader, following = [History()], Leader({0: History()}), new()
    leader.errors[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    follow(following, logs[0])
    now_ms, rests = 0, []

    def rest() -> int:
        turn(following, leader, logs, now_ms)
        due_ms = following.next_due_ms()
        assert due_ms is not None
        return due_ms - now_ms

    for _ in range(9):
        rests.append(rest())
        now_ms += rests[-1]
    assert rests == [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]
    del leader.errors[0]
    turn(following, leader, logs, now_ms)
    leader.errors[0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rest() == 20


def test_a_new_epoch_ends_a_rest() -> None:
    logs, leader, following = [History()], Leader({0: History()}, epoch=2), new()
    follow(following, logs[0])
    turn(following, leader, logs)
    assert following.next_request(BROKER_EPOCH, 0) is None
    follow(following, logs[0], epoch=2)
    assert named(asked(following)) == {0: (0, -1, 2)}


def test_a_log_that_could_not_take_the_records_rests_as_long_as_the_setting_says() -> None:
    following, leader = new(), Leader({0: history((1, 5))})
    followed = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), History().position)
    (step,) = following.answered(leader.answer(asked(following)), 0)
    assert isinstance(step, Append)
    following.back_off(followed, history((1, 2)).position, 0)
    assert following.next_due_ms() == BOUNDS.backoff_ms
    assert named(asked(following, BOUNDS.backoff_ms)) == {0: (2, 1, 1)}


# What answers mean


def test_what_is_held_is_asked_for_when_its_time_has_come() -> None:
    logs, following = [History(), History()], new()
    leader = Leader({0: history((1, 2)), 1: history((1, 2))})
    for number, log in enumerate(logs):
        follow(following, log, number)
    (slow,) = (each for each in following if each.topic_partition.partition == 0)
    assert not slow.is_caught_up
    following.hold(slow, until_ms=300)
    assert named(turn(following, leader, logs, now_ms=0)).keys() == {1}
    assert following.next_due_ms() == 300
    assert named(turn(following, leader, logs, now_ms=299)).keys() == {1}
    assert named(turn(following, leader, logs, now_ms=300)).keys() == {0}
    assert (slow.refusals, slow.is_caught_up) == (0, True)


def test_a_question_waits_at_the_leader_no_longer_than_those_that_are_not_in_it_should() -> None:
    logs, following = [History(), History()], new()
    for number, log in enumerate(logs):
        follow(following, log, number)
    first, second = following
    assert asked(following).max_wait_ms == BOUNDS.wait_ms_max
    following.pause(first)
    assert asked(following).max_wait_ms == PAUSED_WAIT_MS
    following.advanced(first, logs[0].position)
    assert asked(following).max_wait_ms == BOUNDS.wait_ms_max
    following.back_off(second, logs[1].position, 0, is_soon_over=True)
    assert asked(following, 0).max_wait_ms == BACKOFF_MS_MIN
    assert asked(following, BACKOFF_MS_MIN - 1).max_wait_ms == 1
    assert asked(following, BACKOFF_MS_MIN).max_wait_ms == BOUNDS.wait_ms_max


def test_an_answer_tells_how_far_behind_the_log_is() -> None:
    following, leader = new(), Leader({0: history((1, 5))})
    followed = following.follow(partition(), TOPIC_ID, LeaderEpoch(1), History().position)
    following.answered(leader.answer(asked(following)), 0)
    assert followed.lag == 5
    following.advanced(followed, history((1, 3)).position)
    assert followed.lag == 2
    following.advanced(followed, history((1, 6)).position)
    assert followed.lag == 0


def out_of_range(end: int, start: int, high_watermark: int) -> object:
    following, leader = new(), Leader({0: History()})
    following.follow(
        partition(), TOPIC_ID, LeaderEpoch(1), history((1, end)).position._replace(last_epoch=-1)
    )
    leader.errors[0] = ErrorCode.OFFSET_OUT_OF_RANGE
    response = leader.answer(asked(following))
    answer = response.responses[0].partitions[0]
    answer.log_start_offset, answer.high_watermark = start, high_watermark
    (step,) = following.answered(response, 0)
    return step


def test_below_the_leaders_start_the_log_begins_anew_there() -> None:
    step = out_of_range(end=5, start=9, high_watermark=20)
    assert isinstance(step, Restart)
    assert (step.log_start_offset, step.high_watermark) == (9, 20)


def test_beyond_the_leaders_end_what_is_committed_stays() -> None:
    step = out_of_range(end=9, start=0, high_watermark=4)
    assert isinstance(step, Overrun)
    assert step.high_watermark == 4


@pytest.mark.parametrize(("start", "high_watermark"), [(-1, -1), (-1, 0), (0, -1), (0, 9), (9, 20)])
def test_a_range_that_says_nothing_cuts_nothing(start: int, high_watermark: int) -> None:
    assert isinstance(out_of_range(end=9, start=start, high_watermark=high_watermark), Refused)


@pytest.mark.parametrize(
    ("own", "leader_end", "cut_at"),
    [
        ([(1, 10)], (1, 4), 4),  # both know the epoch, the leader's ended first
        ([(1, 4), (3, 6)], (1, 9), 4),  # this log's ended first
        ([(1, 4), (3, 6)], (2, 9), 4),  # only the leader knows it: what is newer here goes
        ([(1, 4), (2, 3), (5, 6)], (4, 20), 7),
        ([(5, 6)], (2, 3), 0),  # nothing so old is here
        ([], (2, 5), 0),
        ([(1, 5)], (1, 50), 5),  # never beyond the end
    ],
)
def test_where_a_log_is_cut(own: list[tuple[int, int]], leader_end: tuple[int, int], cut_at: int) -> None:
    log = history(*own)
    assert cut_offset(EpochEnd(*leader_end), log.epochs, log.end) == cut_at


def test_two_fast_elections_are_sorted_out_by_several_cuts() -> None:
    """KIP-279: the leader knows epochs that the follower does not, and the other way round."""
    leader = Leader({0: history((1, 2), (3, 2), (5, 2), (7, 1))}, epoch=7)
    log = history((1, 2), (2, 3), (4, 2), (6, 1))
    following = new()
    follow(following, log, epoch=7)
    ends = []
    while log.records != leader.histories[0].records:
        turn(following, leader, [log])
        ends.append(log.end)
    assert ends == [7, 5, 2, 7]


def test_after_a_cut_a_follower_hears_what_is_committed_though_nothing_new_comes() -> None:
    log, leader, following = history((1, 4)), Leader({0: history((1, 2))}, epoch=2), new()
    follow(following, log, epoch=2)
    (followed,) = following
    turn(following, leader, [log])
    assert (log.end, followed.is_caught_up) == (2, False)
    turn(following, leader, [log])
    assert followed.is_caught_up


def test_what_a_dropped_answer_told_is_told_again_in_the_next_epoch() -> None:
    log, leader, following = history((1, 2)), Leader({0: history((1, 2))}), new()
    follow(following, log)
    response = leader.answer(asked(following))
    leader.epoch = 2
    follow(following, log, epoch=2)
    assert following.answered(response, 0) == []
    turn(following, leader, [log])
    (followed,) = following
    assert followed.is_caught_up


def test_an_epoch_without_records_left_is_no_reason_to_ask_for_ever() -> None:
    log, leader, following = history((3, 4)), Leader({0: history((2, 6), (5, 1))}, epoch=5), new()
    log.advance_start(4)  # all of epoch 3 was deleted, but it is still known
    follow(following, log, epoch=5)
    for _ in range(3):
        turn(following, leader, [log])
    assert log.records == leader.histories[0].records[4:]


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, int, list[tuple[int, int]], int]]:
    """Of three replicas: who leads, how much it appends, who fetches how much, what it deletes."""
    return draw(
        st.lists(
            st.tuples(
                st.integers(0, 2),
                st.integers(0, 3),
                st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=3),
                st.sampled_from([0, 0, 0, 0, 1, 3]),
            ),
            min_size=1,
            max_size=12,
        )
    )


@given(lives())
def test_whoever_led_and_whatever_was_copied_every_log_ends_as_the_last_leaders(
    life: list[tuple[int, int, list[tuple[int, int]], int]],
) -> None:
    logs, number = [History() for _ in range(3)], 0
    for epoch, (leads, appends, fetches, deletes) in enumerate(life):
        leader = Leader({0: logs[leads]}, epoch)
        for _ in range(appends):
            logs[leads].append((epoch, number := number + 1))
        logs[leads].advance_start(min(logs[leads].start + deletes, logs[leads].end))
        for replica, records_max in fetches:
            if replica != leads:
                following = new()
                follow(following, logs[replica], epoch=epoch)
                turn(following, leader, [logs[replica]], records_max=records_max)
    epoch, leads = len(life), life[-1][0]
    last = logs[leads]
    for log in logs:
        if log is last:
            continue
        following, leader, turns = new(), Leader({0: last}, epoch), 0
        follow(following, log, epoch=epoch)
        before = None
        while log.position != before:
            before = log.position
            turn(following, leader, [log])
            turns += 1
            assert turns <= 2 * epoch + 4
        assert log.end == last.end
        start = max(log.start, last.start)
        assert log.records[start - log.start :] == last.records[start - last.start :]
