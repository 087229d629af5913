"""Codecs of record batches and message sets, with every decompression bounded.

Bounds never rest on what the bytes claim about themselves. zstd and lz4 frames are walked block by block
first, which gives an upper bound of their content without decompressing; the output buffer is that bound or
`size_max`, whichever is smaller. snappy states its size up front and cannot exceed it. gzip is inflated piece
by piece.

What is written is what Java's clients write: gzip without a timestamp, Xerial-framed snappy in 32 KiB blocks,
lz4 frames of independent 64 KiB blocks, zstd frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from mmap import mmap
from struct import Struct
from types import MappingProxyType

import cramjam
import snappy

from broker.errors import CorruptRecordsError, ExpansionError
from broker.records.batch import Codec
from broker.types import Buffer

LEVELS: Mapping[Codec, range] = MappingProxyType(
    {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
)
"""Levels that each codec takes; none and snappy take none."""

_LEVEL_DEFAULTS: Mapping[Codec, int] = MappingProxyType({Codec.GZIP: 6, Codec.LZ4: 1, Codec.ZSTD: 3})

_GZIP_WINDOW_BITS = 31
_GZIP_PIECE_SIZE = 1 << 20
_GZIP_MEMBERS_MAX = 64
"""Writers make one; each more costs a copy of what follows it."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_BLOCK_LENGTH = Struct(">I")

_LZ4_MAGIC = 0x184D2204
_LZ4_STORED_FLAG = 0x8000_0000
_LZ4_RATIO_MAX = 255
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_SIZE_MAX = 128 * 1024
_MAPPED_FROM = 1 << 20
_COMPRESSED_AT_ONCE = 256 * 1024
"""A compressor lets other threads go on only between calls."""

_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFF_FFF0

_UINT32 = Struct("<I")
_UINT32_MASK = 0xFFFF_FFFF

_XXH_PRIME_1, _XXH_PRIME_2, _XXH_PRIME_3 = 2654435761, 2246822519, 3266489917
_XXH_PRIME_4, _XXH_PRIME_5 = 668265263, 374761393

_Span = tuple[int, int]
"""Where a frame ends, and at most how many bytes it decompresses to."""


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """Compress `data`. Raises ValueError for a level outside `LEVELS`."""
    level = _checked_level(codec, level)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Codec, data: Buffer, *, size_max: int) -> bytes:
    """Decompress `data` to at most `size_max` bytes.

    Raises CorruptRecordsError for garbage, and ExpansionError, which is one, for more.
    """
    return bytes(decompress_view(codec, data, size_max=size_max))


def decompress_view(codec: Codec, data: Buffer, *, size_max: int) -> Buffer:
    """As `decompress` without the last copy: the result may be a view, with codec none of `data` itself."""
    if size_max < 0:
        raise ExpansionError("the bound on uncompressed bytes is used up")
    try:
        match codec:
            case Codec.NONE:
                return _within(data, size_max)
            case Codec.GZIP:
                return _decompress_gzip(data, size_max)
            case Codec.SNAPPY:
                return _decompress_snappy(data, size_max)
            case Codec.LZ4:
                return _decompress_lz4(data, size_max)
            case Codec.ZSTD:
                return _decompress_zstd(data, size_max)
    except (zlib.error, snappy.UncompressError, cramjam.DecompressionError) as error:
        raise CorruptRecordsError(
            f"{codec.name.lower()} data is corrupt or exceeds {size_max} bytes"
        ) from error


def compress_broken_lz4(data: Buffer) -> bytes:
    """An lz4 frame for magic 0, whose header checksum wrongly covers the frame's magic too (KIP-57)."""
    frame = bytearray(_compress_lz4(data, _LEVEL_DEFAULTS[Codec.LZ4]))
    end = _lz4_descriptor_end(frame)
    frame[end] = _header_checksum(frame[:end])
    return bytes(frame)


