"""Everything that decodes bytes of peers and of disks, each as one function of bytes.

A target may refuse with the errors that its decoder declares and with nothing else, may take no more memory
than its bound, and ends. `make test` gives every target a few inputs, `make fuzz` lets a fuzzer that sees
which branches are taken look for more.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

from crc32c import crc32c

from broker.config_loading import load_config
from broker.coordination import znodes
from broker.errors import (
    ConfigurationError,
    CoordinationError,
    CorruptRecordsError,
    ProtocolError,
    StorageError,
    WireError,
)
from broker.groups.log_codec import decode, read_log
from broker.records.batch import HEADER_SIZE, Codec, read_header
from broker.records.compression import compress, decompress, decompress_broken_lz4
from broker.records.control import read_marker
from broker.records.message_set import read_message
from broker.records.reader import iterate_entries, read_batches, read_columns
from broker.records.record import parse_records
from broker.records.validation import RecordRules, validate_header, validate_records
from broker.storage.archive import ArchiveError, Manifest
from broker.storage.checkpoints import (
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from broker.storage.closed_logs import read_closed_logs
from broker.storage.disk import Disk
from broker.storage.dump import DumpOptions, dump_file
from broker.storage.dump_line import DumpLine, text_of
from broker.storage.internal_records import decode_offsets_record, decode_transaction_record
from broker.storage.log_config import LogConfig
from broker.storage.log_dump import LogDumpOptions
from broker.storage.log_opening import open_log
from broker.storage.memory_disk import MemoryDisk
from broker.storage.producers import ProducerStates
from broker.types import TopicPartition
from broker.wire.header import decode_request_header, decode_response
from broker.wire.registry import APIS
from mirrormaker.topology.loader import load_topology
from tests.captured import State, unpack
from tests.storage.samples import ManualClock
from tests.wire.samples import MESSAGES, sample

SIZE_MAX = 1 << 20
"""Bound of what anything may decompress to here."""
PEAK_BYTES = 64 << 20
"""What one input may take at its peak: records of a full megabyte in Python's objects."""
_PLACE = Path("/fuzzed/flights-0")
_NAMES = {
    "log": f"{0:020d}.log",
    "index": f"{0:020d}.index",
    "timeindex": f"{0:020d}.timeindex",
    "txnindex": f"{0:020d}.txnindex",
    "snapshot": f"{0:020d}.snapshot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder. `seeds` are inputs that it takes."""

    name: str
    decode: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Iterable[bytes]]

    def run(self, data: bytes) -> None:
        """Decode; a refusal is as good as a result."""
        with suppress(*self.refusals):
            self.decode(data)


# The wire


def _decode_message(data: bytes) -> None:
    """The first two bytes choose message and version."""
    if len(data) < 2:
        return
    message = MESSAGES[data[0] % len(MESSAGES)]
    versions = range(message.min_version, message.max_version + 1)
    value = message.decode(data[2:], versions[data[1] % len(versions)])
    value.encode(versions[data[1] % len(versions)])


def _message_seeds() -> Iterator[bytes]:
    random = Random(1)
    for number, message in enumerate(MESSAGES):
        for index, version in enumerate(range(message.min_version, message.max_version + 1)):
            yield bytes((number, index)) + sample(message, version, random).encode(version)


def _decode_frame(data: bytes) -> None:
    """A request as a node gets it, and as an answer to any."""
    if data:
        apis = list(APIS.values())
        api = apis[data[0] % len(apis)]
        with suppress(WireError):
            decode_response(api, api.max_version, data[1:])
    frame = data[1:]
    header = decode_request_header(frame)
    APIS[header.api_key].request.decode(frame, header.api_version, header.body_position)


# Records


def _decode_records(data: bytes) -> None:
    """Batches and messages as they stand; then again with checksums that hold."""
    for mended in (data, _mended(data)):
        with suppress(CorruptRecordsError):
            list(read_batches(mended, size_max=SIZE_MAX))
        list(read_batches(mended, size_max=SIZE_MAX, check_crc=False))


