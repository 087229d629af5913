"""Archiving on real nodes: what retention deletes can be had again."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from broker.storage.archive import Manifest
from broker.storage.url_archive import ArchiveReader
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import RawClient, batch_of, connected, create_topic, produce, values_of

SETTINGS: dict[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.segment.bytes": 2000,
    "log.retention.bytes": 4000,
    "log.retention.ms": -1,
    "log.archive.enable": True,
}
VALUES = [b"%03d" % number + b"x" * 97 for number in range(100)]


def archiving_cluster(cluster: ClusterFactory, url: Path, **settings: object) -> EmbeddedCluster:
    return cluster(settings=SETTINGS | {"log.archive.url": str(url)} | settings)


def fill(client: RawClient, topic: str) -> None:
    for start in range(0, len(VALUES), 5):
        produce(client, topic, batch_of(*VALUES[start : start + 5]))


def log_of(tmp_path: Path) -> str:
    return "".join(log.read_text() for log in (tmp_path / "cluster").glob("*.log"))


def archived(url: Path, topic: str) -> list[Manifest]:
    return ArchiveReader(str(url)).manifests(topic=topic) if url.exists() else []


def start_offset(client: RawClient, topic: str) -> int:
    earliest = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[earliest])])
    return client.request(request, 7).topics[0].partitions[0].offset


def delete_records(client: RawClient, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    assert client.request(request).topics[0].partitions[0].error_code == 0


def test_what_retention_deleted_is_in_the_archive_to_the_last_byte(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    url = tmp_path / "archive"
    running = archiving_cluster(cluster, url)
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        fill(client, "flights")
        until(lambda: len(VALUES) - start_offset(client, "flights") <= 50)
        start = start_offset(client, "flights")
        manifests = archived(url, "flights")
        assert manifests[0].base_offset == 0
        assert manifests[-1].next_offset >= start
        for before, after in pairwise(manifests):
            assert before.next_offset == after.base_offset
        reader = ArchiveReader(str(url))
        stored = b"".join(b"".join(reader.chunks(manifest)) for manifest in manifests)
        assert values_of(stored)[:start] == VALUES[:start]


def test_segments_stay_while_the_archive_is_away_and_go_when_it_is_back(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    url = tmp_path / "archive"
    url.write_bytes(b"a file where the directory should be")
    running = archiving_cluster(cluster, url)
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        create_topic(client, "unarchived", archive_enable="false")
        fill(client, "flights")
        fill(client, "unarchived")
        until(lambda: start_offset(client, "unarchived") > 0)
        assert start_offset(client, "flights") == 0
        url.unlink()
        until(lambda: start_offset(client, "flights") > 0)


def test_a_node_killed_while_it_archives_loses_nothing(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    running = archiving_cluster(cluster, url)
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        fill(client, "flights")
        until(lambda: archived(url, "flights") != [])
    os.kill(running.pids[1], signal.SIGKILL)
    running.kill_node(1)
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        until(lambda: len(VALUES) - start_offset(client, "flights") <= 50)
        start = start_offset(client, "flights")
    assert archived(url, "flights")[0].base_offset == 0
    assert max(manifest.next_offset for manifest in archived(url, "flights")) >= start


def test_records_that_a_user_deleted_are_not_archived(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    running = archiving_cluster(cluster, url, **{"log.retention.bytes": -1})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        fill(client, "flights")
        delete_records(client, "flights", 60)
        until(lambda: not list((tmp_path / "cluster").rglob("flights-0/00000000000000000000.log")))
    assert archived(url, "flights") == []


def test_no_cleaning_runs_outside_its_schedule(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    running = archiving_cluster(cluster, url, **{"log.cleanup.schedule": "0 0 29 2 *"})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights", retention_ms="1")
        fill(client, "flights")
        until(lambda: "cleaning_paused" in log_of(tmp_path))
        assert start_offset(client, "flights") == 0
    assert archived(url, "flights") == []
    assert "cleaning_resumed" not in log_of(tmp_path)


def test_a_node_without_an_archive_refuses_the_topic_setting(client: RawClient, topic: str) -> None:
    with pytest.raises(AssertionError, match=r"no log\.archive\.url"):
        create_topic(client, topic, archive_enable="true")
