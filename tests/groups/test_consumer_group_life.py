"""Scenarios of one consumer group: who has what, when, and what of it the log knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import ErrorCode
from broker.groups.consumer_groups.config import MigrationPolicy
from broker.groups.consumer_groups.events import ConsumerHeartbeatReply, RevocationTimer
from broker.groups.consumer_groups.image import GroupState
from broker.groups.consumer_groups.members import NOTHING, MemberState
from broker.groups.events import JoinReply, SessionTimer
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.groups.scripted_consumers import CONFIG, REBALANCE_MS, ScriptedConsumers, cooperative

NONE = ErrorCode.NONE


def classic_assignment(answer: bytes) -> dict[str, list[int]]:
    _, told = ConsumerProtocolAssignment.decode_with_version(answer)
    return {each.topic: list(each.partitions) for each in told.assigned_partitions}


# Walking from epoch to epoch


def test_the_first_member_gets_everything_at_once() -> None:
    group = ScriptedConsumers()
    assert group.join("m1") is NONE
    assert group.numbers("m1") == [0, 1, 2, 3]
    assert group.members["m1"].epoch == group.image.group_epoch == 1
    assert group.state is GroupState.STABLE


def test_a_second_member_gets_its_share_when_the_first_has_given_it_up() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    assert (group.numbers("m2"), group.members["m2"].epoch) == ([], 2)
    group.heartbeat("m1")
    assert (group.numbers("m1"), group.members["m1"].epoch) == ([0, 1], 1)
    assert group.image.assignment("m1").state is MemberState.UNREVOKED
    group.follow("m2")
    assert group.numbers("m2") == []
    group.follow("m1")
    assert group.members["m1"].epoch == 2
    group.follow("m2")
    assert group.numbers("m2") == [2, 3]
    assert group.state is GroupState.STABLE


def test_a_member_that_only_says_it_lives_gives_nothing_up() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    for _ in range(3):
        group.heartbeat("m1")
        group.heartbeat("m2")
    assert group.image.assignment("m1").state is MemberState.UNREVOKED
    assert group.numbers("m2") == []


def test_an_unchanged_assignment_is_told_to_those_alone_who_ask_for_it() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.heartbeat("m1")
    last = max(group.answers)
    assert group.reply_to(last).assignment is None
    group.heartbeat("m1", topics=frozenset({"flights"}), rebalance_timeout_ms=REBALANCE_MS, owned=NOTHING)
    assert group.reply_to(max(group.answers)).assignment == group.members["m1"].assigned


def test_the_partitions_of_one_who_left_are_the_others() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.settle()
    assert group.leave("m1") is NONE
    assert group.state is GroupState.ASSIGNING
    group.settle("m2")
    assert group.numbers("m2") == [0, 1, 2, 3]


def test_a_member_that_is_silent_is_removed() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.wait(CONFIG.session_timeout_ms - 1)
    group.heartbeat("m2")
    group.wait(1)
    assert list(group.image) == ["m2"]
    assert group.heartbeat("m1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.heartbeat("m1")
    for _ in range(4):
        group.wait(REBALANCE_MS // 4)
        group.heartbeat("m1")
        group.heartbeat("m2")
    assert list(group.image) == ["m2"]
    group.settle("m2")
    assert group.numbers("m2") == [0, 1, 2, 3]


def test_the_time_to_give_up_ends_with_giving_up() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.heartbeat("m1")
    assert RevocationTimer("m1") in group.timers
    group.follow("m1")
    assert RevocationTimer("m1") not in group.timers


def test_members_that_come_together_share_one_epoch() -> None:
    group = ScriptedConsumers()
    group.stores_at_once = False
    for member_id in ("m1", "m2", "m3"):
        assert group.join(member_id) is None
    group.store()
    group.store()
    assert group.image.group_epoch == 2
    assert sorted(len(group.image.target(member_id)) for member_id in group.image) == [1, 1, 2]


# Fencing


def test_a_lost_answer_is_given_again() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.heartbeat("m1")
    group.follow("m1")
    before = group.image.assignment("m1")
    assert group.heartbeat("m1", epoch=1, owned=before.assigned) is NONE
    assert group.members["m1"].epoch == 2


def test_a_lost_answer_to_the_first_join_is_given_again() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    assert group.join("m1") is NONE
    assert (group.members["m1"].epoch, group.numbers("m1")) == (1, [0, 1, 2, 3])
    assert group.image.group_epoch == 1


def test_one_who_owns_more_than_it_was_given_is_fenced() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.heartbeat("m1")
    group.follow("m1")
    everything = frozenset(group.partition(number) for number in range(4))
    assert group.heartbeat("m1", epoch=1, owned=everything) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_begins_anew_at_once() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.join("m2")
    group.settle()
    assert group.heartbeat("m1", epoch=7) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.join("m1") is NONE
    assert group.numbers("m1") == [0, 1]
    assert group.state is GroupState.STABLE


# Static members


def test_a_static_member_comes_back_to_what_it_had() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    group.join("m2")
    group.settle()
    had, epoch = group.numbers("m1"), group.image.group_epoch
    assert group.leave("m1", instance_id="i", static=True) is NONE
    assert group.members["m1"].epoch == -2
    assert group.join("m3", instance_id="i") is NONE
    assert group.numbers("m3") == had
    assert group.image.group_epoch == epoch
    assert "m1" not in group.image
    assert group.heartbeat("m1", instance_id="i", epoch=1) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_under_its_own_id() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    group.leave("m1", instance_id="i", static=True)
    assert group.join("m1", instance_id="i") is NONE
    assert group.numbers("m1") == [0, 1, 2, 3]


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    assert group.join("m2", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert list(group.image) == ["m1"]


def test_a_static_member_that_stays_away_is_removed() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    group.leave("m1", instance_id="i", static=True)
    group.wait(CONFIG.session_timeout_ms)
    assert group.state is GroupState.EMPTY
    assert group.heartbeat("m1", instance_id="i", epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_can_leave_for_good() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    assert group.leave("m1", instance_id="i") is NONE
    assert group.state is GroupState.EMPTY
    assert group.join("m2", instance_id="i") is NONE


# Topics


def test_new_partitions_are_shared_out_with_the_next_heartbeat() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.topics.put("flights", 6)
    group.settle()
    assert group.numbers("m1") == [0, 1, 2, 3, 4, 5]
    assert group.image.group_epoch == 2


def test_a_topic_that_comes_later_is_consumed_and_one_that_goes_is_given_up() -> None:
    group = ScriptedConsumers({"flights": 1})
    group.join("m1", "flights", "weather")
    group.topics.put("weather", 2)
    group.settle()
    assert len(group.members["m1"].assigned) == 3
    group.topics.remove("flights")
    group.settle()
    assert len(group.members["m1"].assigned) == 2
    assert group.state is GroupState.STABLE


def test_other_topics_in_the_cluster_change_nothing() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.topics.put("others", 6)
    group.settle()
    assert group.image.group_epoch == 1


def test_an_expression_takes_in_topics_as_they_come() -> None:
    group = ScriptedConsumers({"flights.jfk": 1, "weather": 1})
    assert group.join("m1", pattern="flights.*") is NONE
    assert len(group.members["m1"].assigned) == 1
    group.topics.put("flights.ewr", 2)
    group.settle()
    assert len(group.members["m1"].assigned) == 3
    assert group.image.patterns["flights.*"].topics == {"flights.jfk", "flights.ewr"}
    group.heartbeat("m1", pattern="", topics=frozenset({"weather"}))
    group.settle()
    assert group.image.patterns == {}
    assert len(group.members["m1"].assigned) == 1


def test_an_expression_finds_what_the_member_may_see_and_looks_again_every_now_and_then() -> None:
    group = ScriptedConsumers({"flights.jfk": 1, "flights.secret": 1})
    group.join("m1", pattern="flights.*", may_see="flights.jfk".__eq__)
    assert group.image.patterns["flights.*"].topics == {"flights.jfk"}
    group.now_ms += CONFIG.regex_refresh_interval_ms - 1
    assert group.heartbeat("m1") is NONE
    assert group.image.patterns["flights.*"].topics == {"flights.jfk"}
    group.now_ms += 1
    assert group.heartbeat("m1") is NONE
    assert group.image.patterns["flights.*"].topics == {"flights.jfk", "flights.secret"}
    group.settle()
    assert len(group.members["m1"].assigned) == 2
    stored = len(group.log)
    group.now_ms += CONFIG.regex_refresh_interval_ms
    assert group.heartbeat("m1") is NONE
    assert len(group.log) == stored, "nothing has changed"


def test_what_an_expression_finds_stays_when_a_member_goes() -> None:
    group = ScriptedConsumers({"flights.jfk": 1})
    group.join("m1", pattern="flights.*", may_see="flights.jfk".__eq__)
    group.join("m2", "flights.jfk")
    group.topics.put("flights.secret", 1)
    group.leave("m2")
    assert group.image.patterns["flights.*"].topics == {"flights.jfk"}
    group.heartbeat("m1", may_see="flights.jfk".__eq__)
    assert group.image.patterns["flights.*"].topics == {"flights.jfk"}


def test_an_expression_that_is_none_is_refused() -> None:
    group = ScriptedConsumers()
    assert group.join("m1", pattern="flights(") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not group.image.exists


def test_most_members_decide_on_the_assignor() -> None:
    group = ScriptedConsumers({"a": 2, "b": 2})
    for member_id, assignor in (("m1", "range"), ("m2", "range"), ("m3", "uniform")):
        group.join(member_id, "a", "b", assignor=assignor)
    group.settle()
    assert group.image.preferred_assignor() == "range"
    assert sorted(len(told.assigned) for told in group.members.values()) == [0, 2, 2]


def test_a_full_group_takes_nobody_in_but_those_it_knows() -> None:
    group = ScriptedConsumers(config=replace(CONFIG, size_max=2))
    group.join("m1", instance_id="i")
    group.join("m2")
    assert group.join("m3") is ErrorCode.GROUP_MAX_SIZE_REACHED
    group.leave("m1", instance_id="i", static=True)
    assert group.join("m4", instance_id="i") is NONE
    assert group.join("m2") is NONE


# The log


def test_another_node_reads_the_same_group_from_the_log() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    group.join("m2", pattern="fl.*")
    group.heartbeat("m1")
    read = group.replayed()
    assert read.group_epoch == group.image.group_epoch
    assert read.subscriptions == group.image.subscriptions
    assert read.static_member("i") == "m1"
    for member_id in group.image:
        assert read.assignment(member_id) == group.image.assignment(member_id)
        assert read.target(member_id) == group.image.target(member_id)
    assert not read.is_free(group.partition(3), "m2")


def test_nobody_is_told_before_the_log_knows() -> None:
    group = ScriptedConsumers()
    group.stores_at_once = False
    assert group.join("m1") is None
    assert group.join("m2") is None
    group.store()
    answers = [answer for answer in group.answers.values() if isinstance(answer, ConsumerHeartbeatReply)]
    assert [answer.member_id for answer in answers] == ["m1"]


def test_a_round_that_the_log_refuses_never_was() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.stores_at_once = False
    group.join("m2")
    group.fail_store()
    assert list(group.image) == ["m1"]
    assert group.image.group_epoch == 1
    (refused,) = [
        answer
        for answer in group.answers.values()
        if isinstance(answer, ConsumerHeartbeatReply) and answer.error is not NONE
    ]
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.stores_at_once = True
    assert group.join("m2") is NONE


# Members of the classic protocol


def test_a_classic_member_walks_along_and_keeps_what_it_may() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    joined = group.classic_join("c1")
    assert joined is not None
    assert (joined.protocol, joined.leader, joined.members) == ("cooperative-sticky", "", ())
    assert classic_assignment(group.classic_sync("c1", joined.generation).assignment) == {}
    assert group.classic_heartbeat("c1", joined.generation) is NONE
    group.settle("m1")
    assert group.classic_heartbeat("c1", joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = group.classic_join("c1")
    assert joined is not None
    synced = group.classic_sync("c1", joined.generation, protocol="cooperative-sticky")
    assert classic_assignment(synced.assignment) == {"flights": [2, 3]}
    assert group.state is GroupState.STABLE


def test_a_classic_member_gives_up_by_joining_again() -> None:
    group = ScriptedConsumers(config=replace(CONFIG, migration=MigrationPolicy.UPGRADE))
    group.join("m0")
    group.classic_join("c1")
    group.leave("m0")
    joined = group.classic_join("c1")
    assert joined is not None
    assert classic_assignment(group.classic_sync("c1", joined.generation).assignment) == {
        "flights": [0, 1, 2, 3]
    }
    group.join("m1")
    assert group.classic_heartbeat("c1", joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = group.classic_join(
        "c1", protocols={"cooperative-sticky": cooperative(["flights"], {"flights": [0, 1, 2, 3]})}
    )
    assert again is not None
    assert classic_assignment(group.classic_sync("c1", again.generation).assignment) == {"flights": [0, 1]}
    assert group.classic_heartbeat("c1", again.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    group.follow("m1")
    assert group.numbers("m1") == []
    group.classic_join("c1", protocols={"cooperative-sticky": cooperative(["flights"], {"flights": [0, 1]})})
    group.follow("m1")
    assert group.numbers("m1") == [2, 3]


def test_a_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    joined = group.classic_join("c1")
    assert joined is not None
    group.classic_sync("c1", joined.generation)
    group.join("m2")
    for _ in range(12):
        group.classic_heartbeat("c1", joined.generation)
        group.follow("m1")
        group.follow("m2")
        group.wait(REBALANCE_MS // 10)
    assert "c1" not in group.image


def test_a_classic_member_that_does_not_sync_or_is_silent_is_removed() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.classic_join("c1")
    assert SessionTimer("c1") in group.timers
    group.wait(10_000)
    assert list(group.image) == ["m1"]


def test_a_static_classic_member_is_replaced_and_fenced() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.classic_join("", new_member_id="c1", instance_id="i")
    group.classic_join("", new_member_id="c2", instance_id="i")
    assert sorted(group.image) == ["c2", "m1"]
    assert group.classic_heartbeat("c1", 1, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.classic_leave("", instance_id="i") is NONE
    assert list(group.image) == ["m1"]


# Downgrade


def test_the_last_consumer_that_leaves_makes_the_group_classic() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.classic_join("c1")
    group.settle("m1")
    group.classic_join("c1")
    epoch = group.image.group_epoch
    group.leave("m1")
    assert group.retired
    assert not group.image.exists
    (metadata,) = group.classic_log
    assert metadata is not None
    assert (metadata.generation, metadata.leader) == (epoch, "c1")
    (member,) = metadata.members
    assert classic_assignment(member.assignment) == {"flights": [2, 3]}
    assert not group.replayed().exists


def test_a_static_consumer_replaced_by_a_classic_member_makes_the_group_classic() -> None:
    group = ScriptedConsumers()
    group.join("m1", instance_id="i")
    group.leave("m1", instance_id="i", static=True)
    joined = group.classic_join("", new_member_id="c1", instance_id="i")
    assert group.retired
    assert isinstance(joined, JoinReply)
    assert joined.error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_groups_stay_what_they_are_where_the_policy_says_so(policy: MigrationPolicy) -> None:
    group = ScriptedConsumers(config=replace(CONFIG, migration=policy))
    group.join("m1")
    group.classic_join("c1")
    group.leave("m1")
    assert not group.retired
    assert list(group.image) == ["c1"]


def test_a_member_in_the_same_round_as_a_downgrade_is_handed_on() -> None:
    group = ScriptedConsumers()
    group.join("m1")
    group.classic_join("c1")
    group.stores_at_once = False
    group.heartbeat("m1", topics=frozenset({"x"}))
    group.leave("m1")
    group.join("m2")
    group.store()
    group.store()
    assert group.retired
    assert len(group.unhandled) == 1
