"""Dumps of every kind of file; the expected lines are what Kafka 3.9.1's DumpLogSegments printed for the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StorageError
from broker.groups.log_codec import GroupRecord, OffsetRecord, encode
from broker.groups.offsets import CommittedOffset
from broker.records.batch import Codec, rebase
from broker.records.builder import BatchBuilder
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.message_set import build_message_set
from broker.records.record import Record
from broker.storage.dump import DumpOptions, dump_file
from broker.storage.dump_line import Damage, DumpLine, Finding, LineKind, document_of, text_of
from broker.storage.filenames import FileKind, segment_file_name
from broker.storage.internal_records import decode_offsets_record, decode_transaction_record
from broker.storage.log_dump import LogDumpOptions
from broker.storage.memory_disk import MemoryDisk
from broker.types import TopicPartition
from broker.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from tests.storage.conftest import memory_place
from tests.storage.legacy_samples import kafka_message, kafka_set, metaq_message
from tests.storage.samples import append, numbered

LOG = segment_file_name(0, FileKind.LOG)
DEEP = DumpOptions(log=LogDumpOptions(deep=True, print_data=True))
RecordData = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(
    base_offset: int,
    records: list[RecordData],
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    builder = BatchBuilder(
        codec,
        size_max=1 << 20,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=producer[0] >= 0,
    )
    for index, (key, value, headers) in enumerate(records):
        builder.append(1_700_000_000_000 + base_offset + index, key, value, headers)
    built = builder.build()
    rebase(built, 0, base_offset, 3)
    return bytes(built)


def marker(base_offset: int) -> bytes:
    built = build_marker(
        Marker(type=MarkerType.ABORT, coordinator_epoch=5),
        producer_id=7,
        producer_epoch=1,
        timestamp_ms=1_700_000_000_100,
    )
    rebase(built, 0, base_offset, 3)
    return bytes(built)


PLAIN = batch(0, [(b"k", b"v", [("a", b"1"), ("b", None)]), (None, b"two", []), (b"k2", None, [])])
TRANSACTIONAL = batch(3, [(b"k", b"v", [])] * 4, Codec.ZSTD, (7, 1, 0))
MIXED = PLAIN + TRANSACTIONAL + marker(7)


def dump(files: dict[str, bytes], name: str, options: DumpOptions = DumpOptions()) -> list[Finding]:  # noqa: B008
    disk = MemoryDisk()
    disk.make_directory(Path("/d"))
    for other, data in files.items():
        disk.write_file(Path("/d") / other, data)
    return list(dump_file(disk, Path("/d") / name, options))


def texts(found: list[Finding]) -> list[str]:
    assert damages(found) == []
    return [text_of(line) for line in found if isinstance(line, DumpLine)]


def damages(found: list[Finding]) -> list[Damage]:
    return [damage for damage in found if isinstance(damage, Damage)]


def test_batches_are_shown_as_kafka_shows_them() -> None:
    note, plain, compressed, control = texts(dump({LOG: MIXED}, LOG))
    assert note == "Log starting offset: 0"
    assert plain == (
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000002 size: 96 magic: 2 "
        "compresscodec: none crc: 2279122930 isvalid: true"
    )
    assert compressed.startswith(
        "baseOffset: 3 lastOffset: 6 count: 4 baseSequence: 0 lastSequence: 3 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 96 CreateTime: 1700000000006 size: "
    )
    assert "compresscodec: zstd" in compressed
    assert "isTransactional: true isControl: true" in control


def test_records_show_every_field() -> None:
    lines = texts(dump({LOG: MIXED}, LOG, DEEP))
    assert lines[2] == (
        "| offset: 0 position: 0 CreateTime: 1700000000000 isvalid: true keysize: 1 valuesize: 1 magic: 2 "
        "compresscodec: none producerId: -1 producerEpoch: -1 sequence: -1 isTransactional: false "
        "headerKeys: [a,b] key: k payload: v"
    )
    assert lines[3].endswith(
        "keysize: -1 valuesize: 3 magic: 2 compresscodec: none producerId: -1 producerEpoch: -1 "
        "sequence: -1 isTransactional: false headerKeys: [] payload: two"
    )
    assert lines[4].endswith("headerKeys: [] key: k2")
    assert [line.split(" sequence: ")[1][0] for line in lines[6:10]] == ["0", "1", "2", "3"]
    assert lines[-1].endswith("endTxnMarker: ABORT coordinatorEpoch: 5")


def test_without_print_data_no_key_or_payload_is_shown() -> None:
    lines = texts(dump({LOG: PLAIN}, LOG, DumpOptions(log=LogDumpOptions(deep=True))))
    assert len(lines) == 5
    assert not any(" key: " in line or " payload: " in line for line in lines)


def test_documents_carry_the_same_fields() -> None:
    _, line, record = (document_of(f) for f in dump({LOG: PLAIN}, LOG, DEEP)[:3] if isinstance(f, DumpLine))
    assert (line["kind"], line["baseOffset"], line["deleteHorizonMs"], line["isvalid"]) == (
        "batch",
        0,
        None,
        True,
    )
    assert (record["kind"], record["headerKeys"], record["key"], record["payload"]) == (
        "record",
        ("a", "b"),
        "k",
        "v",
    )


def test_stored_bytes_cannot_steer_a_terminal() -> None:
    (line,) = texts(dump({LOG: batch(0, [(None, b"\x1b[2J\n\xff", [])])}, LOG, DEEP))[2:]
    assert line.endswith("payload: \\x1b[2J\\x0a\\xff")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize(("magic", "time"), [(0, "NoTimestampType: -1"), (1, "CreateTime: 1700000000002")])
def test_old_messages_are_shown_and_opened(magic: int, time: str, codec: Codec) -> None:
    records = [Record(n, 1_700_000_000_000 + n, 0, b"k%d" % n, b"vvv", ()) for n in range(3)]
    lines = texts(dump({LOG: build_message_set(records, magic, codec)}, LOG, DEEP))
    entries = [line for line in lines if line.startswith("offset: ")]
    assert len(entries) == (3 if codec is Codec.NONE else 1)
    assert f"magic: {magic} compresscodec: {codec.name.lower()}" in entries[-1]
    assert time in entries[-1]
    inner = [line for line in lines if line.startswith("| ")]
    assert [line.split()[2] for line in inner] == ["0", "1", "2"]
    assert inner[2].endswith("key: k2 payload: vvv")


def test_every_changed_byte_is_survived_and_named_by_its_position() -> None:
    covered = set(range(17, len(PLAIN))) - set(range(12, 16))
    for at in range(len(MIXED)):
        changed = bytearray(MIXED)
        changed[at] ^= 0x55
        found = damages(dump({LOG: bytes(changed)}, LOG, DEEP))
        if at in covered:
            assert found[0].position == 0, at


def test_every_truncation_is_survived_and_named_by_its_position() -> None:
    ends = {0, len(PLAIN), len(PLAIN) + len(TRANSACTIONAL)}
    for size in range(len(MIXED)):
        found = damages(dump({LOG: MIXED[:size]}, LOG, DEEP))
        assert [damage.position for damage in found] == (
            [] if size in ends else [max(end for end in ends if end < size)]
        )


def test_offsets_that_go_back_are_damage() -> None:
    (damage,) = damages(dump({LOG: TRANSACTIONAL + PLAIN}, LOG))
    assert damage.position == len(TRANSACTIONAL)


def test_an_entry_over_the_bound_is_passed_over() -> None:
    options = DumpOptions(log=LogDumpOptions(entry_bytes_max=98))
    (damage,) = damages(dump({LOG: MIXED}, LOG, options))
    assert damage.position == len(PLAIN)
    assert "too large" in damage.message


def written() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The files of a log of several segments, as storage writes them."""
    place = memory_place()
    log = place.log()
    for index in range(40):
        append(log, *numbered(3, size=40), now_ms=index, timestamps=[index * 10 + n for n in range(3)])
    log.close()
    files = place.files()
    for name in files:
        yield name, files


