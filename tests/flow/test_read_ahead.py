"""Fetches that begin before the one before them is answered: nothing is missing, nothing comes twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.batch import iterate_batches, read_header, rebase
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from mirrormaker.flow.exchange import FetchedPartition
from mirrormaker.flow.read_ahead import STRETCHES_MAX, ReadAhead, Stretch

SOURCE = TopicPartition("flights", 0)


def batch(first: int, count: int, size: int, epoch: int) -> bytes:
    builder = BatchBuilder(size_max=1 << 20)
    for _ in range(count):
        builder.append(1_000, b"", bytes(size))
    built = builder.build()
    rebase(built, 0, first, epoch)
    return bytes(built)


@dataclass
class Source:
    """A log of batches of several sizes, and fetches of it that are answered in any order."""

    random: Random
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    epoch: int = 3

    def grow(self, count: int) -> None:
        for _ in range(count):
            records = self.random.randint(1, 9)
            self.batches.append(batch(self.end, records, self.random.choice([10, 10, 200]), self.epoch))
            self.end += records

    def read(self, stretch: Stretch) -> FetchedPartition:
        found = b""
        for each in self.batches:
            if read_header(each).next_offset > stretch.start and (
                not found or len(found) + len(each) <= stretch.size
            ):
                found += each
            elif found:
                break
        return FetchedPartition(
            source=SOURCE, offset=stretch.start, records=bytearray(found), source_end=self.end
        )


@dataclass
class Reader:
    """What takes the answers in, as the copy machine does."""

    position: int = 0
    epoch: int = -1
    taken: list[tuple[int, int]] = field(default_factory=list)

    def take_all(self, ahead: ReadAhead) -> None:
        while (answer := ahead.take(self.position, self.epoch)) is not None:
            assert answer.offset == self.position
            for _, header in iterate_batches(answer.records):
                if header.next_offset > self.position:
                    self.taken.append((header.base_offset, header.next_offset))
                    self.position, self.epoch = header.next_offset, header.leader_epoch


@given(seed=st.integers(0, 1 << 32), size=st.sampled_from([300, 2_000, 20_000]))
def test_every_batch_is_taken_once_in_order_however_answers_arrive(seed: int, size: int) -> None:
    random = Random(seed)
    source, ahead, reader = Source(random), ReadAhead(), Reader()
    source.grow(60)
    under_way: list[Stretch] = []
    sent_ahead = 0
    for step in range(2_000):
        if step >= 300 and reader.position == source.end:
            break
        if step % 50 == 0 and step < 300:
            source.epoch += random.randint(0, 1)
            source.grow(10)
        if len(under_way) < STRETCHES_MAX and random.random() < 0.6:
            stretch = ahead.begin(reader.position, size, source.end)
            if stretch is not None:
                sent_ahead += stretch.is_ahead
                under_way.append(stretch)
        elif under_way:
            stretch = under_way.pop(random.randrange(len(under_way)))
            if random.random() < 0.05:
                ahead.failed(stretch)
            else:
                ahead.arrived(stretch, source.read(stretch))
                reader.take_all(ahead)
    assert reader.position == source.end
    assert all(before[1] == after[0] for before, after in pairwise(reader.taken))
    assert reader.taken[0][0] == 0
    assert sent_ahead or size == 20_000


def begun() -> tuple[ReadAhead, Reader, Source]:
    """A first answer has been taken."""
    ahead, reader = ReadAhead(), Reader()
    source = Source(Random(1))
    source.grow(40)
    first = ahead.begin(0, 500, source.end)
    assert first is not None
    ahead.arrived(first, source.read(first))
    reader.take_all(ahead)
    return ahead, reader, source


def test_an_answer_of_another_log_is_thrown_away() -> None:
    ahead, reader, source = begun()
    inline = ahead.begin(reader.position, 500, source.end)
    second = ahead.begin(reader.position, 500, source.end)
    assert inline is not None
    assert second is not None
    assert (inline.is_ahead, second.is_ahead) == (False, True)
    ahead.arrived(inline, source.read(inline))
    other = Source(Random(1), epoch=4)
    other.grow(40)
    ahead.arrived(second, other.read(second))
    reader.take_all(ahead)
    assert reader.epoch == 3
    again = ahead.begin(reader.position, 500, source.end)
    assert again is not None
    assert (again.start, again.is_ahead) == (reader.position, False)


def test_nothing_is_sent_ahead_near_the_end_and_one_that_goes_back_begins_anew() -> None:
    ahead, reader, source = begun()
    assert ahead.begin(reader.position, 1 << 20, source.end) is not None
    assert ahead.begin(reader.position, 1 << 20, source.end) is None
    back = ahead.begin(0, 500, source.end)
    assert back is not None
    assert (back.start, back.is_ahead) == (0, False)


@pytest.mark.parametrize("damage", [(8, -1), (57, -1), (16, 0x7F7F7F7F)], ids=["length", "count", "magic"])
def test_damage_is_handed_on_where_it_is_next_and_fetched_again_where_it_was_sent_for_ahead(
    damage: tuple[int, int],
) -> None:
    ahead, reader, source = begun()
    inline, second = (ahead.begin(reader.position, 500, source.end) for _ in range(2))
    assert inline is not None
    assert second is not None
    assert second.is_ahead
    ahead.arrived(inline, source.read(inline))
    reader.take_all(ahead)
    ahead.arrived(second, damaged(source.read(second), damage))
    assert ahead.take(reader.position, reader.epoch) is None
    again = ahead.begin(reader.position, 500, source.end)
    assert again is not None
    assert (again.start, again.is_ahead) == (reader.position, False)
    answer = damaged(source.read(again), damage)
    ahead.arrived(again, answer)
    assert ahead.take(reader.position, reader.epoch) is answer
    last = ahead.begin(reader.position, 500, source.end)
    assert last is not None
    ahead.arrived(last, source.read(last))
    reader.take_all(ahead)
    assert reader.position > last.start == again.start


def damaged(answer: FetchedPartition, damage: tuple[int, int]) -> FetchedPartition:
    """Its last batch is none."""
    start, _ = list(iterate_batches(answer.records))[-1]
    position, value = damage
    records = bytearray(answer.records)
    records[start + position : start + position + 4] = value.to_bytes(4, "big", signed=True)
    return replace(answer, records=records)
