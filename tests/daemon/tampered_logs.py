"""Logs of a cluster whose records are changed while its nodes are down, as a broken disk or a hand would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from broker.embedded import EmbeddedCluster
from broker.records.batch import BatchHeader, iterate_batches, write_header
from broker.records.builder import BatchBuilder
from broker.records.excerpt import excerpt, open_batch
from broker.records.record import Header, Record
from broker.types import TopicPartition

SIZE_MAX = 1 << 20
Change = Callable[[list[Record], int], list[Record]]
"""What to make of the records of a batch, to the one of which an index points."""


def altered_value(records: list[Record], at: int) -> list[Record]:
    return _with(records, at, records[at]._replace(value=b'{"altered": true}'))


def altered_key(records: list[Record], at: int) -> list[Record]:
    return _with(records, at, records[at]._replace(key=b"altered"))


def altered_header(records: list[Record], at: int) -> list[Record]:
    headers: tuple[Header, ...] = (("origin", b"altered"),)
    return _with(records, at, records[at]._replace(headers=headers))


def altered_time(records: list[Record], at: int) -> list[Record]:
    return _with(records, at, records[at]._replace(timestamp=records[at].timestamp + 1))


def reordered(records: list[Record], at: int) -> list[Record]:
    """The record and the one behind it, in each other's place."""
    return [*records[:at], records[at + 1], records[at], *records[at + 2 :]]


def dropped(records: list[Record], at: int) -> list[Record]:
    return [*records[:at], *records[at + 1 :]]


def _with(records: list[Record], at: int, changed: Record) -> list[Record]:
    return [*records[:at], changed, *records[at + 1 :]]


def tamper(cluster: EmbeddedCluster, changes: Mapping[TopicPartition, tuple[Change, int]]) -> None:
    """Change partitions of a cluster of one node, each at the record with an offset."""
    cluster.stop_node(1)
    for partition, (change, offset) in changes.items():
        files = sorted(cluster.spec.directory.rglob(f"{partition}/*.log"))
        assert sum(_rewrite(file, change, offset) for file in files) == 1
    cluster.start_node(1)


def append_again(cluster: EmbeddedCluster, partition: TopicPartition) -> int:
    """The first transaction of a partition once more at its end, by its producer; where it is then."""
    cluster.stop_node(1)
    files = sorted(cluster.spec.directory.rglob(f"{partition}/*.log"))
    logs = [file.read_bytes() for file in files]
    batches = [(log[at : at + each.size], each) for log in logs for at, each in iterate_batches(log)]
    end = next_offset = batches[-1][1].next_offset
    for batch, header in batches:
        logs[-1] += next_offset.to_bytes(8) + batch[8:]
        next_offset += header.last_offset_delta + 1
        if header.is_control:
            break
    files[-1].write_bytes(logs[-1])
    cluster.start_node(1)
    return end


def _rewrite(file: Path, change: Change, offset: int) -> bool:
    """Whether the segment has the record."""
    log = file.read_bytes()
    batches = list(iterate_batches(log))
    changed = next((at for at, each in batches if each.base_offset <= offset < each.next_offset), None)
    if changed is None:
        return False
    written = b"".join(
        _changed(log[at : at + header.size], header, change, offset)
        if at == changed
        else log[at : at + header.size]
        for at, header in batches
    )
    assert written != log
    file.write_bytes(written)
    return True


def _changed(batch: bytes, header: BatchHeader, change: Change, offset: int) -> bytes:
    records = _records(batch, header)
    if change is dropped:
        opened = open_batch(batch, header, size_max=SIZE_MAX)
        return bytes(excerpt(opened, [each.offset != offset for each in records]))
    at = next(index for index, each in enumerate(records) if each.offset == offset)
    return _built(header, change(records, at))


def _built(header: BatchHeader, records: list[Record]) -> bytes:
    builder = BatchBuilder(
        size_max=SIZE_MAX,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    for each in records:
        assert builder.append(each.timestamp, each.key, each.value, each.headers)
    batch = builder.build()
    ((_, built),) = iterate_batches(batch)
    placed = built._replace(base_offset=header.base_offset, leader_epoch=header.leader_epoch)
    write_header(batch, 0, placed)
    return bytes(batch)


def records_of(cluster: EmbeddedCluster, partition: TopicPartition) -> Iterator[Record]:
    """All that are in the log of a cluster of one node."""
    for file in sorted(cluster.spec.directory.rglob(f"{partition}/*.log")):
        log = file.read_bytes()
        for at, header in iterate_batches(log):
            if not header.is_control:
                yield from _records(log[at : at + header.size], header)


def _records(batch: bytes, header: BatchHeader) -> list[Record]:
    columns = open_batch(batch, header, size_max=SIZE_MAX).columns
    return [
        Record(at, time, 0, key, value, tuple(headers))
        for key, value, at, time, headers in zip(*columns, strict=True)
    ]
