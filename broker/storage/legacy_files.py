"""Log files from before Kafka 0.8: Kafka 0.7's `.kafka` and MetaQ's `.meta`. Pure apart from the Disk port.

In both a message has no stored offset: its id is the byte position in the partition where its entry begins,
and a file is named by the position of its first byte (20 digits in Kafka, 32 in MetaQ; any number is taken),
so that the files of a partition join without gap.

Kafka 0.7 (big-endian): `size int32 | magic int8 | attributes int8, magic 1 only | crc uint32 | payload`. The
size counts from the magic on, the CRC is zlib's over the payload. The lowest two bits of the attributes are
the codec (0 none, 1 gzip, 2 snappy): the payload is then a set of messages of this same layout, which share
the position of the entry that they are in.

MetaQ: `length int32 | checksum int32 | message id int64 | flag int32 | attribute length int32, attribute |
payload`. The attribute and its length are there when bit 0 of the flag is set; the length counts them and the
payload, and the checksum, zlib's CRC-32, covers the same bytes (some writers clear its sign bit).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import assert_never

from broker.errors import CorruptRecordsError
from broker.records.batch import Codec
from broker.records.compression import decompress
from broker.storage.disk import Disk, File
from broker.storage.dump_line import Damage, DumpLine, FieldValue, Finding, LineKind

MESSAGE_BYTES_MAX = 64 << 20
"""Messages larger than this, as stored or uncompressed, are reported and not looked into."""

_READ_BYTES = 1 << 20
_SIZE = Struct(">i")
_KAFKA_CODEC_MASK = 0x03
_KAFKA_SIZE_MIN = 5
_NESTING_MAX = 4
_METAQ_HEADER = Struct(">iIqi")
_METAQ_HAS_ATTRIBUTE = 0x01
_METAQ_CHECKSUM_MASK = 0x7FFFFFFF
_FILE_NAME = re.compile(r"(\d{1,32})\.(kafka|meta)")


class LegacyFormat(Enum):
    """A format by the suffix of its files."""

    KAFKA_0_7 = "kafka"
    METAQ = "meta"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqFields:
    """What a message of MetaQ carries beside its payload."""

    message_id: int
    flag: int
    attribute: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyMessage:
    """One message. `position` is its id: where its entry begins in the partition, in bytes; `index` counts
    the messages that a compressed entry holds. `size` is that of the entry as stored.
    """

    position: int
    index: int
    size: int
    magic: int
    codec: Codec
    checksum: int
    is_valid: bool
    payload: bytes
    metaq: MetaqFields | None = None


class TornTail(Damage):
    """The end of a file in the middle of a message, as a crash leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyFile:
    """One file of a partition; `base_position` is what its name says, sizes are in bytes."""

    path: Path
    format: LegacyFormat
    base_position: int
    size: int
    modified_ms: int


def parse_legacy_file_name(name: str) -> tuple[int, LegacyFormat] | None:
    """The position and format that a file's name says, or None for another kind of name."""
    found = _FILE_NAME.fullmatch(name)
    return (int(found[1]), LegacyFormat(found[2])) if found else None


def list_legacy_files(disk: Disk, directory: Path) -> list[LegacyFile]:
    """The files of the partition in `directory`, in order of their positions. Raises StorageError."""
    files = [
        LegacyFile(
            path=directory / entry.name,
            format=parsed[1],
            base_position=parsed[0],
            size=entry.size,
            modified_ms=entry.modified_ms,
        )
        for entry in disk.list_directory(directory)
        if not entry.is_directory and (parsed := parse_legacy_file_name(entry.name)) is not None
    ]
    return sorted(files, key=lambda file: file.base_position)


def joint_damage(files: Sequence[LegacyFile]) -> Iterator[tuple[LegacyFile, Damage]]:
    """Where the files of a partition, in order, do not join."""
    for before, file in pairwise(files):
        end = before.base_position + before.size
        if file.format is not before.format:
            yield file, Damage(None, f"is of another format than {before.path.name}")
        elif file.base_position != end:
            what = "missing" if file.base_position > end else "doubled"
            count = abs(file.base_position - end)
            yield file, Damage(None, f"{count} bytes are {what} between {before.path.name} and this file")


