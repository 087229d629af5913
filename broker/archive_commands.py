"""The commands on archives: what is in one, whether it is sound, and having it again.

`restore --into` loads committed records into a topic (`loading` says how): they keep partition, key, value,
headers and timestamp, and get new offsets. `restore --log-dir` puts whole segments back into the data root of
a stopped node, offsets and all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.command_line import client_command, connected
from broker.loading import SourceRecord, add_load_options, load, print_loads
from broker.progress import ProgressBar, progress_bar
from broker.records.batch import Codec
from broker.records.record import Record
from broker.storage.archive import ArchiveError
from broker.storage.archived_partition import ArchivedPartition, archived_partitions
from broker.storage.disk import SystemDisk
from broker.storage.restoring import restore_partitions
from broker.storage.url_archive import ArchiveReader
from broker.telemetry import logger
from broker.types import TopicPartition

log_event = logger("archive")

_NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Records by their timestamps (ms): from `since_ms` up to, not including, `until_ms`."""

    since_ms: int = -1
    until_ms: int = _NEVER_MS

    def holds(self, record: Record) -> bool:
        return self.since_ms <= record.timestamp < self.until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSource:
    """The records of an archived partition to be loaded; the counts are of what lies in the window."""

    partition: ArchivedPartition
    window: Window
    record_count: int
    record_size_max: int

    @property
    def name(self) -> str:
        return f"the archive of {self.partition.topic_partition}"

    @property
    def number(self) -> int:
        return self.partition.topic_partition.partition

    @property
    def size(self) -> int:
        return self.partition.size

    def read(self) -> Iterator[SourceRecord]:
        """See RecordSource. Raises ArchiveError."""
        size = 0
        for record, batch_size in self.partition.records():
            size += batch_size
            if self.window.holds(record):
                yield SourceRecord(record.timestamp, record.key, record.value, record.headers, size)
                size = 0


def add_commands(commands: Any) -> None:
    """Add `archive list`, `archive verify` and `restore` to the command line."""
    archive = commands.add_parser("archive", help="look at archived segments")
    actions = archive.add_subparsers(required=True, metavar="ACTION")
    for name, run, description in (
        ("list", list_archive, "show what an archive holds of each partition"),
        ("verify", verify_archive, "read everything in an archive and check it"),
    ):
        action = actions.add_parser(name, help=description, description=description)
        _add_selection(action)
        action.add_argument("--output", choices=("text", "json"), default="text")
        action.set_defaults(run=run)
    restoring = "load archived records into a topic, or put archived segments back into a data root"
    _add_restore_options(client_command(commands, "restore", restore, restoring))


