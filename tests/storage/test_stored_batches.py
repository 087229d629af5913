"""Where a fetch ends that is cut by its size: the quick search agrees with a walk over all headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.builder import BatchBuilder
from broker.records.legacy import from_batches
from broker.storage.memory_disk import MemoryDisk
from broker.storage.stored_batches import begins_batch, first_beyond, walk

SIZE_MAX = 1 << 20


def entry(number: int, records: int, size: int, magic: int) -> bytes:
    builder = BatchBuilder(size_max=SIZE_MAX)
    for _ in range(records):
        builder.append(1_700_000_000_000, None, bytes(size))
    batch = builder.build()
    batch[:8] = number.to_bytes(8, "big")
    return bytes(batch) if magic == 2 else from_batches(batch, magic, size_max=SIZE_MAX)


ENTRIES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 5000), st.sampled_from([2, 2, 2, 1, 0])), max_size=8
)


@given(entries=ENTRIES, data=st.data())
def test_the_search_ends_where_a_walk_does(entries: list[tuple[int, int, int]], data: st.DataObject) -> None:
    content = b"".join(entry(10 * number, *shape) for number, shape in enumerate(entries))
    file = MemoryDisk().open(Path("/segment"), create=True)
    file.pwrite(content, 0)
    bound = data.draw(st.integers(0, len(content) + 1))
    expected: tuple[int, int | None] = (len(content), None)
    offset = None
    for position, header in walk(file, 0, len(content)):
        if position + header.size > bound:
            expected = (position, header.base_offset if offset is None else offset)
            break
        offset = header.next_offset
    else:
        expected = (len(content), offset)
    assert first_beyond(file, 0, len(content), bound) == expected


@pytest.mark.parametrize("damage", [slice(16, 17), slice(8, 12), slice(23, 27), slice(0, 8)])
def test_the_search_refuses_what_a_walk_refuses(damage: slice) -> None:
    content = bytearray(entry(0, 1, 100, 2) * 2)
    content[damage] = b"\xff" * (damage.stop - damage.start)
    file = MemoryDisk().open(Path("/segment"), create=True)
    file.pwrite(content, 0)
    with pytest.raises(CorruptRecordsError):
        first_beyond(file, 0, len(content), len(content))


def test_a_batch_is_told_from_what_an_index_only_claims_to_be_one() -> None:
    batch = entry(10, 3, 100, 2)
    room = len(batch)
    assert begins_batch(batch, room, first_offset=0, last_offset=12)
    assert not begins_batch(batch, room, first_offset=11, last_offset=12)
    assert not begins_batch(batch, room, first_offset=0, last_offset=9)
    assert not begins_batch(batch, room - 1, first_offset=0, last_offset=12)
    assert not begins_batch(batch[1:], room, first_offset=0, last_offset=12)
    assert not begins_batch(batch[:20], room, first_offset=0, last_offset=12)
    assert not begins_batch(entry(10, 1, 100, 1), room, first_offset=0, last_offset=12)


def test_the_search_goes_on_from_what_was_read_before() -> None:
    content = b"".join(entry(10 * number, 1, 100, 2) for number in range(4))
    file = MemoryDisk().open(Path("/segment"), create=True)
    file.pwrite(content, 0)
    size = len(content) // 4
    known = content[size : 2 * size + 5]
    for bound in (2 * size, 3 * size, 4 * size):
        expected = first_beyond(file, size, len(content), bound)
        assert first_beyond(file, size, len(content), bound, known) == expected