def read_legacy_messages(
    file: File, file_format: LegacyFormat, base_position: int, *, message_bytes_max: int = MESSAGE_BYTES_MAX
) -> Iterator[LegacyMessage | Damage]:
    """Every message of a file, compressed ones opened; positions of damage count from the start of the file.

    A message whose checksum does not hold is given, not valid, and its damage after it; bytes that are no
    message end the walk with a Damage. Raises StorageError when the disk fails.
    """
    for position, entry in _entries(file, file_format, message_bytes_max):
        if isinstance(entry, Damage):
            yield entry
            continue
        match file_format:
            case LegacyFormat.KAFKA_0_7:
                yield from _kafka_messages(entry, position, base_position + position, message_bytes_max)
            case LegacyFormat.METAQ:
                yield from _metaq_message(entry, position, base_position + position)
            case _:
                assert_never(file_format)


def message_line(message: LegacyMessage, *, print_data: bool) -> DumpLine:
    """A message as a line of a dump."""
    fields: dict[str, FieldValue] = {
        "offset": message.position,
        "index": message.index,
        "size": message.size,
        "payloadsize": len(message.payload),
    }
    if message.metaq is None:
        fields |= {"magic": message.magic, "compresscodec": message.codec.name.lower()}
    else:
        fields |= {"messageId": message.metaq.message_id, "flag": message.metaq.flag}
        fields["attribute"] = message.metaq.attribute
    fields |= {"crc": message.checksum, "isvalid": message.is_valid}
    if print_data:
        fields["payload"] = message.payload
    return DumpLine(LineKind.ENTRY, fields)


def dump_legacy_file(
    file: File, file_format: LegacyFormat, base_position: int, *, print_data: bool
) -> Iterator[Finding]:
    """Lines and damage of one file. Raises StorageError when the disk fails."""
    yield DumpLine(LineKind.NOTE, {"Log starting offset": base_position})
    for message in read_legacy_messages(file, file_format, base_position):
        yield message if isinstance(message, Damage) else message_line(message, print_data=print_data)


# Entries


def _entries(
    file: File, file_format: LegacyFormat, message_bytes_max: int
) -> Iterator[tuple[int, memoryview | Damage]]:
    """Position and bytes of every whole entry."""
    overhead = _SIZE.size if file_format is LegacyFormat.KAFKA_0_7 else _METAQ_HEADER.size
    length_min = _KAFKA_SIZE_MIN if file_format is LegacyFormat.KAFKA_0_7 else 0
    held, start, position, end = memoryview(b""), 0, 0, file.size()
    while position < end:
        if len(held) - (position - start) < overhead:
            start, held = position, memoryview(file.pread(_READ_BYTES, position))
        if len(held) - (position - start) < overhead:
            yield position, TornTail(position, f"the last {end - position} bytes are no whole message")
            return
        length: int = _SIZE.unpack_from(held, position - start)[0]
        size = length + overhead
        if length < length_min:
            message = f"the last {end - position} bytes are no message: its length would be {length}"
            yield position, Damage(position, message)
            return
        if size > end - position:
            yield position, TornTail(position, f"a message of {size} bytes ends after {end - position}")
            return
        if size > message_bytes_max:
            yield position, Damage(position, f"a message of {size} bytes is too large to be looked into")
        else:
            if size > len(held) - (position - start):
                start, held = position, memoryview(file.pread(max(size, _READ_BYTES), position))
            yield position, held[position - start : position - start + size]
        position += size


# Kafka 0.7


def _kafka_messages(
    entry: memoryview, position: int, message_position: int, size_max: int
) -> Iterator[LegacyMessage | Damage]:
    try:
        message = _kafka_message(entry, message_position)
    except CorruptRecordsError as error:
        yield Damage(position, error.message)
        return
    if message.codec is Codec.NONE or not message.is_valid:
        yield message
        if not message.is_valid:
            yield Damage(position, f"the checksum is not {message.checksum}")
        return
    try:
        yield from _numbered(message, size_max)
    except CorruptRecordsError as error:
        yield Damage(position, error.message)


