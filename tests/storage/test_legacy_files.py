"""Files from before Kafka 0.8."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StorageError
from broker.records.batch import Codec
from broker.storage.disk import SystemDisk
from broker.storage.dump_line import Damage
from broker.storage.legacy_directory import check_partition, find_source_partitions
from broker.storage.legacy_files import LegacyFormat, LegacyMessage, TornTail, read_legacy_messages
from broker.storage.memory_disk import MemoryDisk
from tests.storage.legacy_samples import kafka_message, kafka_set, metaq_message, write_files

Read = list[LegacyMessage | Damage]
KAFKA, METAQ = LegacyFormat.KAFKA_0_7, LegacyFormat.METAQ


def read(data: bytes, file_format: LegacyFormat, *, base: int = 0, message_bytes_max: int = 1 << 20) -> Read:
    disk = MemoryDisk()
    disk.make_directory(Path("/d"))
    disk.write_file(Path("/d/f"), data)
    file = disk.open(Path("/d/f"))
    return list(read_legacy_messages(file, file_format, base, message_bytes_max=message_bytes_max))


def sound(found: Read) -> list[LegacyMessage]:
    messages = [message for message in found if isinstance(message, LegacyMessage)]
    assert len(messages) == len(found), found
    assert all(message.is_valid for message in messages)
    return messages


def test_messages_of_kafka_0_7_have_their_byte_positions_as_ids() -> None:
    first, second = kafka_message(b"one", magic=0), kafka_message(b"two", magic=1)
    messages = sound(read(first + second, KAFKA, base=1000))
    assert [(m.position, m.magic, m.payload) for m in messages] == [
        (1000, 0, b"one"),
        (1000 + len(first), 1, b"two"),
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_compressed_messages_of_kafka_0_7_are_opened(codec: Codec) -> None:
    plain = kafka_message(b"before")
    messages = sound(read(plain + kafka_set([b"a", b"b", b""], codec), KAFKA))
    assert [(m.position, m.index, m.payload) for m in messages] == [
        (0, 0, b"before"),
        (len(plain), 0, b"a"),
        (len(plain), 1, b"b"),
        (len(plain), 2, b""),
    ]


def test_messages_of_metaq_carry_id_flag_and_attribute() -> None:
    data = metaq_message(b"plain", message_id=7) + metaq_message(
        b"payload", message_id=8, attribute=b"type=x"
    )
    first, second = sound(read(data, METAQ))
    assert first.metaq is not None
    assert second.metaq is not None
    assert (first.payload, first.metaq.message_id, first.metaq.attribute) == (b"plain", 7, None)
    assert (second.payload, second.metaq.message_id, second.metaq.attribute) == (b"payload", 8, b"type=x")


def test_a_checksum_without_its_sign_bit_is_taken_in_metaq() -> None:
    sound(read(b"".join(metaq_message(b"%d" % n, sign=False) for n in range(20)), METAQ))


@pytest.mark.parametrize(
    ("data", "file_format"),
    [
        (kafka_message(b"one") + kafka_set([b"a", b"bcd"], Codec.GZIP) + kafka_message(b"end"), KAFKA),
        (metaq_message(b"one") + metaq_message(b"two", attribute=b"x") + metaq_message(b"end"), METAQ),
    ],
)
def test_every_truncation_and_every_changed_byte_is_found(data: bytes, file_format: LegacyFormat) -> None:
    whole = read(data, file_format)
    ends = {m.position + m.size for m in sound(whole)} | {0}
    for size in range(len(data)):
        found = read(data[:size], file_format)
        damages = [f for f in found if isinstance(f, Damage)]
        assert bool(damages) == (size not in ends)
        assert all(isinstance(f, TornTail) for f in damages)
    unchecked = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x55
        unchecked += not any(isinstance(f, Damage) for f in read(bytes(changed), file_format))
    # What no checksum covers: magic and unused bits in Kafka, message id and flag in MetaQ.
    assert unchecked <= 12 * 3


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(LegacyFormat))
def test_no_bytes_make_a_reader_fail(data: bytes, file_format: LegacyFormat) -> None:
    read(data, file_format, message_bytes_max=1 << 16)


def test_a_compression_bomb_is_damage() -> None:
    (found,) = read(kafka_set([bytes(1 << 20)], Codec.GZIP), KAFKA, message_bytes_max=1 << 16)
    assert isinstance(found, Damage)


def test_partitions_keep_their_numbers_and_those_of_brokers_are_numbered_through(tmp_path: Path) -> None:
    for name in ("flights-2", "flights-10", "other_0"):
        write_files(tmp_path / "a" / name, [kafka_message(b"x")], "kafka")
    for name in ("1-0", "0-1", "0-0"):
        write_files(tmp_path / "b" / name, [metaq_message(b"x")], "meta")
    disk = SystemDisk()

    def numbers(directory: Path, topic: str | None = None) -> list[tuple[int, str]]:
        return [(p.number, p.path.name) for p in find_source_partitions(disk, directory, topic=topic)]

    assert numbers(tmp_path / "a", "flights") == [(2, "flights-2"), (10, "flights-10")]
    assert numbers(tmp_path / "a", "other") == [(0, "other_0")]
    assert numbers(tmp_path / "a" / "flights-2") == [(2, "flights-2")]
    assert numbers(tmp_path / "b") == [(0, "0-0"), (1, "0-1"), (2, "1-0")]
    with pytest.raises(StorageError, match="several topics"):
        numbers(tmp_path / "a")
    with pytest.raises(StorageError, match="no topic absent"):
        numbers(tmp_path / "a", "absent")
    with pytest.raises(StorageError, match="holds no"):
        numbers(tmp_path)


def test_a_hole_between_files_is_damage_and_a_torn_tail_can_be_accepted(tmp_path: Path) -> None:
    write_files(tmp_path / "whole-0", [kafka_message(b"a"), kafka_message(b"b") + b"\0\0"], "kafka")
    paths = write_files(tmp_path / "hole-0", [kafka_message(b"a")] * 3, "kafka")
    paths[1].unlink()

    def check(name: str, *, accept: bool) -> tuple[int, list[str]]:
        (partition,) = find_source_partitions(SystemDisk(), tmp_path / name)
        tally, damages = check_partition(
            SystemDisk(), partition, accept_torn_tail=accept, on_bytes=lambda _: None
        )
        return tally.messages, [str(damage) for damage in damages]

    messages, (torn,) = check("whole-0", accept=False)
    assert messages == 2
    assert "position 11" in torn
    assert check("whole-0", accept=True) == (2, [])
    _, (hole,) = check("hole-0", accept=True)
    assert "bytes are missing" in hole