def _decode_batch(data: bytes) -> None:
    """One batch of magic 2 in every way that there is to read one."""
    mended = _mended(data)
    header = read_header(mended)
    ways: tuple[Callable[[], object], ...] = (
        lambda: list(parse_records(mended[HEADER_SIZE:], header)),
        lambda: read_columns(mended, header, size_max=SIZE_MAX),
        lambda: read_marker(mended, header),
        lambda: validate_header(header),
        lambda: validate_records(mended, header, RecordRules(size_max=SIZE_MAX, key_required=True)),
    )
    for way in ways:
        with suppress(CorruptRecordsError, ProtocolError):
            way()


def _decode_old_message(data: bytes) -> None:
    read_message(_mended(data), size_max=SIZE_MAX, check_crc=False)


def _mended(data: bytes) -> bytes:
    """The entries of a log with their checksums made to hold, so that what lies behind them is reached."""
    mended = bytearray(data)
    with suppress(CorruptRecordsError):
        for position, size in iterate_entries(mended):
            _mend(memoryview(mended)[position : position + size])
    return bytes(mended)


def _mend(entry: memoryview) -> None:
    if entry[16] == 2 and len(entry) >= HEADER_SIZE:
        entry[17:21] = pack(">I", crc32c(entry[21:]))
    elif entry[16] < 2:
        entry[12:16] = pack(">I", zlib.crc32(entry[16:]))


def _decode_group_log(data: bytes) -> None:
    list(read_log(_mended(data), batch_bytes_max=SIZE_MAX))


def _decode_pair(data: bytes) -> None:
    """A key and a value of the internal topics; the first byte is the key's size."""
    if not data:
        return
    key, value = data[1 : 1 + data[0]], data[1 + data[0] :]
    decode_offsets_record(key, value)
    decode_transaction_record(key, value)
    decode(key, value)


# Files


def _decode_file(name: str, data: bytes) -> None:
    """A file of a partition as the tools read it: whatever is in it, that is no error."""
    disk = MemoryDisk()
    disk.make_directory(_PLACE)
    disk.write_file(_PLACE / name, data)
    options = DumpOptions(log=LogDumpOptions(deep=True, print_data=True, entry_bytes_max=SIZE_MAX))
    for found in dump_file(disk, _PLACE / name, options):
        if isinstance(found, DumpLine):
            text_of(found)


def _open_log(name: str, data: bytes) -> None:
    """A partition, one file of which holds anything, as a node opens it: after a crash, then once more."""
    disk = MemoryDisk()
    disk.make_directory(_PLACE)
    for kind, content in _partition().items():
        disk.write_file(_PLACE / kind, content)
    disk.write_file(_PLACE / name, _mended(data) if name.endswith(".log") else data)
    for clean in (True, False, True):
        partition = TopicPartition("flights", 0)
        log = open_log(disk, _PLACE, LogConfig(), ManualClock(), topic_partition=partition, clean=clean)
        if log.log_start_offset < log.log_end_offset:
            log.read(log.log_start_offset, max_bytes=SIZE_MAX, up_to=log.log_end_offset)
        log.offset_for_timestamp(0)
        log.close()


@cache
def _partition() -> dict[str, bytes]:
    """The files of a small partition with a transaction, as Kafka wrote them."""
    files = _captured("3.9.1")
    prefix = f"transactional-0/{0:020d}."
    return {name.rpartition("/")[2]: data for name, data in files.items() if name.startswith(prefix)} | {
        "leader-epoch-checkpoint": files["transactional-0/leader-epoch-checkpoint"]
    }


@cache
def _captured(version: str) -> dict[str, bytes]:
    """The files of a captured data directory by their paths in it."""
    with tempfile.TemporaryDirectory() as directory:
        captured = unpack(version, State.CLEAN, Path(directory))
        return {
            str(path.relative_to(captured.root)): path.read_bytes()
            for path in sorted(captured.root.rglob("*"))
            if path.is_file()
        }


def _captured_files(ending: str, *versions: str) -> list[bytes]:
    return [
        data
        for version in versions
        for name, data in _captured(version).items()
        if name.endswith(ending) and data
    ]


def _decode_text(read: Callable[[Disk, Path], object], data: bytes) -> None:
    disk = MemoryDisk()
    disk.make_directory(_PLACE)
    disk.write_file(_PLACE / "text", data)
    read(disk, _PLACE / "text")