def test_indexes_that_storage_writes_fit_their_logs() -> None:
    shown = {name: texts(dump(files, name)) for name, files in written() if "index" in name}
    assert len(shown) > 4
    assert sum(map(len, shown.values())) > 10


@pytest.mark.parametrize("kind", [FileKind.OFFSET_INDEX, FileKind.TIME_INDEX])
def test_an_index_entry_that_lies_is_found(kind: FileKind) -> None:
    name = segment_file_name(0, kind)
    files = next(files for other, files in written() if other == name)
    # A changed offset may still be one of the batch that is pointed to: changed are positions and timestamps.
    size, lies = (8, range(4, 8)) if kind is FileKind.OFFSET_INDEX else (12, range(8))
    for at in range(len(files[name])):
        changed = bytearray(files[name])
        changed[at] ^= 0x01
        found = damages(dump({**files, name: bytes(changed)}, name, DumpOptions(verify_only=True)))
        assert found or at % size not in lies, at
    (torn,) = damages(dump({**files, name: files[name] + b"\x01"}, name, DumpOptions(verify_only=True)))
    assert torn.position == len(files[name])


def test_what_kafka_preallocates_is_no_entry() -> None:
    name = segment_file_name(0, FileKind.OFFSET_INDEX)
    files = next(files for other, files in written() if other == name)
    padded = {**files, name: files[name] + bytes(8 * 1000)}
    assert dump(padded, name) == dump(files, name)


