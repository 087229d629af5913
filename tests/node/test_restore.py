"""What was archived is had again: into a topic, and back into a data root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from broker.embedded import EmbeddedCluster
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.storage.archive import Manifest, SealedSegment
from broker.storage.url_archive import ArchiveReader, UrlArchive
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conftest import ClusterFactory, until
from tests.node.commands import broker, done
from tests.node.raw_client import NOW_MS, RawClient, connected, create_topic, fetch, produce, values_of
from tests.node.test_archive import archived, start_offset

SETTINGS: dict[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.retention.ms": -1,
    "log.segment.bytes": 500,
    "log.archive.enable": True,
}
COUNT, KEPT_BYTES = 60, 500
TOPIC_CONFIG = 2


def value(number: int) -> bytes:
    return b"%03d" % number + b"x" * 97


def batch(start: int) -> bytearray:
    """Three records, a millisecond apart, with keys and headers; one without key, one a tombstone."""
    builder = BatchBuilder(Codec.ZSTD, size_max=1 << 20)
    builder.append(NOW_MS + start, b"key %d" % start, value(start), [("number", b"%d" % start)])
    builder.append(NOW_MS + start + 1, None, value(start + 1))
    builder.append(NOW_MS + start + 2, b"gone", None)
    return builder.build()


@contextmanager
def archiving_node(cluster: ClusterFactory, url: Path) -> Iterator[EmbeddedCluster]:
    """A node that has archived most of a topic and deleted it."""
    running = cluster(settings=SETTINGS | {"log.archive.url": str(url)})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        for start in range(0, COUNT, 3):
            produce(client, "flights", batch(start))
        alter(client, "retention.bytes", str(KEPT_BYTES))
        until(lambda: has_no_more_to_archive(running))
        assert start_offset(client, "flights") >= COUNT // 2
        alter(client, "retention.bytes", "-1")
    yield running


def has_no_more_to_archive(running: EmbeddedCluster) -> bool:
    """Whether as much is kept as retention asks for, and no whole segment beyond that."""
    segments = sorted(running.spec.directory.rglob("flights-0/*.log"))
    try:
        return sum(each.stat().st_size for each in segments[1:]) < KEPT_BYTES
    except FileNotFoundError:
        return False  # one has just gone


def alter(client: RawClient, name: str, text: str) -> None:
    change = AlterableConfig(name=name, config_operation=0, value=text)
    resource = AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name="flights", configs=[change])
    (answer,) = client.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == 0, answer.error_message


def read_all(client: RawClient, topic: str, count: int) -> list[bytes | None]:
    read: list[bytes | None] = []
    while len(read) < count:
        read += values_of(fetch(client, topic, len(read)).records)
    return read


def bootstrap(running: EmbeddedCluster) -> str:
    return f"--bootstrap-server={running.bootstrap[0]}"


def manifests(url: Path) -> list[Manifest]:
    return archived(url, "flights")


def test_archived_records_are_loaded_into_a_topic_once(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    with archiving_node(cluster, url) as running:
        end = manifests(url)[-1].next_offset
        restoring = ("restore", str(url), "--topic", "flights", "--into", "again", bootstrap(running))
        (loaded,) = done(*restoring, "--output", "json").json
        assert (loaded["messages"], loaded["loaded"]) == (end, end)
        with connected(running.bootstrap[0]) as client:
            original = [b"".join(ArchiveReader(str(url)).chunks(manifest)) for manifest in manifests(url)]
            assert read_all(client, "again", end) == values_of(b"".join(original))
        (again,) = done(*restoring, "--output", "json").json
        assert again["loaded"] == 0
        first = done(
            "consume",
            "again",
            "--from-beginning",
            "--max-messages",
            "3",
            bootstrap(running),
            "--output",
            "json",
        )
        records = [line for line in first.lines if '"key 0"' in line]
        assert '["number", "0"]' in records[0]
        assert str(NOW_MS) in records[0]


def test_only_the_records_of_a_time_window_are_loaded(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    with archiving_node(cluster, url) as running:
        window = ("--since", str(NOW_MS + 6), "--until", str(NOW_MS + 20))
        (loaded,) = done(
            *("restore", str(url), "--topic", "flights", "--into", "again", *window, bootstrap(running)),
            *("--output", "json"),
        ).json
        assert loaded["messages"] == 14


def test_segments_go_back_to_where_they_were(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    root = tmp_path / "cluster" / "node-1"
    with archiving_node(cluster, url) as running:
        (root,) = {path.parent.parent for path in (tmp_path / "cluster").rglob("flights-0/*.log")}
        restoring = ("restore", str(url), "--topic", "flights", "--log-dir", str(root), "--output", "json")
        in_use = broker(*restoring)
        assert (in_use.code, "is locked" in in_use.errors) == (1, True)
        running.stop_node(1)
        (restored,) = done(*restoring).json
        assert restored["start_offset"] == 0
        assert restored["bytes"] > 0
        assert done(*restoring).json[0]["bytes"] == 0
        assert done("verify", str(root)).code == 0
        running.start_node(1)
        with connected(running.bootstrap[0]) as client:
            assert start_offset(client, "flights") == 0
            expected = [each for n in range(0, COUNT, 3) for each in (value(n), value(n + 1), None)]
            assert read_all(client, "flights", COUNT) == expected
        assert done("verify", str(root)).code == 0


def test_an_archive_is_listed_and_verified(cluster: ClusterFactory, tmp_path: Path) -> None:
    url = tmp_path / "archive"
    with archiving_node(cluster, url):
        (row,) = done("archive", "list", str(url), "--output", "json").json
        assert (row["topic"], row["partition"], row["start_offset"]) == ("flights", 0, 0)
        (verified,) = done("archive", "verify", str(url), "--output", "json").json
        assert verified["records"] == row["end_offset"]
        damaged = url / f"{manifests(url)[1].path}.log"
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
        outcome = broker("archive", "verify", str(url))
        assert (outcome.code, damaged.stem in outcome.errors) == (1, True)
        missing = url / f"{manifests(url)[1].path}.json"
        missing.unlink()
        outcome = broker("archive", "verify", str(url))
        assert (outcome.code, "flights-0 lacks" in outcome.errors) == (1, True)
        outcome = broker("restore", str(url), "--topic", "flights", "--log-dir", str(tmp_path))
        assert (outcome.code, "lacks the offsets" in outcome.errors) == (1, True)


def test_topics_of_one_name_are_listed_and_only_one_of_them_is_restored(tmp_path: Path) -> None:
    content = bytes(batch(0))
    for topic_id in (UUID(int=1), UUID(int=2)):
        UrlArchive(str(tmp_path), cluster_id="C1", broker_id=BrokerId(1)).store(
            SealedSegment(
                topic_partition=TopicPartition("flights", 0),
                topic_id=topic_id,
                base_offset=0,
                next_offset=3,
                size=len(content),
                max_timestamp_ms=NOW_MS,
                aborted=(),
                chunks=lambda: iter([content]),
            )
        )
    selection = (str(tmp_path), "--topic", "flights", "--output", "json")
    ids = {str(UUID(int=1)), str(UUID(int=2))}
    assert {row["topic_id"] for row in done("archive", "list", *selection).json} == ids
    assert {row["topic_id"] for row in done("archive", "verify", *selection).json} == ids
    refused = broker("restore", *selection, "--log-dir", str(tmp_path / "root"))
    assert (refused.code, "choose by --topic-id" in refused.errors) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("restore", "{url}", "--topic", "flights"), 2, "--into"),
        (("restore", "{url}", "--topic", "other", "--into", "x"), 1, "no such segments"),
        (("restore", "{url}", "--topic", "flights", "--into", "x", "--since", "noon"), 2, "noon"),
        (("restore", "gopher://x", "--topic", "flights", "--into", "x"), 1, "gopher"),
        (("archive", "list", "{url}/none"), 1, "none"),
    ],
)
def test_what_cannot_be_restored_is_told(
    arguments: tuple[str, ...], code: int, word: str, tmp_path: Path
) -> None:
    outcome = broker(*(argument.format(url=tmp_path) for argument in arguments))
    assert (outcome.code, word in outcome.errors) == (code, True), outcome.errors
