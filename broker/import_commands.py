"""The command that loads a directory of Kafka 0.7 or MetaQ into a topic (`loading` says how).

All of the source is checked before anything is loaded. What a message carried is kept: its payload is the
value, its position (the message id of that time) the header `import.position`, of MetaQ also id, flag and
attribute. These formats have no timestamps; records get the time at which their file was last written.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.command_line import client_command, connected
from broker.loading import LoadError, SourceRecord, add_load_options, load, print_loads
from broker.progress import ProgressBar, progress_bar
from broker.records.batch import Codec
from broker.records.record import Header
from broker.storage.disk import Disk
from broker.storage.dump_line import Damage
from broker.storage.legacy_directory import (
    SourcePartition,
    SourceTally,
    check_partition,
    find_source_partitions,
    read_partition,
)
from broker.storage.legacy_files import LegacyMessage
from broker.storage.read_only_disk import ReadOnlyDisk

POSITION_HEADER = "import.position"
"""`POSITION`, or `POSITION.INDEX` of a message that was in a compressed one."""
METAQ_ID_HEADER = "import.metaq.id"
METAQ_FLAG_HEADER = "import.metaq.flag"
METAQ_ATTRIBUTE_HEADER = "import.metaq.attribute"

DAMAGES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacySource:
    """A sound partition of such a directory."""

    disk: Disk
    partition: SourcePartition
    tally: SourceTally

    @property
    def name(self) -> str:
        return str(self.partition.path)

    @property
    def number(self) -> int:
        return self.partition.number

    @property
    def record_count(self) -> int:
        return self.tally.messages

    @property
    def record_size_max(self) -> int:
        return self.tally.payload_size_max

    @property
    def size(self) -> int:
        return self.partition.size

    def read(self) -> Iterator[SourceRecord]:
        """See RecordSource. Raises StorageError."""
        position = -1
        for legacy, message in read_partition(self.disk, self.partition):
            if isinstance(message, Damage):
                continue
            size = message.size if message.position != position else 0
            position = message.position
            yield SourceRecord(legacy.modified_ms, None, message.payload, _headers(message), size)


async def import_directory(options: argparse.Namespace) -> None:
    """Check a directory and load it. Raises LoadError before anything is loaded, or when the topic turns out
    to be written by somebody else meanwhile; StorageError; ProtocolError.
    """
    disk = ReadOnlyDisk()
    partitions = find_source_partitions(disk, options.directory, topic=options.source_topic)
    with progress_bar("checked") as progress:
        progress.begin(sum(partition.size for partition in partitions))
        tallies = await asyncio.to_thread(_check_all, disk, partitions, options.accept_torn_tail, progress)
    sources = [
        LegacySource(disk=disk, partition=partition, tally=tally)
        for partition, tally in zip(partitions, tallies, strict=True)
    ]
    async with connected(options) as cluster:
        loads = await load(cluster, options.topic, sources, codec=Codec[options.compression.upper()])
    print_loads(options, loads)


def _check_all(
    disk: Disk, partitions: Sequence[SourcePartition], accept_torn_tail: bool, progress: ProgressBar
) -> list[SourceTally]:
    """What the partitions hold. Raises LoadError that names the damaged places."""
    tallies, damages = [], []
    for partition in partitions:
        tally, found = check_partition(
            disk, partition, accept_torn_tail=accept_torn_tail, on_bytes=progress.by
        )
        tallies.append(tally)
        damages += found
    if damages:
        shown = [str(damage) for damage in damages[:DAMAGES_SHOWN_MAX]]
        if len(damages) > DAMAGES_SHOWN_MAX:
            shown.append(f"and {len(damages) - DAMAGES_SHOWN_MAX} more")
        raise LoadError("the source is damaged, nothing was loaded:\n  " + "\n  ".join(shown))
    return tallies


def _headers(message: LegacyMessage) -> list[Header]:
    position = str(message.position)
    if message.codec is not Codec.NONE:
        position += f".{message.index}"
    headers: list[Header] = [(POSITION_HEADER, position.encode())]
    if message.metaq is not None:
        headers.append((METAQ_ID_HEADER, str(message.metaq.message_id).encode()))
        headers.append((METAQ_FLAG_HEADER, str(message.metaq.flag).encode()))
        if message.metaq.attribute is not None:
            headers.append((METAQ_ATTRIBUTE_HEADER, message.metaq.attribute))
    return headers


def add_commands(commands: Any) -> None:
    """Add `import` to the command line."""
    description = "load a directory of Kafka 0.7 or MetaQ into a topic"
    parser = client_command(commands, "import", import_directory, description)
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="a directory of partitions, or one partition's"
    )
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="created when it is not there")
    parser.add_argument("--source-topic", metavar="NAME", help="which topic of DIR, when it has several")
    parser.add_argument(
        "--accept-torn-tail", action="store_true", help="leave out a last message that a crash cut short"
    )
    add_load_options(parser)
