"""Where what was read of a partition parts from a log, by leader epochs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.batch import Codec, read_header, rebase
from broker.records.builder import BatchBuilder
from broker.records.message_set import build_message_set
from broker.records.reader import read_records
from mirrormaker.flow.read_epochs import KNOWN_MAX, EpochStart, ReadEpochs
from mirrormaker.flow.trouble import Divergence

SIZE_MAX = 1 << 20


def batch_of(offset: int, count: int, epoch: int) -> bytes:
    builder = BatchBuilder(Codec.NONE, size_max=SIZE_MAX)
    for each in range(offset, offset + count):
        builder.append(1_000 + each, b"key", b"value")
    batch = builder.build()
    rebase(batch, 0, offset, epoch)
    return bytes(batch)


def records_of(*batches: tuple[int, int, int]) -> memoryview:
    return memoryview(b"".join(batch_of(*each) for each in batches))


def test_each_epoch_begins_where_its_first_record_is_though_one_answer_has_several() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 20, 4, records_of((0, 7, 0), (7, 3, 1), (10, 5, 4), (15, 5, 4)))
    assert [epochs.end_of(epoch) for epoch in (0, 1, 3, 4, 5)] == [7, 10, 10, None, None]
    assert [epochs.before(offset) for offset in (0, 1, 7, 8, 10, 11, 20)] == [-1, 0, 0, 1, 1, 4, 4]


def test_what_was_read_before_the_process_began_is_known_by_the_record_before_its_position() -> None:
    epochs = ReadEpochs(100, 3)
    assert (epochs.end_of(2), epochs.end_of(3), epochs.before(100)) == (99, None, 3)
    assert (ReadEpochs(0, 3).end_of(2), ReadEpochs(100, -1).end_of(2)) == (0, None)


def test_a_batch_that_is_read_in_part_counts_from_the_position_on() -> None:
    epochs = ReadEpochs(12, 1)
    epochs.read(12, 16, 2, records_of((0, 10, 0), (10, 4, 2), (14, 4, 3)))
    assert [epochs.end_of(epoch) for epoch in (0, 1, 2)] == [11, 12, 14]
    epochs = ReadEpochs(12, 1)
    epochs.read(12, 14, 2, records_of((0, 10, 0), (10, 4, 2), (14, 4, 3)))
    assert epochs.end_of(2) is None  # what comes behind was not taken


def test_what_is_read_again_as_it_was_given_back_begins_where_it_did() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 20, 4, records_of((0, 7, 0), (7, 5, 2), (12, 8, 4)))
    epochs.read(9, 12, 2, records_of((9, 3, 2)))
    assert [epochs.end_of(epoch) for epoch in (0, 2)] == [7, None]
    epochs.read(12, 20, 4, records_of((12, 8, 4)))
    assert [epochs.end_of(epoch) for epoch in (0, 2)] == [7, 12]


def test_an_epoch_begins_behind_what_the_source_left_out_before_it() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 30, 2, records_of((0, 5, 0), (9, 3, 1)))
    assert [epochs.end_of(epoch) for epoch in (0, 1)] == [5, 12]
    epochs.read(30, 50, 3, memoryview(b""))
    assert [epochs.end_of(epoch) for epoch in (2, 3)] == [30, None]


def test_messages_of_old_formats_have_no_epoch() -> None:
    batch = batch_of(0, 4, 0)
    records = list(read_records(batch, read_header(batch), size_max=SIZE_MAX))
    epochs = ReadEpochs(0, -1)
    old = build_message_set(records, 1, Codec.NONE)
    epochs.read(0, 6, 2, memoryview(old + batch_of(4, 2, 2)))
    assert (epochs.before(4), epochs.before(5), epochs.end_of(1)) == (-1, 2, 4)


def test_what_the_source_lost_is_cut_off_and_what_contradicts_the_log_goes() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 15, 3, records_of((0, 5, 1), (5, 5, 2), (10, 5, 3)))
    epochs.cut(10)
    assert epochs.end_of(2) is None
    epochs.read(10, 15, 2, records_of((10, 5, 2)))
    assert (epochs.end_of(1), epochs.end_of(2)) == (5, None)
    epochs.read(15, 20, 1, records_of((15, 5, 1)))
    assert (epochs.end_of(1), epochs.before(20)) == (None, 1)


def test_of_which_epoch_the_record_is_behind_which_a_log_parts_is_told_unless_it_is_of_no_account() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 15, 3, records_of((0, 5, 1), (5, 5, 2), (10, 5, 3)))
    epochs.cut(10)
    assert (epochs.latest, epochs.told_before(10)) == (2, 2)
    epochs.latest = -1
    epochs.cut(8)
    assert (epochs.latest, epochs.told_before(8)) == (-1, -1)


def test_what_was_written_down_of_what_others_read_is_known_as_far_as_it_lies_before() -> None:
    epochs = ReadEpochs(100, 7)
    epochs.read(100, 120, 9, records_of((100, 20, 9)))
    epochs.learn(EpochStart(*each) for each in ((3, 40), (7, 60), (3, 10), (5, 55), (6, 130), (8, 99)))
    assert epochs.between(0, 200) == [(3, 10), (5, 55), (7, 60), (9, 100)]
    epochs.cut(50)
    assert (epochs.between(0, 200), epochs.latest) == ([(3, 10)], 3)
    epochs.learn([EpochStart(1, 0), EpochStart(4, 45)])
    assert epochs.between(0, 200) == [(1, 0), (3, 10)]
    assert ReadEpochs.of([EpochStart(3, 30), EpochStart(2, 30), EpochStart(1, 4)]).between(0, 99) == [
        (1, 4),
        (3, 30),
    ]


def test_the_newest_epochs_are_known() -> None:
    epochs = ReadEpochs(0, -1)
    epochs.read(0, 100, 99, records_of(*((each, 1, each) for each in range(100))))
    assert (epochs.before(100), epochs.before(100 - KNOWN_MAX)) == (99, -1)


@pytest.mark.hypothesis
@given(seed=st.integers(0, 2**32))
def test_the_part_that_a_log_has_of_what_was_read_is_as_long_as_records_are_the_same(seed: int) -> None:
    """Two replicas of one log, one of which led on after another epoch than the other."""
    random = Random(seed)
    common = sorted(random.choices(range(4), k=random.randrange(6)))
    ours = common + sorted(random.choices((4, 6, 8), k=random.randrange(1, 8)))
    theirs = common + sorted(random.choices((5, 7, 9), k=random.randrange(8)))
    if random.random() < 0.5:  # the old leader had more of its epoch than was copied of it
        theirs = common + common[-1:] * random.randrange(4) + theirs[len(common) :]
    epochs, at = ReadEpochs(0, -1), 0
    while at < len(ours):
        end = random.randint(at + 1, len(ours))
        epochs.read(at, end, ours[end - 1], records_of(*((each, 1, ours[each]) for each in range(at, end))))
        at = end
    asked = ours[-1]
    while below := [epoch for epoch in theirs if epoch <= asked]:
        told = Divergence(epoch=below[-1], end_offset=len(below))
        parts = told.parting(epochs.end_of(told.epoch), len(ours))
        asked = epochs.before(parts)
        if not 0 <= asked < told.epoch:
            same = [here for here, there in zip(ours, theirs, strict=False) if here == there]
            assert parts == len(same)
            break
