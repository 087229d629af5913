"""The prepared answers are byte for byte those of the general encoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.produce_answers import ProduceAnswers
from broker.storage.appends import Appended
from broker.wire.header import encode_response
from broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.wire.registry import api_of

OFFSETS = st.integers(-1, 2**63 - 1)


@pytest.mark.parametrize("version", range(ProduceRequest.max_version + 1))
@settings(max_examples=20)
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    topic=st.text(min_size=1, max_size=30),
    partition=st.integers(0, 2**31 - 1),
    numbers=st.tuples(OFFSETS, OFFSETS, OFFSETS),
)
def test_every_version_is_encoded_as_the_tables_do(
    version: int, correlation_id: int, topic: str, partition: int, numbers: tuple[int, int, int]
) -> None:
    first_offset, time_ms, start_offset = numbers
    appended = Appended(first_offset, first_offset, time_ms, start_offset, False)
    answer = PartitionProduceResponse(
        index=partition,
        base_offset=first_offset,
        log_append_time_ms=time_ms,
        log_start_offset=start_offset,
    )
    response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[answer])])
    expected = b"".join(encode_response(response, api_of(ProduceRequest), version, correlation_id))
    answers = ProduceAnswers()
    for _ in range(2):
        assert b"".join(answers.encode(version, correlation_id, topic, partition, appended)) == expected
