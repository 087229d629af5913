from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pyarrow
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import Codec
from broker.records.compression import (
    LEVELS,
    compress,
    compress_broken_lz4,
    decompress,
    decompress_broken_lz4,
)
from tests.records.samples import CODECS, SIZE_MAX

TEXT = b"EWR LGA JFK " * 20_000
MIB = 1 << 20
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
CONTENT = st.binary(max_size=2000) | st.builds(
    lambda piece, count: piece * count, st.binary(max_size=50), st.integers(0, 3000)
)


@given(CODECS, CONTENT)
def test_every_codec_returns_what_it_was_given(codec: Codec, content: bytes) -> None:
    assert decompress(codec, compress(codec, content), size_max=len(content)) == content


@pytest.mark.parametrize("codec", Codec)
def test_views_are_read_as_bytes_are(codec: Codec) -> None:
    compressed = b"xx" + compress(codec, memoryview(bytearray(TEXT))[5:]) + b"yy"
    assert decompress(codec, memoryview(compressed)[2:-2], size_max=SIZE_MAX) == TEXT[5:]


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_bound_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecordsError):
        decompress(codec, compress(codec, TEXT), size_max=len(TEXT) - 1)


@pytest.mark.parametrize("codec", Codec)
def test_a_used_up_bound_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecordsError):
        decompress(codec, compress(codec, TEXT), size_max=-1)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_at_both_ends_work_and_others_are_refused(codec: Codec) -> None:
    for level in (LEVELS[codec][0], LEVELS[codec][-1]):
        assert decompress(codec, compress(codec, TEXT[:5000], level=level), size_max=SIZE_MAX) == TEXT[:5000]
    for level in (LEVELS[codec][0] - 1, LEVELS[codec][-1] + 1):
        with pytest.raises(ValueError, match="level"):
            compress(codec, TEXT, level=level)


def test_codecs_without_levels_refuse_one() -> None:
    with pytest.raises(ValueError, match="snappy has no level 1"):
        compress(Codec.SNAPPY, TEXT, level=1)


def test_snappy_is_written_in_xerial_frames_of_32_kib() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    length = int.from_bytes(framed[16:20], "big")
    assert snappy.uncompress(framed[20 : 20 + length]) == TEXT[: 32 * 1024]


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT), size_max=SIZE_MAX) == TEXT


def test_xerial_streams_joined_end_to_end_are_read() -> None:
    assert decompress(
        Codec.SNAPPY, compress(Codec.SNAPPY, b"one") + compress(Codec.SNAPPY, b"two"), size_max=6
    ) == (b"onetwo")


def test_xerial_versions_in_the_wrong_byte_order_are_read() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert decompress(Codec.SNAPPY, framed[:8] + b"\1\0\0\0\1\0\0\0" + framed[16:], size_max=SIZE_MAX) == TEXT


@pytest.mark.parametrize("joined", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_frames_joined_end_to_end_are_read(joined: Codec) -> None:
    assert (
        decompress(joined, compress(joined, TEXT) + compress(joined, b"!"), size_max=SIZE_MAX) == TEXT + b"!"
    )


def test_endless_gzip_members_are_refused() -> None:
    with pytest.raises(CorruptRecordsError, match="members"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 1000, size_max=SIZE_MAX)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_garbage_after_the_end_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecordsError):
        decompress(codec, compress(codec, TEXT) + b"garbage", size_max=SIZE_MAX)


