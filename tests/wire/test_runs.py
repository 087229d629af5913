"""Structures laid out alike are coded in runs; what breaks a run changes nothing but the speed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import WireError
from broker.wire.encoding import write_runs
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.run_decoding import read_runs
from broker.wire.runs import ARRAY_LENGTH_MAX, LAYOUTS_MAX, RUN_LENGTH_MAX
from tests.wire.samples import sample, versions_of

replica_lists = st.lists(st.integers(-1, 1000), max_size=ARRAY_LENGTH_MAX + 2)
partitions = st.builds(
    MetadataResponsePartition,
    partition_index=st.integers(0, 1 << 30),
    replica_nodes=replica_lists,
    isr_nodes=replica_lists,
)


def metadata_of(items: list[Any]) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(name="a", partitions=items),
        MetadataResponseTopic(name="b", partitions=items),
    ]
    return MetadataResponse(topics=topics)


@settings(max_examples=60, deadline=None)
@given(items=st.lists(partitions, max_size=8), version=st.sampled_from([5, 8, 9, 12]))
def test_partitions_of_mixed_layouts_come_back(items: list[MetadataResponsePartition], version: int) -> None:
    message = metadata_of(items)
    assert MetadataResponse.decode(message.encode(version), version) == message


def test_a_run_is_cut_where_the_layout_changes_and_goes_on_after() -> None:
    lengths = [3, 3, 3, 1, 3, 3, 0, 200, 3, 3]
    items = [
        MetadataResponsePartition(partition_index=n, isr_nodes=list(range(k))) for n, k in enumerate(lengths)
    ]
    for version in versions_of(MetadataResponse):
        message = metadata_of(items)
        assert MetadataResponse.decode(message.encode(version), version) == message


def test_a_structure_with_tagged_fields_is_no_part_of_a_run() -> None:
    random = Random(1)
    items = [sample(FetchPartition, 17, random) for _ in range(50)]
    message = FetchRequest(topics=[FetchTopic(partitions=items)])
    assert FetchRequest.decode(message.encode(17), 17) == message


def test_an_unknown_tagged_field_inside_a_run_is_skipped() -> None:
    items = [MetadataResponsePartition(partition_index=7, replica_nodes=[1]) for _ in range(3)]
    encoded = metadata_of(items).encode(12)
    body = bytes.fromhex("0000 00000007 00000000 ffffffff 02 00000001 01 01")
    assert encoded.count(body + b"\0") == 6
    tagged = encoded.replace(
        body + b"\0" + body + b"\0", body + b"\0" + body + bytes.fromhex("01 09 02 abcd")
    )
    assert MetadataResponse.decode(tagged, 12) == metadata_of(items)


def test_null_arrays_have_a_layout_where_they_are_allowed_and_are_refused_elsewhere() -> None:
    items = [ListOffsetsPartitionResponse(partition_index=n) for n in range(3)]
    message = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=items)])
    for version in versions_of(ListOffsetsResponse):
        assert ListOffsetsResponse.decode(message.encode(version), version) == message
    encoded = bytearray(metadata_of([MetadataResponsePartition(partition_index=7)]).encode(12))
    at = encoded.index(bytes.fromhex("00000007")) + 12
    encoded[at] = 0
    for _ in range(2):
        with pytest.raises(WireError, match="replica_nodes has the length -1"):
            MetadataResponse.decode(encoded, 12)


@pytest.mark.parametrize("count", [ARRAY_LENGTH_MAX + 1, 126, 127, 128, 129, 200])
def test_what_is_in_a_long_array_is_taken_for_no_length(count: int) -> None:
    """What looks like lengths in it, each of many bytes, may lead beyond the end of the message."""
    for value in (0x7F, 0x7F7F7F7F, 0x7F000000):
        state = LeaderAndIsrPartitionState(isr=[value] * count, replicas=[1])
        message = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(partition_states=[state])])
        for version in range(2, LeaderAndIsrRequest.max_version + 1):
            assert LeaderAndIsrRequest.decode(message.encode(version), version) == message


def test_the_layouts_kept_are_bounded() -> None:
    for first in range(ARRAY_LENGTH_MAX + 3):
        for second in range(ARRAY_LENGTH_MAX + 3):
            item = MetadataResponsePartition(replica_nodes=range(first), isr_nodes=range(second))
            message = metadata_of([item])
            assert MetadataResponse.decode(message.encode(11), 11) == message
    for runs in (
        read_runs(MetadataResponsePartition, 11, flexible=True),
        write_runs(MetadataResponsePartition, 11, flexible=True),
    ):
        assert len(runs) == LAYOUTS_MAX


def test_runs_longer_than_the_bound_come_back() -> None:
    for count in (RUN_LENGTH_MAX - 1, RUN_LENGTH_MAX, RUN_LENGTH_MAX + 1, 4 * RUN_LENGTH_MAX + 5):
        items = [MetadataResponsePartition(partition_index=n, isr_nodes=[n]) for n in range(count)]
        message = metadata_of(items)
        assert MetadataResponse.decode(message.encode(12), 12) == message
        asked = [FetchPartition(partition=n) for n in range(count)]
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=asked)])
        assert FetchRequest.decode(request.encode(12), 12) == request


def test_very_many_alternating_layouts_are_read_right() -> None:
    """No run is longer than one structure here: work that grew with the square would not end."""
    items = [MetadataResponsePartition(isr_nodes=[1] * (n % 2)) for n in range(100_000)]
    message = MetadataResponse(topics=[MetadataResponseTopic(name="a", partitions=items)])
    assert MetadataResponse.decode(message.encode(12), 12) == message