def test_an_index_without_its_log_is_shown_and_said_to_be_unverified() -> None:
    name = segment_file_name(5, FileKind.OFFSET_INDEX)
    line, damage = dump({name: pack(">ii", 3, 96)}, name)
    assert isinstance(line, DumpLine)
    assert text_of(line) == "offset: 8 position: 96"
    assert isinstance(damage, Damage)
    assert texts(dump({name: pack(">ii", 3, 96)}, name, DumpOptions(sanity_only=True))) == [
        "sanity check: passed"
    ]


def test_aborted_transactions_are_shown() -> None:
    name = segment_file_name(0, FileKind.TRANSACTION_INDEX)
    entry = pack(">hqqqq", 0, 7, 3, 7, 8)
    assert texts(dump({name: entry}, name)) == [
        "version: 0 producerId: 7 firstOffset: 3 lastOffset: 7 lastStableOffset: 8"
    ]
    assert damages(dump({name: entry * 2}, name))[0].position == len(entry)
    assert damages(dump({name: entry[:-1]}, name))[0].position == 0


def test_producer_snapshots_are_shown_and_checked() -> None:
    name = segment_file_name(8, FileKind.PRODUCER_SNAPSHOT)
    entries = pack(">qhiqiqiq", 7, 1, 3, 6, 3, 1_700_000_000_003, 5, -1)
    entries += pack(">qhiqiqiq", 9, 0, -1, -1, 0, 1_700_000_000_003, -1, 8)
    counted = pack(">i", 2) + entries
    data = pack(">hI", 1, crc32c(counted)) + counted
    assert texts(dump({name: data}, name)) == [
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000003 firstSequence: 0 lastSequence: 3 lastOffset: 6 offsetDelta: 3 "
        "timestamp: 1700000000003",
        "producerId: 9 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[8] "
        "lastTimestamp: 1700000000003",
    ]
    for at in range(len(data)):
        assert damages(dump({name: data[:at]}, name)), at
        assert damages(dump({name: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]}, name)), at


def test_checkpoints_are_shown_and_checked() -> None:
    epochs = {"leader-epoch-checkpoint": b"0\n2\n0 0\n3 17\n"}
    assert texts(dump(epochs, *epochs)) == ["epoch: 0 startOffset: 0", "epoch: 3 startOffset: 17"]
    offsets = {"recovery-point-offset-checkpoint": b"0\n1\nflights 2 17\n"}
    assert texts(dump(offsets, *offsets)) == ["topic: flights partition: 2 offset: 17"]
    assert damages(dump({"leader-epoch-checkpoint": b"0\n2\n3 0\n1 17\n"}, "leader-epoch-checkpoint"))
    (damage,) = damages(
        dump({"replication-offset-checkpoint": b"0\n1\nx\n"}, "replication-offset-checkpoint")
    )
    assert ":3: malformed entry" in damage.message


def test_committed_offsets_are_decoded() -> None:
    committed = CommittedOffset(
        offset=4, leader_epoch=-1, metadata="", commit_timestamp_ms=1_795_263_565_310, expire_timestamp_ms=-1
    )
    partition = TopicPartition("flights", 0)
    records: list[RecordData] = [
        (*encode(OffsetRecord(group_id="g", partition=partition, committed=committed)), []),
        (*encode(GroupRecord(group_id="g", metadata=None)), []),
        (b"\x00\x01garbled", b"?", []),
    ]
    options = DumpOptions(log=LogDumpOptions(print_data=True, decoder=decode_offsets_record))
    lines = texts(dump({LOG: batch(0, records)}, LOG, options))
    assert lines[2].endswith(
        'key: {"type":"1","data":{"group":"g","topic":"flights","partition":0}} '
        'payload: {"version":"3","data":{"offset":4,"leaderEpoch":-1,"metadata":"",'
        '"commitTimestamp":1795263565310}}'
    )
    assert lines[3].endswith('key: {"type":"2","data":{"group":"g"}} payload: <DELETE>')
    assert lines[4].endswith("key: \\x00\\x01garbled payload: ?")