def _kafka_message(entry: memoryview, position: int) -> LegacyMessage:
    """The message that fills `entry`, not opened."""
    magic = entry[4]
    if magic > 1:
        raise CorruptRecordsError(f"message of magic {magic}, expected 0 or 1")
    checksum_at = 5 + magic
    if len(entry) < checksum_at + 4:
        raise CorruptRecordsError(f"message of {len(entry)} bytes has no room for its checksum")
    codec = entry[5] & _KAFKA_CODEC_MASK if magic else Codec.NONE
    if codec > Codec.SNAPPY:
        raise CorruptRecordsError(f"message with codec {codec}, expected 0, 1 or 2")
    payload = entry[checksum_at + 4 :]
    checksum = int.from_bytes(entry[checksum_at : checksum_at + 4])
    return LegacyMessage(
        position=position,
        index=0,
        size=len(entry),
        magic=magic,
        codec=Codec(codec),
        checksum=checksum,
        is_valid=zlib.crc32(payload) == checksum,
        payload=bytes(payload),
    )


def _numbered(wrapper: LegacyMessage, size_max: int) -> Iterator[LegacyMessage]:
    """What a compressed message holds, all of it checked before any of it is given."""
    for index, message in enumerate(list(_opened(wrapper, size_max, _NESTING_MAX))):
        yield LegacyMessage(
            position=wrapper.position,
            index=index,
            size=wrapper.size,
            magic=message.magic,
            codec=wrapper.codec,
            checksum=message.checksum,
            is_valid=True,
            payload=message.payload,
        )


def _opened(wrapper: LegacyMessage, size_max: int, nesting_max: int) -> Iterator[LegacyMessage]:
    """The messages in a compressed one. Raises CorruptRecordsError."""
    if not nesting_max:
        raise CorruptRecordsError("compressed messages are nested too deeply")
    content = memoryview(decompress(wrapper.codec, wrapper.payload, size_max=size_max))
    position = 0
    while position < len(content):
        left = len(content) - position
        length = _SIZE.unpack_from(content, position)[0] if left >= _SIZE.size else -1
        if not _KAFKA_SIZE_MIN <= length <= left - _SIZE.size:
            raise CorruptRecordsError(f"torn message at byte {position} inside the compressed one")
        message = _kafka_message(content[position : position + _SIZE.size + length], wrapper.position)
        if not message.is_valid:
            raise CorruptRecordsError(f"checksum of a message at byte {position} inside the compressed one")
        if message.codec is Codec.NONE:
            yield message
        else:
            yield from _opened(message, size_max - len(content), nesting_max - 1)
        position += _SIZE.size + length


# MetaQ


def _metaq_message(
    entry: memoryview, position: int, message_position: int
) -> Iterator[LegacyMessage | Damage]:
    _, checksum, message_id, flag = _METAQ_HEADER.unpack_from(entry)
    body = entry[_METAQ_HEADER.size :]
    actual = zlib.crc32(body)
    valid = checksum in (actual, actual & _METAQ_CHECKSUM_MASK)
    attribute, payload, torn = _split_attribute(body, flag)
    yield LegacyMessage(
        position=message_position,
        index=0,
        size=len(entry),
        magic=0,
        codec=Codec.NONE,
        checksum=checksum,
        is_valid=valid and not torn,
        payload=payload,
        metaq=MetaqFields(message_id=message_id, flag=flag, attribute=attribute),
    )
    if not valid:
        yield Damage(position, f"checksum of message {message_id} is {actual}, not {checksum}")
    elif torn:
        yield Damage(position, f"the attribute of message {message_id} is longer than the message")


def _split_attribute(body: memoryview, flag: int) -> tuple[bytes | None, bytes, bool]:
    """Attribute, payload, and whether the attribute is torn."""
    if not flag & _METAQ_HAS_ATTRIBUTE:
        return None, bytes(body), False
    length = _SIZE.unpack_from(body)[0] if len(body) >= _SIZE.size else -1
    if not 0 <= length <= len(body) - _SIZE.size:
        return None, bytes(body), True
    end = _SIZE.size + length
    return bytes(body[_SIZE.size : end]), bytes(body[end:]), False
