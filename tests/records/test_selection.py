"""What is left of a stretch of a log for a filter: everything wanted, and all that a reader needs besides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Codec, read_header, rebase, restamp
from broker.records.builder import BatchBuilder
from broker.records.reader import iterate_entries, read_all
from broker.records.record_filter import RecordFilter
from broker.records.selection import Selection, select

WANTED = RecordFilter.parse('value starts with "w"')
MAX = 1 << 20


def batch(offset: int, *values: bytes, codec: Codec = Codec.NONE, flags: int = 0) -> bytearray:
    builder = BatchBuilder(codec, size_max=MAX)
    for number, value in enumerate(values):
        builder.append(1_000 + number, b"k", value, [("h", b"x")])
    built = builder.build()
    rebase(built, 0, offset, 3)
    if flags:
        attributes = read_header(built).attributes | flags
        size = len(built)
        restamp(built, 0, size, attributes=attributes, producer_id=7, producer_epoch=0, base_sequence=0)
    return built


def selected(*batches: bytes, unpacked_max: int = MAX, batch_unpacked_max: int = MAX) -> Selection:
    stored = b"".join(batches)
    return select(stored, WANTED, unpacked_max=unpacked_max, batch_unpacked_max=batch_unpacked_max)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([b"w1", b"w2", b"no", b"other"]), min_size=1, max_size=12),
            st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
        ),
        max_size=6,
    )
)
def test_no_wanted_record_is_missing_and_everything_left_is_as_it_was(
    contents: list[tuple[list[bytes], Codec]],
) -> None:
    batches: list[bytes] = []
    offset = 0
    for values, codec in contents:
        batches.append(bytes(batch(offset, *values, codec=codec)))
        offset += len(values)
    found = selected(*batches)
    everything = {record.offset: record for record in read_all(b"".join(batches), size_max=MAX)}
    left = {record.offset: record for record in read_all(found.records, size_max=MAX)}
    wanted = {offset for offset, record in everything.items() if (record.value or b"").startswith(b"w")}
    assert wanted <= left.keys()
    assert all(everything[offset] == record for offset, record in left.items())
    assert found.next_offset == (offset if batches else -1)
    assert found.leader_epoch == (3 if batches else -1)
    assert found.looked_at_bytes == sum(map(len, batches))


def test_batches_pass_as_they_are_or_cut_or_not_at_all() -> None:
    all_wanted = bytes(batch(0, b"w", b"w"))
    none_wanted = bytes(batch(2, b"x", b"x"))
    few_wanted = bytes(batch(4, b"x", b"x", b"w" * 50, b"x", codec=Codec.GZIP))
    found = selected(all_wanted, none_wanted, few_wanted)
    assert found.records.startswith(all_wanted)
    cut = found.records[len(all_wanted) :]
    header = read_header(cut)
    assert (header.base_offset, header.next_offset, header.record_count) == (4, 8, 1)
    assert [record.offset for record in read_all(cut, size_max=MAX)] == [6]


def test_markers_damaged_batches_and_such_as_unpack_to_too_much_pass_as_they_are() -> None:
    marker = bytes(batch(0, b"\0\0\0\0\0\0", flags=TRANSACTIONAL_FLAG | CONTROL_FLAG))
    damaged = batch(1, b"x")
    damaged[-1] ^= 1
    large = bytes(batch(2, b"x" * 10_000, codec=Codec.GZIP))
    stored = marker + bytes(damaged) + large
    assert selected(stored, batch_unpacked_max=5_000).records == stored
    assert selected(large).records == b""


def test_so_much_is_looked_at_and_no_more() -> None:
    batches = [bytes(batch(number, b"x" * 1_000)) for number in range(10)]
    found = selected(*batches, unpacked_max=2_500)
    assert found.next_offset == 3
    assert found.looked_at_bytes == sum(map(len, batches[:3]))


def test_a_torn_end_is_not_passed() -> None:
    whole, torn = bytes(batch(0, b"w")), bytes(batch(1, b"w"))[:-1]
    found = selected(whole, torn)
    assert (found.records, found.next_offset) == (whole, 1)
    assert [size for _, size in iterate_entries(found.records)] == [len(whole)]


@pytest.mark.parametrize("flags", [0, TRANSACTIONAL_FLAG])
def test_cut_batches_keep_whose_they_are(flags: int) -> None:
    stored = bytes(batch(0, b"x", b"x", b"w", flags=flags))
    before, after = read_header(stored), read_header(selected(stored).records)
    assert after.is_transactional == before.is_transactional
    assert (after.producer_id, after.leader_epoch) == (before.producer_id, before.leader_epoch)
