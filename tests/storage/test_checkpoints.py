"""The small text files, byte for byte as Kafka writes them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import StorageError
from broker.storage.checkpoints import (
    EpochStart,
    MetaProperties,
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    write_leader_epochs,
    write_meta_properties,
    write_offsets,
    write_partition_metadata,
)
from broker.types import BrokerId, TopicId, TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import DiskAt


def test_offsets_are_written_as_kafka_does(place: DiskAt) -> None:
    path = place.path / "recovery-point-offset-checkpoint"
    write_offsets(place.disk, path, {TopicPartition("a.b", 0): 17, TopicPartition("c", 12): 0})
    assert place.disk.read_file(path) == b"0\n2\na.b 0 17\nc 12 0\n"


def test_leader_epochs_are_written_as_kafka_does(place: DiskAt) -> None:
    path = place.path / "leader-epoch-checkpoint"
    write_leader_epochs(place.disk, path, [EpochStart(0, 0), EpochStart(3, 120)], durable=False)
    assert place.disk.read_file(path) == b"0\n2\n0 0\n3 120\n"
    assert read_leader_epochs(place.disk, path) == [(0, 0), (3, 120)]


def test_partition_metadata_is_written_as_kafka_does(place: DiskAt) -> None:
    path = place.path / "partition.metadata"
    topic_id = TopicId(UUID("fb0c8a56-7ab1-4d3c-9a4f-3c2b1a000102"))
    write_partition_metadata(place.disk, path, topic_id)
    assert place.disk.read_file(path) == b"version: 0\ntopic_id: -wyKVnqxTTyaTzwrGgABAg\n"
    assert read_partition_metadata(place.disk, path) == topic_id


def test_meta_properties_of_kafka_are_read(place: DiskAt) -> None:
    path = place.path / "meta.properties"
    place.disk.write_file(
        path, b"#\n#Thu Nov 21 11:46:00 UTC 2024\ncluster.id=Rq1nXH1LSHyUoZD5DdTfGA\nversion=0\nbroker.id=3\n"
    )
    found = read_meta_properties(place.disk, path)
    assert found == MetaProperties(broker_id=BrokerId(3), cluster_id="Rq1nXH1LSHyUoZD5DdTfGA")
    write_meta_properties(place.disk, path, found)
    assert read_meta_properties(place.disk, path) == found


def test_meta_properties_of_a_kafka_without_zookeeper_are_read(place: DiskAt) -> None:
    path = place.path / "meta.properties"
    place.disk.write_file(
        path,
        b"#\nnode.id=4\ndirectory.id=7iSR2lCJhWBz3RwKyEXSdA\nversion=1\ncluster.id=bWlycm9ybWFrZXItdGVzdA\n",
    )
    found = read_meta_properties(place.disk, path)
    assert found == MetaProperties(
        broker_id=BrokerId(4), cluster_id="bWlycm9ybWFrZXItdGVzdA", is_of_kraft=True
    )


def test_missing_files_say_nothing(place: DiskAt) -> None:
    path = place.path / "missing"
    assert read_offsets(place.disk, path) == {}
    assert read_leader_epochs(place.disk, path) == []
    assert read_partition_metadata(place.disk, path) is None
    assert read_meta_properties(place.disk, path) is None


def test_empty_checkpoints_hold_nothing(place: DiskAt) -> None:
    path = place.path / "checkpoint"
    place.disk.write_file(path, b"")
    assert read_offsets(place.disk, path) == {}
    assert read_leader_epochs(place.disk, path) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\n", r"checkpoint:1: version '', expected 0"),
        (b"1\n0\n", r"checkpoint:1: version '1'"),
        (b"0\n", r"checkpoint:2: expected the number"),
        (b"0\nmany\n", r"checkpoint:2: expected the number"),
        (b"0\n1\x1f\n", r"checkpoint:2: expected the number"),
        ("0\n²\n".encode(), r"checkpoint:2: expected the number"),
        (b"0\n2\na 0 1\n", r"checkpoint:2: 2 entries announced, 1 found"),
        (b"0\n1\na 0 1\nb 0 1\n", r"checkpoint:2: 1 entries announced, 2 found"),
        (b"0\n2\na 0 1\nb zero 1\n", r"checkpoint:4: malformed entry 'b zero 1'"),
        (b"0\n1\na 0\n", r"checkpoint:3: malformed entry 'a 0'"),
        (b"0\n1\na\xff 0 1\n", r"checkpoint:3: not text"),
    ],
)
def test_a_malformed_checkpoint_is_named_with_its_line(place: DiskAt, content: bytes, problem: str) -> None:
    path = place.path / "checkpoint"
    place.disk.write_file(path, content)
    with pytest.raises(StorageError, match=problem):
        read_offsets(place.disk, path)


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (b"version=0\nbroker.id=x\n", read_meta_properties),
        (b"version=7\nbroker.id=1\n", read_meta_properties),
        (b"version=1\nbroker.id=1\n", read_meta_properties),
        (b"nonsense\n", read_meta_properties),
        (b"version: 0\ntopic_id: short\n", read_partition_metadata),
        (b"version: 0\n", read_partition_metadata),
        (b"version: 1\ntopic_id: -wyKVnqxTTyaTzwrGgABAg\n", read_partition_metadata),
    ],
)
def test_malformed_identities_are_named(place: DiskAt, content: bytes, read: Callable[..., object]) -> None:
    path = place.path / "identity"
    place.disk.write_file(path, content)
    with pytest.raises(StorageError, match="identity"):
        read(place.disk, path)


@given(
    st.dictionaries(
        st.builds(
            TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 1 << 31)
        ),
        st.integers(0, (1 << 63) - 1),
    )
)
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    place = memory_place()
    write_offsets(place.disk, place.path / "checkpoint", offsets)
    assert read_offsets(place.disk, place.path / "checkpoint") == offsets
