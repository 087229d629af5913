"""A consumer's side of a fetch session beside the node's: both mean the same partitions and offsets."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.fetch import FetchTerms, PartitionPosition
from broker.client.fetch_session import FetchSession
from broker.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from broker.errors import ErrorCode, ProtocolError
from broker.server.fetch_sessions import Asker, FetchedPartition, FetchSessions
from broker.types import TopicPartition
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

VERSION = 11
TERMS = FetchTerms(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, read_committed=True)
ASKER = Asker("alice", is_by_id=False, is_privileged=False)
PARTITIONS = 5


def position(number: int, offset: int = 0, *, epoch: int = -1) -> PartitionPosition:
    return PartitionPosition(
        topic_partition=TopicPartition("t", number), offset=offset, max_bytes=1000, leader_epoch=epoch
    )


def metadata(leader_epoch: int = 0) -> ClusterMetadata:
    partitions = {
        number: PartitionMetadata(leader=1, leader_epoch=leader_epoch) for number in range(PARTITIONS)
    }
    return ClusterMetadata(topics={"t": TopicMetadata(name="t", partitions=partitions)})


class Node:
    """The node's side, with what it understood last."""

    def __init__(self, *, slots_max: int = 1) -> None:
        ids = count(7)
        self.sessions = FetchSessions(slots_max=slots_max, eviction_ms=1000, draw_id=lambda: next(ids))
        self.understood: dict[int, int] = {}
        self.named: list[int] = []

    def answer(self, request: FetchRequest, with_records: frozenset[int] = frozenset()) -> FetchResponse:
        self.named = [partition.partition for topic in request.topics for partition in topic.partitions]
        try:
            turn = self.sessions.begin(request, ASKER, name_of=_name_of, now_ms=0)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        self.understood = {each.wanted.partition: each.wanted.fetch_offset for each in turn.partitions}
        answers = [_answer_to(each, with_records) for each in turn.partitions]
        session_id, told = self.sessions.finish(turn, answers, now_ms=0)
        topic = FetchableTopicResponse(topic="t", partitions=[answer for _, answer in told])
        return FetchResponse(session_id=session_id, responses=[topic])

    def forget(self) -> None:
        self.sessions = Node().sessions


def _name_of(topic: FetchTopic) -> str:
    return topic.topic


def _answer_to(found: FetchedPartition, with_records: frozenset[int]) -> PartitionData:
    number = found.wanted.partition
    return PartitionData(
        partition_index=number, high_watermark=9, records=b"x" if number in with_records else b""
    )


def test_only_what_is_asked_otherwise_is_named_again() -> None:
    node, session, known = Node(), FetchSession(), metadata()
    assert session.answered(node.answer(session.request([position(0), position(1)], TERMS, known, VERSION)))
    assert node.named == [0, 1]
    assert session.is_open
    changed = [position(0), position(1, 5), position(2)]
    assert session.answered(node.answer(session.request(changed, TERMS, known, VERSION)))
    assert node.named == [1, 2]
    assert session.added == {TopicPartition("t", 2)}
    assert session.answered(node.answer(session.request([position(2)], TERMS, known, VERSION)))
    assert (node.named, node.understood) == ([], {2: 0})
    assert session.partitions.keys() == {TopicPartition("t", 2)}


def test_another_leader_epoch_or_version_is_told_in_a_full_request() -> None:
    node, session, known = Node(), FetchSession(), metadata()
    wanted = [position(0), position(1)]
    for each, version in ((known, VERSION), (known, VERSION), (metadata(1), VERSION), (known, 12)):
        request = session.request(wanted, TERMS, each, version)
        assert session.answered(node.answer(request))
    assert node.named == [0, 1]
    assert len(node.sessions) == 1  # each closed the one before


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_that_is_gone_is_begun_anew(code: ErrorCode) -> None:
    session, known = FetchSession(), metadata()
    assert session.answered(Node().answer(session.request([position(0)], TERMS, known, VERSION)))
    session.request([position(0)], TERMS, known, VERSION)
    assert not session.answered(FetchResponse(error_code=code))
    request = session.request([position(0)], TERMS, known, VERSION)
    assert request.session_epoch == 0
    assert len(request.topics) == 1
    assert (request.session_id == 0) is (code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_an_error_that_says_something_else_is_the_callers_to_read() -> None:
    session, known = FetchSession(), metadata()
    session.request([position(0)], TERMS, known, VERSION)
    assert session.answered(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert not session.is_open


def test_a_node_that_keeps_no_sessions_is_asked_in_full() -> None:
    node, session, known = Node(slots_max=0), FetchSession(), metadata()
    for _ in range(3):
        assert session.answered(node.answer(session.request([position(0)], TERMS, known, VERSION)))
        assert node.named == [0]


_turns = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 3), min_size=1),
        st.frozensets(st.integers(0, PARTITIONS - 1)),
        st.sampled_from(["answered", "answered", "answered", "lost", "forgotten"]),
    ),
    max_size=30,
)


@given(_turns)
def test_the_node_reads_what_is_wanted_whatever_happens(
    turns: list[tuple[dict[int, int], frozenset[int], str]],
) -> None:
    node, session, known = Node(), FetchSession(), metadata()
    for wanted, with_records, fate in turns:
        if fate == "forgotten":
            node.forget()
        positions = [position(number, offset) for number, offset in wanted.items()]
        response = node.answer(session.request(positions, TERMS, known, VERSION), with_records)
        if fate == "lost":
            session.lost()
            continue
        if not session.answered(response):
            response = node.answer(session.request(positions, TERMS, known, VERSION), with_records)
            assert session.answered(response)
        assert node.understood == wanted
        told = {answer.partition_index for topic in response.responses for answer in topic.partitions}
        assert told >= with_records & wanted.keys()
        assert told >= {source.partition for source in session.added}
