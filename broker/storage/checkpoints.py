"""The small text files of a data directory, in Kafka's exact formats; replaced as a whole, never updated in
place.

Offsets (`*-offset-checkpoint`): a line `0` (version), a line with the number of entries, a line `topic
partition offset` each. Leader epochs: the same with `epoch startOffset`. `partition.metadata`: `version: 0`,
`topic_id: ID`, the id as Kafka prints a UUID (URL-safe base64 without padding). `meta.properties`: Java
properties `version=0`, `broker.id`, `cluster.id`; where Kafka keeps its metadata itself (KRaft) `version=1`,
`node.id`, `cluster.id`, which is only read.

Malformed files raise StorageError with file and line; a crash leaves the old file or the new one. An empty
checkpoint holds nothing: so Kafka leaves one that it has not written yet.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

from broker.errors import MissingFileError, StorageError
from broker.storage.disk import Disk
from broker.types import BrokerId, TopicId, TopicPartition

T = TypeVar("T")

_VERSION = "0"
_VERSION_OF_KRAFT = "1"


class EpochStart(NamedTuple):
    """A leader epoch and the offset of the first record written in it."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Whom a data root belongs to. A root written before the cluster's id was known has `cluster_id` None."""

    broker_id: BrokerId
    cluster_id: str | None
    is_of_kraft: bool = False
    """Whether the metadata of its cluster are in the root itself, and not in ZooKeeper."""


def read_if_any(disk: Disk, path: Path) -> bytes | None:
    """The content of a file, None when it is not there. Raises StorageError."""
    try:
        return disk.read_file(path)
    except MissingFileError:
        return None


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file; none when there is no file. Raises StorageError when it is
    malformed.
    """
    data = read_if_any(disk, path)
    return {} if data is None else dict(decode_lines(data, path, _offset_entry))


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file, durably."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    disk.write_file(path, encode_lines(lines))


def read_leader_epochs(disk: Disk, path: Path) -> list[EpochStart]:
    """The entries of a leader-epoch file; none when there is no file. Raises StorageError when it is
    malformed.
    """
    data = read_if_any(disk, path)
    return [] if data is None else decode_leader_epochs(data, path)


def decode_leader_epochs(data: bytes, path: Path) -> list[EpochStart]:
    """The entries in the bytes of a leader-epoch file. Raises StorageError when they are malformed."""
    return decode_lines(data, path, _epoch_entry)


def write_leader_epochs(disk: Disk, path: Path, epochs: Sequence[EpochStart], *, durable: bool) -> None:
    """Replace a leader-epoch file."""
    disk.write_file(path, encode_lines([f"{epoch} {offset}" for epoch, offset in epochs]), durable=durable)


def read_partition_metadata(disk: Disk, path: Path) -> TopicId | None:
    """The topic id in a `partition.metadata`, None when there is no file. Raises StorageError when it is
    malformed.
    """
    data = read_if_any(disk, path)
    if data is None:
        return None
    fields = _fields(data, path, ":")
    _check_version(fields, path)
    text = fields.get("topic_id", "")
    try:
        return TopicId(UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    except (ValueError, binascii.Error) as error:
        raise StorageError(f"{path}: topic_id {text!r} is no topic id") from error


def write_partition_metadata(disk: Disk, path: Path, topic_id: TopicId) -> None:
    """Replace a `partition.metadata`, durably."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    disk.write_file(path, f"version: {_VERSION}\ntopic_id: {text}\n".encode())


def read_meta_properties(disk: Disk, path: Path) -> MetaProperties | None:
    """What a `meta.properties` says, None when there is no file. Raises StorageError when it is malformed."""
    if not disk.exists(path):  # asked first: where it should be and is not, the whole root is gone
        return None
    fields = _fields(disk.read_file(path), path, "=")
    is_of_kraft = fields.get("version") == _VERSION_OF_KRAFT
    if not is_of_kraft:
        _check_version(fields, path)
    name = "node.id" if is_of_kraft else "broker.id"
    broker_id = _number(fields.get(name, ""))
    if broker_id is None:
        raise StorageError(f"{path}: {name} {fields.get(name, '')!r} is no broker id")
    return MetaProperties(
        broker_id=BrokerId(broker_id), cluster_id=fields.get("cluster.id"), is_of_kraft=is_of_kraft
    )


def write_meta_properties(disk: Disk, path: Path, meta: MetaProperties) -> None:
    """Replace a `meta.properties`, durably, by one of a broker that has ZooKeeper."""
    lines = ["#", f"version={_VERSION}", f"broker.id={meta.broker_id}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    disk.write_file(path, "".join(f"{line}\n" for line in lines).encode())


def encode_lines(lines: Sequence[str]) -> bytes:
    """The content of a checkpoint file of these entries."""
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def decode_lines(data: bytes, path: Path, entry: Callable[[list[str]], T]) -> list[T]:
    """The entries of a checkpoint file, each made of the words of its line by `entry`, which may raise
    ValueError. Raises StorageError that names file and line.
    """
    if not data:
        return []
    lines = _lines(data, path)
    if not data.endswith(b"\n"):
        raise StorageError(f"{path}:{len(lines)}: the last line is cut off")
    if not lines or lines[0].strip() != _VERSION:
        raise StorageError(f"{path}:1: version {lines[0] if lines else ''!r}, expected {_VERSION}")
    count = _number(lines[1]) if len(lines) > 1 else None
    if count is None:
        raise StorageError(f"{path}:2: expected the number of entries")
    if len(lines) - 2 != count:
        raise StorageError(f"{path}:2: {count} entries announced, {len(lines) - 2} found")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(entry(line.split()))
        except ValueError as error:
            raise StorageError(f"{path}:{number}: malformed entry {line!r}") from error
    return entries


def _number(text: str) -> int | None:
    """The number that a line is, None when it is none of at most 19 digits."""
    return int(text) if re.fullmatch(r"[ \t]*[0-9]{1,19}[ \t]*", text) else None


def _offset_entry(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    return TopicPartition(topic, int(partition)), int(offset)


def _epoch_entry(words: list[str]) -> EpochStart:
    epoch, offset = words
    return EpochStart(int(epoch), int(offset))


def _fields(data: bytes, path: Path, separator: str) -> dict[str, str]:
    """Lines of key, separator, value; blank lines and comments are skipped."""
    fields = {}
    for number, line in enumerate(_lines(data, path), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise StorageError(f"{path}:{number}: expected key{separator}value, found {line!r}")
        fields[key.strip()] = value.strip()
    return fields


def _check_version(fields: Mapping[str, str], path: Path) -> None:
    if fields.get("version") != _VERSION:
        raise StorageError(f"{path}: version {fields.get('version')!r}, expected {_VERSION}")


def _lines(data: bytes, path: Path) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise StorageError(f"{path}:{line}: not text") from error
