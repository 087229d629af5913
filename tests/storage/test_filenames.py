"""Kafka's names, and nothing else, are read as ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.storage.filenames import (
    DirectoryState,
    FileKind,
    FileState,
    SegmentFileName,
    deleted_directory_name,
    is_topic_name,
    parse_directory_name,
    parse_segment_file_name,
    segment_file_name,
)
from broker.types import TopicPartition

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(is_topic_name)


@given(st.integers(0, (1 << 63) - 1), st.sampled_from(FileKind), st.sampled_from(FileState))
def test_names_of_segment_files_round_trip(offset: int, kind: FileKind, state: FileState) -> None:
    name = segment_file_name(offset, kind) + state.value
    assert parse_segment_file_name(name) == SegmentFileName(offset, kind, state)


def test_further_files_of_what_was_cut_at_an_offset_have_numbers() -> None:
    named = SegmentFileName(7, FileKind.LOG, FileState.CUT)
    assert parse_segment_file_name(f"{7:020d}.log.cut.12") == named


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "00000000000000000000.logs",
        "00000000000000000000.log.deleted.2",
        "00000000000000000000.log.2",
        "x00000000000000000000.log",
        "partition.metadata",
    ],
)
def test_other_file_names_are_not_ours(name: str) -> None:
    assert parse_segment_file_name(name) is None


@given(topics, st.integers(0, (1 << 31) - 1))
def test_names_of_partition_directories_round_trip(topic: str, partition: int) -> None:
    expected = TopicPartition(topic, partition)
    found = parse_directory_name(str(expected))
    assert found is not None
    assert found == (expected, DirectoryState.LIVE)


@given(topics, st.integers(0, (1 << 31) - 1))
def test_a_directory_to_be_removed_has_a_name_that_fits(topic: str, partition: int) -> None:
    name = deleted_directory_name(TopicPartition(topic, partition))
    assert len(name) <= 255
    found = parse_directory_name(name)
    assert found is not None
    assert found.state is DirectoryState.DELETE


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_marked_directories_are_told_apart(state: str) -> None:
    found = parse_directory_name(f"a.b-c-3.0123456789abcdef-{state}")
    assert found == (TopicPartition("a.b-c", 3), DirectoryState(state))


@pytest.mark.parametrize("name", ["", "photos", "-3", "a-", "a b-3", "lost+found", "..-1", "a" * 250 + "-1"])
def test_other_directories_are_not_ours(name: str) -> None:
    assert parse_directory_name(name) is None