def _decode_snapshot(data: bytes) -> None:
    """A snapshot with the checksum that it has, and with the right one."""
    mended = data[:2] + pack(">I", crc32c(data[6:])) + data[6:]
    for content in (data, mended):
        with suppress(CorruptRecordsError):
            ProducerStates().load(content)


# Settings and ZooKeeper


def _decode_settings(read: Callable[[Path], object], ending: str, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=ending) as file:
        file.write(data)
        file.flush()
        read(Path(file.name))


_ZNODES: tuple[Any, ...] = tuple(
    value for name, value in sorted(vars(znodes).items()) if name.endswith("Znode")
)


def _decode_znode(data: bytes) -> None:
    if data:
        _ZNODES[data[0] % len(_ZNODES)].decode(data[1:], "/path")


def _znode_seeds() -> Iterator[bytes]:
    documents = (
        b'{"version":5,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"timestamp":"1",'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{},"rack":null}',
        b'{"version":3,"topic_id":"-wyKVnqxTTyaTzwrGgABAg","partitions":{"0":[1,2]},"adding_replicas":{},'
        b'"removing_replicas":{}}',
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
        b'{"version":1,"brokerid":1,"timestamp":"1"}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        b'{"version":1,"config":{"retention.ms":"1"}}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
        b"7",
    )
    for number in range(len(_ZNODES)):
        for document in documents:
            yield bytes((number,)) + document


_SETTINGS = b"""broker.id: 1
listeners: PLAINTEXT://127.0.0.1:9092
zookeeper.connect: h:2181/k
log.dirs: /d
"""
_TOPOLOGY = b"""clusters:
  a: {bootstrap: ["h:9092"]}
  b: {embedded: {brokers: 1, port: 19092}}
routes:
  - {from: a, to: b, topics: {include: ["x.*"], name: "{cluster}.{topic}"}, delivery: at_least_once}
data_dir: ./data
"""
_MANIFEST = b"""{"cluster_id": "c", "topic": "t", "topic_id": "00000000-0000-0000-0000-000000000001",
"partition": 0, "base_offset": 0, "next_offset": 9, "size": 700, "crc32c": 1, "max_timestamp_ms": 2,
"archived_ms": 3, "broker_id": 1, "aborted": [[1, 0, 8, 9]]}"""
_LEGACY = pack(">iBBI", 11, 1, 0, zlib.crc32(b"hello")) + b"hello"


def _pair_seeds() -> Iterator[bytes]:
    for data in _captured_files(".log", "3.9.1"):
        for batch in read_batches(data, size_max=SIZE_MAX):
            for record in batch.records[:1]:
                key = bytes(record.key or b"")[:255]
                yield bytes((len(key),)) + key + bytes(record.value or b"")


def _compressed(codec: Codec) -> list[bytes]:
    return [compress(codec, content) for content in (b"", b"x" * 300, bytes(range(256)) * 20)]


def _entries() -> list[bytes]:
    """Single entries of every magic and codec."""
    return [
        log[position : position + size]
        for log in _captured_files(".log", "3.9.1", "2.8.2", "0.10.2.2", "0.8.2.2")
        for position, size in iterate_entries(log)
    ]


def _batches() -> list[bytes]:
    return [entry for entry in _entries() if entry[16] == 2]


def _old_messages() -> list[bytes]:
    return [entry for entry in _entries() if entry[16] < 2]


_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_TEXTS: dict[str, tuple[Callable[[Disk, Path], object], Callable[[], list[bytes]]]] = {
    "offsets": (read_offsets, partial(_captured_files, "recovery-point-offset-checkpoint", "3.9.1")),
    "leader epochs": (read_leader_epochs, partial(_captured_files, "leader-epoch-checkpoint", "3.9.1")),
    "topic id": (read_partition_metadata, partial(_captured_files, "partition.metadata", "3.9.1")),
    "owner": (read_meta_properties, partial(_captured_files, "meta.properties", "3.9.1")),
    "closed logs": (read_closed_logs, lambda: [b"0\n1\nflights 0 9 0 700 8 12 1 2 3 1 0\n"]),
}