def test_transactions_are_decoded() -> None:
    value = TransactionLogValue(producer_id=7, transaction_status=1, transaction_timeout_ms=60_000)
    key, payload = decode_transaction_record(
        TransactionLogKey(transactional_id="t").encode_with_version(0), value.encode_with_version(0)
    )
    assert key == {"type": "0", "data": {"transactionalId": "t"}}
    assert isinstance(payload, dict)
    assert payload["data"]["transactionStatus"] == "Ongoing"


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(StorageError, match="has the name of no file"):
        dump({"notes.txt": b""}, "notes.txt")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 9), st.binary(max_size=60), st.binary(max_size=60))
def test_no_record_of_an_internal_topic_makes_its_decoder_fail(
    version: int, key: bytes, value: bytes
) -> None:
    for decode in (decode_offsets_record, decode_transaction_record):
        shown_key, shown_value = decode(version.to_bytes(2) + key, value)
        text_of(DumpLine(LineKind.RECORD, {"key": shown_key, "payload": shown_value}))


def test_a_dump_can_be_bounded_and_reduced_to_data() -> None:
    bounded = texts(dump({LOG: MIXED}, LOG, DumpOptions(log=LogDumpOptions(bytes_max=len(PLAIN) + 1))))
    assert len(bounded) == 2
    bare = LogDumpOptions(print_data=True, record_metadata=False)
    assert texts(dump({LOG: PLAIN}, LOG, DumpOptions(log=bare)))[2:4] == [
        "| key: k payload: v",
        "| payload: two",
    ]


def test_files_of_a_compaction_are_read_beside_each_other() -> None:
    place = next(files for _, files in written())
    swaps = {f"{name}.swap": data for name, data in place.items() if name.startswith(f"{0:020d}.")}
    name = segment_file_name(0, FileKind.OFFSET_INDEX) + ".swap"
    assert len(texts(dump(swaps, name))) > 1


def test_files_of_kafka_0_7_and_metaq_are_shown() -> None:
    name = f"{1000:020d}.kafka"
    first, second = kafka_message(b"one"), kafka_set([b"a", b"b"], Codec.GZIP)
    lines = texts(dump({name: first + second}, name, DEEP))
    assert lines[0] == "Log starting offset: 1000"
    assert lines[1].startswith(
        "offset: 1000 index: 0 size: 13 payloadsize: 3 magic: 1 compresscodec: none crc: "
    )
    assert lines[1].endswith("isvalid: true payload: one")
    assert [line.split(" size")[0] for line in lines[2:]] == [
        "offset: 1013 index: 0",
        "offset: 1013 index: 1",
    ]
    name = f"{0:032d}.meta"
    (line,) = texts(dump({name: metaq_message(b"one", message_id=5, attribute=b"x")}, name, DEEP))[1:]
    assert line.startswith(
        "offset: 0 index: 0 size: 28 payloadsize: 3 messageId: 5 flag: 1 attribute: x crc: "
    )
    (damage,) = damages(dump({name: metaq_message(b"one")[:-1]}, name))
    assert damage.position == 0


OLD = [build_message_set([Record(n, 0, 0, None, b"v%d" % n, ())], 1, Codec.NONE) for n in range(6)]


@pytest.mark.parametrize(
    ("entries", "at"),
    [([PLAIN, TRANSACTIONAL, marker(7), batch(8, [(None, b"", [])])], 0), (OLD, 0), (OLD, 3)],
)
def test_sound_entries_within_the_length_that_a_damaged_one_says_are_shown(
    entries: list[bytes], at: int
) -> None:
    before, damaged, behind = b"".join(entries[:at]), entries[at], b"".join(entries[at + 1 :])
    for more in range(1, len(behind) + 1):
        length = int.from_bytes(damaged[8:12], "big") + more
        found = dump({LOG: before + damaged[:8] + length.to_bytes(4, "big") + damaged[12:] + behind}, LOG)
        assert [damage.position for damage in damages(found)] == [len(before)], more
        assert sum(isinstance(each, DumpLine) for each in found[1:]) == len(entries) - 1, more


@pytest.mark.timeout(60)
def test_numbers_behind_damage_are_not_looked_into_one_by_one() -> None:
    """In each an old message could begin."""
    numbers = b"".join(number.to_bytes(8, "big") for number in range(1 << 18))
    assert len(damages(dump({LOG: b"\xff" * 40 + numbers + OLD[0]}, LOG))) == 1