def decompress_broken_lz4(data: Buffer, *, size_max: int) -> bytes:
    """Read an lz4 frame of magic 0, whose header checksum may be the wrong one. Raises as `decompress`."""
    frame = bytearray(data)
    end = _lz4_descriptor_end(frame)
    frame[end] = _header_checksum(frame[4:end])
    return decompress(Codec.LZ4, frame, size_max=size_max)


def _checked_level(codec: Codec, level: int | None) -> int:
    if level is None:
        return _LEVEL_DEFAULTS.get(codec, 0)
    if level not in LEVELS.get(codec, ()):
        raise ValueError(f"{codec.name.lower()} has no level {level}")
    return level


def _within(data: Buffer, size_max: int) -> Buffer:
    if len(data) > size_max:
        raise ExpansionError(f"{len(data)} bytes of records exceed {size_max}")
    return data


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    """Inflate the gzip members of `data`."""
    pieces: list[bytes] = []
    left, rest = size_max, data
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            pieces.append(member.decompress(rest, min(_GZIP_PIECE_SIZE, left + 1)))
            left -= len(pieces[-1])
            rest = member.unconsumed_tail
            if left < 0:
                raise ExpansionError(f"gzip data exceeds {size_max} bytes")
            if not pieces[-1] and not rest and not member.eof:
                raise CorruptRecordsError("gzip data is torn")
        rest = member.unused_data
        if not rest:
            return b"".join(pieces)
    raise CorruptRecordsError(f"gzip data of more than {_GZIP_MEMBERS_MAX} members")


