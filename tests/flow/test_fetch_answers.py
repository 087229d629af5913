"""What a copier makes of the refusals in fetch answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.errors import ErrorCode
from broker.types import TopicPartition
from broker.wire.messages.fetch import PartitionData
from mirrormaker.flow.exchange import Assignment, FetchPlan, FlowConfig, PartitionPosition
from mirrormaker.flow.fetch_answers import FetchAnswers
from mirrormaker.flow.fetcher import Answered
from mirrormaker.flow.machine import FlowMachine

SOURCE = TopicPartition("flights", 0)


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (
            ErrorCode.OFFSET_NOT_AVAILABLE,
            True,
        ),  # a leader of before that follows now, and may lack the offset
        (ErrorCode.CORRUPT_MESSAGE, False),
    ],
)
def test_leaders_are_looked_for_where_a_refusal_may_come_of_one_that_leads_no_more(
    code: ErrorCode, is_stale: bool
) -> None:
    machine, told = FlowMachine(FlowConfig()), list[bool]()
    machine.assign(
        [Assignment(source=SOURCE, destinations=(TopicPartition("jfk.flights", 0),), bucket=0, position=84)]
    )
    cluster: Any = SimpleNamespace(name="jfk")
    ranges: Any = SimpleNamespace()
    answers = FetchAnswers(
        cluster,
        machine,
        SystemClock(),
        ranges,
        on_trouble=lambda _: None,
        on_stale=lambda: told.append(True),
        read_committed=True,
    )
    data = PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
    plan = FetchPlan(
        positions=[PartitionPosition(topic_partition=SOURCE, offset=84, max_bytes=1)],
        answer_bytes=1,
        pressed=False,
    )
    answers.take(Answered([(SOURCE, data)], 0, 0, None, (), ()), plan)
    assert told == [True] * is_stale
    assert machine.partitions[SOURCE].source_problem == code.name
