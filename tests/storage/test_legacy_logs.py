"""Logs with messages of magic 0 and 1, as older brokers left them."""

from __future__ import annotations

import pytest

from broker.records.batch import Codec
from broker.records.legacy import from_batches
from broker.records.reader import read_all
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, SIZE_MAX, DiskAt, append, contents, numbered

CONFIG = LogConfig(index_interval_bytes=0)


def legacy_log(magic: int, codec: Codec, *, cut: int = 0) -> DiskAt:
    """A partition directory with five messages sets of four records in one file."""
    source = memory_place().log(CONFIG)
    for index in range(5):
        append(
            source, *numbered(4), timestamps=[NOW_MS + index * 10 + step for step in range(4)], codec=codec
        )
    data = from_batches(source.read(0, max_bytes=1 << 20, up_to=20).read(), magic, size_max=SIZE_MAX)
    place = memory_place()
    place.disk.make_directory(place.path / str(PARTITION))
    place.overwrite(f"{0:020d}.log", bytes(data[: len(data) - cut]))
    return place


def offsets(log: Log, start: int, max_bytes: int = 1 << 20) -> list[int]:
    part = log.read(start, max_bytes=max_bytes, up_to=log.log_end_offset)
    return [record.offset for record in read_all(part.read(), start_offset=start, size_max=SIZE_MAX)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_old_messages_are_recovered_read_and_appended_to(magic: int, codec: Codec, clean: bool) -> None:
    log = legacy_log(magic, codec).log(CONFIG, clean=clean)
    assert log.log_end_offset == 20
    for start in range(20):
        assert offsets(log, start) == list(range(start, 20))
        assert offsets(log, start, max_bytes=1)[0] == start
    assert append(log, b"new") == 20
    assert contents(log)[-2:] == [(19, b"003"), (20, b"new")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_are_found_by_time(codec: Codec) -> None:
    log = legacy_log(1, codec).log(CONFIG)
    for index in range(5):
        for step in range(4):
            timestamp = NOW_MS + index * 10 + step
            assert log.offset_for_timestamp(timestamp) == (index * 4 + step, timestamp)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_torn_old_message_is_cut(magic: int) -> None:
    for cut in (1, 10, 40):
        log = legacy_log(magic, Codec.NONE, cut=cut).log(CONFIG)
        assert log.log_end_offset < 20
        assert offsets(log, 0) == list(range(log.log_end_offset))


def test_damage_in_an_old_message_is_cut() -> None:
    place = legacy_log(1, Codec.GZIP)
    name = f"{0:020d}.log"
    data = bytearray(place.files()[name])
    data[len(data) // 2] ^= 0x40
    place.overwrite(name, bytes(data))
    log = place.log(CONFIG)
    assert log.log_end_offset == 8
    assert append(log, b"x") == 8


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_lies_behind_an_old_message_that_says_a_length_beyond_the_end_is_kept_beside_the_log(
    magic: int, codec: Codec
) -> None:
    """It is no write that did not come to its end."""
    place = legacy_log(magic, codec)
    name = f"{0:020d}.log"
    data = place.files()[name]
    at = 12 + int.from_bytes(data[8:12], "big")
    bad = data[at : at + 8] + b"\x40" + data[at + 9 :]
    place.overwrite(name, data[:at] + bad)
    log = place.log(CONFIG)
    assert log.log_end_offset == (1 if codec is Codec.NONE else 4)
    assert log.recovery_report.is_damaged
    assert place.files()[f"{log.log_end_offset:020d}.log.cut"] == bad
