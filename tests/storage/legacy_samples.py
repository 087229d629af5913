"""Files of Kafka 0.7 and MetaQ, built from their layouts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from struct import pack

from broker.records.batch import Codec
from broker.records.compression import compress


def kafka_message(payload: bytes, *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    attributes = bytes([codec]) if magic else b""
    body = bytes([magic]) + attributes + pack(">I", zlib.crc32(payload)) + payload
    return pack(">i", len(body)) + body


def kafka_set(payloads: Sequence[bytes], codec: Codec) -> bytes:
    """One compressed message that holds the others."""
    return kafka_message(compress(codec, b"".join(map(kafka_message, payloads))), codec=codec)


def metaq_message(
    payload: bytes, *, message_id: int = 1, attribute: bytes | None = None, sign: bool = True
) -> bytes:
    """`sign` False: written by a version that clears the checksum's sign bit."""
    body = payload if attribute is None else pack(">i", len(attribute)) + attribute + payload
    checksum = zlib.crc32(body) & (0xFFFFFFFF if sign else 0x7FFFFFFF)
    return pack(">iIqi", len(body), checksum, message_id, int(attribute is not None)) + body


def write_files(directory: Path, files: Sequence[bytes], suffix: str) -> list[Path]:
    """The files of one partition, each named by the position of its first byte."""
    directory.mkdir(parents=True, exist_ok=True)
    position, paths = 0, []
    for data in files:
        width = 20 if suffix == "kafka" else 32
        path = directory / f"{position:0{width}d}.{suffix}"
        path.write_bytes(data)
        paths.append(path)
        position += len(data)
    return paths
