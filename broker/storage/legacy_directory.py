"""Directories of Kafka 0.7 and MetaQ: which partitions they hold, and whether all of it is sound.

A partition is a directory of `.kafka` or `.meta` files. Kafka 0.7 names it `TOPIC-N` (`TOPIC_N` in its first
releases), MetaQ `TOPIC-N`, or `B-P` for partition P of broker B below a directory for the topic. Partitions
named `TOPIC-N` or `N` keep their number; those of several brokers are numbered through in the order of
broker and partition, as consumers of that time numbered them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.errors import StorageError
from broker.storage.disk import Disk
from broker.storage.dump_line import Damage
from broker.storage.legacy_files import (
    LegacyFile,
    LegacyMessage,
    TornTail,
    joint_damage,
    list_legacy_files,
    read_legacy_messages,
)

_BROKER_AND_PARTITION = re.compile(r"(\d+)-(\d+)")
_TOPIC_AND_PARTITION = re.compile(r"(?:(?P<topic>.*)[-_])?(?P<partition>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition to be loaded into the partition of that number."""

    number: int
    path: Path
    files: tuple[LegacyFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDamage:
    """Damage of one file."""

    path: Path
    damage: Damage

    def __str__(self) -> str:
        return f"{self.path}: {self.damage}"


@dataclass(slots=True)
class SourceTally:
    """What a sound partition holds; sizes in bytes."""

    messages: int = 0
    payload_size_max: int = 0


def find_source_partitions(disk: Disk, directory: Path, *, topic: str | None = None) -> list[SourcePartition]:
    """The partitions in `directory`, or the one that it is, by number; `topic` chooses among several topics.

    Raises StorageError when there is none, or when names leave open what belongs where.
    """
    if files := list_legacy_files(disk, directory):
        found = _TOPIC_AND_PARTITION.fullmatch(directory.absolute().name)
        number = int(found["partition"]) if found else 0
        return [SourcePartition(number=number, path=directory, files=tuple(files))]
    candidates = {
        entry.name: files
        for entry in disk.list_directory(directory)
        if entry.is_directory and (files := list_legacy_files(disk, directory / entry.name))
    }
    if not candidates:
        raise StorageError(
            f"{directory} holds no .kafka or .meta files, and neither do the directories in it"
        )
    numbers = _numbers(directory, candidates.keys(), topic)
    return [
        SourcePartition(number=number, path=directory / name, files=tuple(candidates[name]))
        for number, name in sorted(numbers.items())
    ]


def _numbers(directory: Path, names: Collection[str], topic: str | None) -> dict[int, str]:
    """Which name is which partition of the topic."""
    of_brokers = {name: match for name in names if (match := _BROKER_AND_PARTITION.fullmatch(name))}
    if topic is None and len(of_brokers) == len(names):
        ordered = sorted(of_brokers, key=lambda name: tuple(map(int, of_brokers[name].groups())))
        return dict(enumerate(ordered))
    topics: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        found = _TOPIC_AND_PARTITION.fullmatch(name)
        if found is None:
            raise StorageError(f"{directory / name} does not say which partition it is, as TOPIC-N does")
        taken = topics[found["topic"] or ""].setdefault(int(found["partition"]), name)
        if taken != name:
            raise StorageError(f"{directory}: {taken} and {name} are the same partition")
    if topic is not None and topic not in topics:
        raise StorageError(f"{directory} has no topic {topic}, only {', '.join(sorted(topics))}")
    if topic is None and len(topics) > 1:
        raise StorageError(f"{directory} has several topics ({', '.join(sorted(topics))}): choose one")
    return topics[topic] if topic is not None else next(iter(topics.values()))


def read_partition(
    disk: Disk, partition: SourcePartition
) -> Iterator[tuple[LegacyFile, LegacyMessage | Damage]]:
    """Every message of a partition in order, with the file it is in. Raises StorageError."""
    for legacy in partition.files:
        file = disk.open(legacy.path)
        try:
            for message in read_legacy_messages(file, legacy.format, legacy.base_position):
                yield legacy, message
        finally:
            file.close()


def check_partition(
    disk: Disk, partition: SourcePartition, *, accept_torn_tail: bool, on_bytes: Callable[[int], None]
) -> tuple[SourceTally, list[SourceDamage]]:
    """Read all of a partition; what it holds and where it is damaged.

    `accept_torn_tail`: a last message that was cut short by a crash, at the very end, is passed over. Raises
    StorageError.
    """
    tally = SourceTally()
    damages = [SourceDamage(path=file.path, damage=damage) for file, damage in joint_damage(partition.files)]
    position = -1
    for legacy, message in read_partition(disk, partition):
        if isinstance(message, Damage):
            if not (accept_torn_tail and legacy is partition.files[-1] and isinstance(message, TornTail)):
                damages.append(SourceDamage(path=legacy.path, damage=message))
            continue
        tally.messages += 1
        tally.payload_size_max = max(tally.payload_size_max, len(message.payload))
        if message.position != position:
            position = message.position
            on_bytes(message.size)
    return tally, damages