@pytest.mark.parametrize(("codec", "name"), [(Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd"), (Codec.GZIP, "gzip")])
def test_another_implementation_reads_and_writes_the_same_format(codec: Codec, name: str) -> None:
    ours = compress(codec, TEXT)
    assert bytes(pyarrow.decompress(ours, decompressed_size=len(TEXT), codec=name)) == TEXT
    theirs = bytes(pyarrow.compress(TEXT, codec=name))
    assert decompress(codec, theirs, size_max=len(TEXT)) == TEXT


def test_gzip_does_not_depend_on_the_time() -> None:
    assert compress(Codec.GZIP, TEXT)[4:8] == bytes(4)
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


def test_lz4_blocks_are_independent_as_java_clients_demand() -> None:
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


@given(st.sampled_from(COMPRESSING), st.data())
@settings(max_examples=200)
def test_damage_is_refused_or_stays_within_the_bound(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, TEXT[:3000] + bytes(range(256))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordsError):
        assert len(decompress(codec, damaged, size_max=5000)) <= 5000


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_is_refused_or_a_prefix(codec: Codec) -> None:
    content = TEXT[:400] + bytes(range(256))
    compressed = compress(codec, content)
    for size in range(len(compressed)):
        try:
            shortened = decompress(codec, compressed[:size], size_max=SIZE_MAX)
        except CorruptRecordsError:
            continue
        assert codec is Codec.SNAPPY  # Xerial frames say nothing about their number
        assert content.startswith(shortened)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
@settings(max_examples=200)
def test_garbage_is_refused_or_stays_within_the_bound(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(CorruptRecordsError):
        assert len(decompress(codec, garbage, size_max=1000)) <= 1000


def gzip_bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(compressor.compress(bytes(MIB)) for _ in range(size // MIB)) + compressor.flush()


def xerial_bomb(size: int) -> bytes:
    block = snappy.compress(bytes(32 * 1024))
    return compress(Codec.SNAPPY, b"") + (len(block).to_bytes(4, "big") + block) * (size // (32 * 1024))


def lz4_bomb(size: int) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, block_linked=False)
    for _ in range(size // MIB):
        compressor.compress(bytes(MIB))
    return bytes(compressor.finish())


def zstd_bomb(size: int) -> bytes:
    """Repeat blocks, 4 bytes for 128 KiB each, in a frame that asks for a window of 128 MiB."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x88" + block * (size // (128 * 1024)) + b"\1\0\0"


def lying_block(_: int) -> bytes:
    return b"\xff\xff\xff\xff\x0f" + bytes(100)


@pytest.mark.parametrize(
    ("codec", "build_bomb", "copies"),
    [
        (Codec.GZIP, gzip_bomb, 1),
        (Codec.SNAPPY, xerial_bomb, 1),
        (Codec.SNAPPY, lying_block, 0),
        (Codec.LZ4, lz4_bomb, 1),
        (Codec.ZSTD, zstd_bomb, 2),  # the window is a copy
    ],
    ids=["gzip", "xerial", "snappy", "lz4", "zstd"],
)
def test_a_bomb_takes_no_more_memory_than_its_bound(
    codec: Codec, build_bomb: Callable[[int], bytes], copies: int
) -> None:
    size_max = 16 * MIB
    bomb = build_bomb(4 * size_max)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    with pytest.raises(CorruptRecordsError):
        decompress(codec, bomb, size_max=size_max)
    assert resident("VmHWM") - before < copies * size_max + 4 * MIB


def resident(figure: str) -> int:
    """Bytes of this process that are in memory, now or at most, from the kernel."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(figure + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(figure)


def test_lz4_frames_of_magic_0_have_the_wrong_checksum_and_are_read_with_either() -> None:
    broken, correct = compress_broken_lz4(TEXT), compress(Codec.LZ4, TEXT)
    assert broken[:6] == correct[:6]
    assert broken[6] != correct[6]
    assert broken[7:] == correct[7:]
    for frame in (broken, correct):
        assert decompress_broken_lz4(frame, size_max=len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordsError):
        decompress(Codec.LZ4, broken, size_max=len(TEXT))


def test_lz4_frames_of_magic_0_that_state_their_size_are_read() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(TEXT)
    frame = bytes(compressor.finish())
    sized = frame[:4] + bytes([frame[4] | 0x08]) + frame[5:6] + len(TEXT).to_bytes(8, "little") + frame[6:]
    assert decompress_broken_lz4(sized, size_max=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    "frame", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40", bytes(7), b"\xff" * 40]
)
def test_torn_lz4_frames_of_magic_0_are_refused(frame: bytes) -> None:
    with pytest.raises(CorruptRecordsError):
        decompress_broken_lz4(frame, size_max=100)