def _add_restore_options(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--into", metavar="TOPIC", help="load the records into a topic")
    target.add_argument(
        "--log-dir", type=Path, metavar="DIR", help="put segments back into the data root of a stopped node"
    )
    parser.add_argument("--since", type=_time, default=-1, metavar="TIME", help="only records since then")
    parser.add_argument("--until", type=_time, default=_NEVER_MS, metavar="TIME", help="only earlier ones")
    add_load_options(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="what log.archive.url of the nodes says")
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--topic-id", type=UUID, metavar="ID", help="which of several topics of that name")
    parser.add_argument(
        "--partition", type=int, action="append", metavar="N", help="may be given several times; default: all"
    )


def list_archive(options: argparse.Namespace) -> None:
    """A line per partition. Raises ArchiveError."""
    _print(options, [_row(partition) for partition in _selected(options)])


def verify_archive(options: argparse.Namespace) -> None:
    """Read everything. Raises ArchiveError at the first damage, or when offsets are missing."""
    partitions = _selected(options)
    rows = []
    with progress_bar("verified") as progress:
        progress.begin(sum(partition.size for partition in partitions))
        for partition in partitions:
            count = 0
            for batch in partition.batches():
                count += len(batch.records)
                progress.by(len(batch.data))
            rows.append(_row(partition) | {"records": count})
    _print(options, rows)
    lacking = [partition for partition in partitions if partition.gaps]
    if lacking:
        raise ArchiveError(
            "; ".join(f"{each.topic_partition} lacks {_ranges(each.gaps)}" for each in lacking)
        )


async def restore(options: argparse.Namespace) -> None:
    """Have archived records again. Raises ArchiveError, LoadError, StorageError, ProtocolError."""
    if options.topic is None:
        raise ArchiveError("restore needs --topic")
    partitions = await asyncio.to_thread(_selected, options)
    _require_one_topic(options, partitions)
    if options.log_dir is not None:
        await asyncio.to_thread(_restore_segments, options, partitions)
        return
    for partition in partitions:
        if partition.gaps:
            log_event.warning(
                "archive_has_gaps", partition=str(partition.topic_partition), missing=_ranges(partition.gaps)
            )
    window = Window(since_ms=options.since, until_ms=options.until)
    with progress_bar("checked") as progress:
        progress.begin(sum(partition.size for partition in partitions))
        sources = [await asyncio.to_thread(_checked, partition, window, progress) for partition in partitions]
    async with connected(options) as cluster:
        loads = await load(cluster, options.into, sources, codec=Codec[options.compression.upper()])
    print_loads(options, loads)


def _restore_segments(options: argparse.Namespace, partitions: Sequence[ArchivedPartition]) -> None:
    if options.since != -1 or options.until != _NEVER_MS:
        raise ArchiveError("--since and --until choose records: they go with --into")
    with progress_bar("restored") as progress:
        progress.begin(sum(partition.size for partition in partitions))
        restored = restore_partitions(SystemDisk(), options.log_dir, partitions, progress.by)
    _print(
        options,
        [
            _place(each.partition.topic_partition) | {"start_offset": each.start_offset, "bytes": each.size}
            for each in restored
        ],
    )


def _selected(options: argparse.Namespace) -> list[ArchivedPartition]:
    """The archived partitions that the options choose. Raises ArchiveError when there are none."""
    reader = ArchiveReader(options.url)
    manifests = [
        manifest
        for manifest in reader.manifests(topic=options.topic)
        if (options.topic_id is None or manifest.topic_id == options.topic_id)
        and (options.partition is None or manifest.partition in options.partition)
    ]
    if not manifests:
        raise ArchiveError(f"{options.url} holds no such segments")
    return archived_partitions(reader, manifests, since_ms=getattr(options, "since", -1))


def _require_one_topic(options: argparse.Namespace, partitions: Sequence[ArchivedPartition]) -> None:
    """Raises ArchiveError when several topics had the name: their offsets are not of one log."""
    ids = {partition.topic_id for partition in partitions}
    if len(ids) > 1:
        listed = ", ".join(sorted(map(str, ids)))
        raise ArchiveError(
            f"several topics were called {options.topic}: choose by --topic-id one of {listed}"
        )


def _checked(partition: ArchivedPartition, window: Window, progress: ProgressBar) -> ArchivedSource:
    """Read all of a partition. Raises ArchiveError for damage."""
    count = largest = 0
    for record, size in partition.records():
        progress.by(size)
        if window.holds(record):
            count += 1
            largest = max(largest, len(record.key or b"") + len(record.value or b""))
    return ArchivedSource(partition=partition, window=window, record_count=count, record_size_max=largest)


def _place(topic_partition: TopicPartition) -> dict[str, object]:
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}


def _row(partition: ArchivedPartition) -> dict[str, object]:
    manifests = [manifest for manifest, _ in partition.segments]
    return _place(partition.topic_partition) | {
        "topic_id": str(partition.topic_id),
        "start_offset": manifests[0].base_offset,
        "end_offset": manifests[-1].next_offset,
        "segments": len(manifests),
        "bytes": partition.size,
        "latest": _iso(max(manifest.max_timestamp_ms for manifest in manifests)),
        "missing": _ranges(partition.gaps),
    }


def _ranges(gaps: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{start} to {end - 1}" for start, end in gaps)


def _iso(time_ms: int) -> str:
    return "" if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def _time(text: str) -> int:
    """Milliseconds since the epoch, or an ISO 8601 time (UTC unless it says otherwise)."""
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: {error}") from error
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _print(options: argparse.Namespace, rows: Sequence[dict[str, object]]) -> None:
    if options.output == "json":
        sys.stdout.write(f"{json.dumps(rows)}\n")
        return
    for row in rows:
        shown = "\t".join(f"{name.replace('_', ' ').capitalize()}: {value}" for name, value in row.items())
        sys.stdout.write(f"{shown}\n")