def _compress_xerial(data: Buffer) -> bytes:
    view, parts = memoryview(data), [_XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = snappy.compress(view[position : position + _XERIAL_BLOCK_SIZE])
        parts += _XERIAL_BLOCK_LENGTH.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    blocks: list[bytes] = []
    position, left = 0, size_max
    while position < len(view):
        if (
            view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
        ):  # streams may be joined end to end
            position += len(_XERIAL_HEADER)
            continue
        start = position + _XERIAL_BLOCK_LENGTH.size
        if start > len(view):
            raise CorruptRecordsError("torn length of a snappy block")
        position = start + _XERIAL_BLOCK_LENGTH.unpack_from(view, position)[0]
        if position > len(view):
            raise CorruptRecordsError(
                f"snappy block of {position - start} bytes, {len(view) - start} are there"
            )
        blocks.append(_decompress_snappy_block(view[start:position], left))
        left -= len(blocks[-1])
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    size = _snappy_size(block)
    if size > size_max:
        raise ExpansionError(f"snappy block claims {size} bytes, at most {size_max} are allowed")
    content: bytes = snappy.uncompress(block)
    return content


def _snappy_size(block: memoryview) -> int:
    """The size that a raw snappy block states in its first bytes, a varint of at most five."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise CorruptRecordsError("snappy block without a size")


def _compress_lz4(data: Buffer, level: int) -> bytes:
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for position in range(0, len(view), _COMPRESSED_AT_ONCE):
        compressor.compress(bytes(view[position : position + _COMPRESSED_AT_ONCE]))  # takes bytes only
    return bytes(compressor.finish())


def _decompress_lz4(data: Buffer, size_max: int) -> memoryview:
    bound = _content_bound(data, _LZ4_MAGIC, _walk_lz4_frame)
    return _decompress_into(cramjam.lz4.decompress_into, data, bound, size_max)


def _decompress_zstd(data: Buffer, size_max: int) -> memoryview:
    bound = _content_bound(data, _ZSTD_MAGIC, _walk_zstd_frame)
    return _decompress_into(cramjam.zstd.decompress_into, data, bound, size_max)


def _decompress_into(
    decompress_into: Callable[[Buffer, Buffer], int], data: Buffer, bound: int, size_max: int
) -> memoryview:
    content = memoryview(_output(min(bound, size_max)))
    try:
        return content[: decompress_into(data, content)]
    except cramjam.DecompressionError as error:
        if bound <= size_max:
            raise
        raise ExpansionError(f"compressed data exceeds {size_max} bytes, or is corrupt") from error


def _output(size: int) -> bytearray | mmap:
    """Room for so many bytes. That of large ones is cleared page by page as it is used, and then in no other
    thread's time.
    """
    return bytearray(size) if size < _MAPPED_FROM else mmap(-1, size)


def _content_bound(data: Buffer, frame_magic: int, walk: Callable[[Buffer, int], _Span]) -> int:
    """At most how many bytes the frames of `data` decompress to. Raises CorruptRecordsError when torn."""
    bound = position = 0
    try:
        while position < len(data):
            magic = _UINT32.unpack_from(data, position)[0]
            if magic == frame_magic:
                position, size = walk(data, position + 4)
                bound += size
            elif magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
                position += 8 + _UINT32.unpack_from(data, position + 4)[0]
            else:
                raise CorruptRecordsError(f"compressed frame starts with {magic:#010x}")
    except (IndexError, struct.error) as error:
        raise CorruptRecordsError("torn compressed frame") from error
    return bound


def _walk_lz4_frame(data: Buffer, position: int) -> _Span:
    flags, block_maximum = data[position], data[position + 1] >> 4 & 0x07
    if block_maximum < 4:
        raise CorruptRecordsError(f"lz4 frame with block size number {block_maximum}")
    block_size_max = 1 << 8 + 2 * block_maximum
    position += 3 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    checksum_size = 4 if flags & 0x10 else 0
    bound = 0
    while block := _UINT32.unpack_from(data, position)[0]:
        size = block & ~_LZ4_STORED_FLAG
        bound += min(block_size_max, size if block & _LZ4_STORED_FLAG else size * _LZ4_RATIO_MAX)
        position += 4 + size + checksum_size
    return position + 4 + (4 if flags & 0x04 else 0), bound


def _walk_zstd_frame(data: Buffer, position: int) -> _Span:
    descriptor = data[position]
    single_segment = bool(descriptor & 0x20)
    position += 1 if single_segment else 2
    position += (0, 1, 2, 4)[descriptor & 0x03]
    size_width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    stated = int.from_bytes(data[position : position + size_width], "little") + (
        256 if size_width == 2 else 0
    )
    position += size_width
    bound, last = 0, False
    while not last:
        block = int.from_bytes(data[position : position + 3], "little")
        last, kind, size = bool(block & 1), block >> 1 & 0x03, block >> 3
        if position + 3 > len(data):
            raise CorruptRecordsError("torn zstd frame")
        bound += size if kind < 2 else _ZSTD_BLOCK_SIZE_MAX
        position += 3 + (1 if kind == 1 else size)
    return position + (4 if descriptor & 0x04 else 0), min(bound, stated) if size_width else bound


def _lz4_descriptor_end(frame: bytearray) -> int:
    """Position of the header checksum. Raises CorruptRecordsError when it is not there."""
    flags = frame[4] if len(frame) > 4 else 0
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if end >= len(frame):
        raise CorruptRecordsError("torn lz4 frame header")
    return end


def _header_checksum(descriptor: Buffer) -> int:
    """The second byte of the xxHash32 of `descriptor`, by the rule for inputs shorter than 16 bytes.

    Frames of magic 0 are rare, so that a dependency is not worth it; a longer header (one with a dictionary)
    is refused.
    """
    if len(descriptor) >= 16:
        raise CorruptRecordsError("lz4 frame header with a dictionary")
    value = _XXH_PRIME_5 + len(descriptor) & _UINT32_MASK
    words_end = len(descriptor) & ~3
    for position in range(0, words_end, 4):
        word = int.from_bytes(descriptor[position : position + 4], "little")
        value = _rotated_left(value + word * _XXH_PRIME_3, 17) * _XXH_PRIME_4 & _UINT32_MASK
    for byte in descriptor[words_end:]:
        value = _rotated_left(value + byte * _XXH_PRIME_5, 11) * _XXH_PRIME_1 & _UINT32_MASK
    value = (value ^ value >> 15) * _XXH_PRIME_2 & _UINT32_MASK
    value = (value ^ value >> 13) * _XXH_PRIME_3 & _UINT32_MASK
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotated_left(value: int, count: int) -> int:
    value &= _UINT32_MASK
    return value << count | value >> 32 - count