TARGETS: tuple[Target, ...] = (
    Target(name="messages", decode=_decode_message, refusals=(WireError,), seeds=_message_seeds),
    Target(
        name="frames",
        decode=_decode_frame,
        refusals=(WireError,),
        seeds=lambda: [b"\0" + pack(">hhihc", 18, 0, 7, 1, b"c"), b"\3" + pack(">hhihi", 3, 1, 7, -1, -1)],
    ),
    Target(
        name="records",
        decode=_decode_records,
        refusals=(CorruptRecordsError,),
        seeds=partial(_captured_files, ".log", "3.9.1", "2.8.2", "0.8.2.2"),
    ),
    Target(name="batch", decode=_decode_batch, refusals=(CorruptRecordsError,), seeds=_batches),
    Target(
        name="old message", decode=_decode_old_message, refusals=(CorruptRecordsError,), seeds=_old_messages
    ),
    *(
        Target(
            name=codec.name.lower(),
            decode=partial(decompress, codec, size_max=SIZE_MAX),
            refusals=(CorruptRecordsError,),
            seeds=partial(_compressed, codec),
        )
        for codec in _CODECS
    ),
    Target(
        name="broken lz4",
        decode=partial(decompress_broken_lz4, size_max=SIZE_MAX),
        refusals=(CorruptRecordsError,),
        seeds=partial(_compressed, Codec.LZ4),
    ),
    Target(
        name="group log",
        decode=_decode_group_log,
        refusals=(CorruptRecordsError,),
        seeds=partial(_captured_files, ".log", "3.9.1"),
    ),
    Target(name="internal records", decode=_decode_pair, refusals=(WireError,), seeds=_pair_seeds),
    *(
        Target(
            name=f"dump of {kind}",
            decode=partial(_decode_file, name),
            refusals=(),
            seeds=partial(_captured_files, f".{kind}", "3.9.1", "0.8.2.2"),
        )
        for kind, name in _NAMES.items()
    ),
    *(
        Target(
            name=f"dump of {kind}",
            decode=partial(_decode_file, name),
            refusals=(),
            seeds=lambda: [_LEGACY * 3],
        )
        for kind, name in (("Kafka 0.7", f"{0:020d}.kafka"), ("MetaQ", f"{0:032d}.meta"))
    ),
    *(
        Target(
            name=f"log opened on {kind}",
            decode=partial(_open_log, name),
            refusals=(StorageError, CorruptRecordsError),
            seeds=partial(_captured_files, f".{kind}", "3.9.1"),
        )
        for kind, name in _NAMES.items()
    ),
    Target(
        name="log opened on leader epochs",
        decode=partial(_open_log, "leader-epoch-checkpoint"),
        refusals=(StorageError, CorruptRecordsError),
        seeds=partial(_captured_files, "leader-epoch-checkpoint", "3.9.1"),
    ),
    Target(
        name="producer snapshot",
        decode=_decode_snapshot,
        refusals=(CorruptRecordsError,),
        seeds=partial(_captured_files, ".snapshot", "3.9.1", "2.8.2"),
    ),
    *(
        Target(name=name, decode=partial(_decode_text, read), refusals=(StorageError,), seeds=seeds)
        for name, (read, seeds) in _TEXTS.items()
    ),
    Target(
        name="manifest of an archive",
        decode=lambda data: Manifest.decode(data, "place"),
        refusals=(ArchiveError,),
        seeds=lambda: [_MANIFEST],
    ),
    Target(name="znodes", decode=_decode_znode, refusals=(CoordinationError,), seeds=_znode_seeds),
    *(
        Target(
            name=f"settings in {ending}",
            decode=partial(_decode_settings, load_config, ending),
            refusals=(ConfigurationError,),
            seeds=lambda: [_SETTINGS, _SETTINGS.replace(b": ", b"=")],
        )
        for ending in (".yaml", ".properties")
    ),
    Target(
        name="topology",
        decode=partial(_decode_settings, load_topology, ".yaml"),
        refusals=(ConfigurationError,),
        seeds=lambda: [_TOPOLOGY],
    ),
)
BY_NAME = {target.name: target for target in TARGETS}
