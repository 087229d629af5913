"""Batches that are decoded on their way: all records cross once, in their order, whatever is done to them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.batch import (
    TIMESTAMP_TYPE_FLAG,
    Codec,
    iterate_batches,
    read_header,
    verify_crc,
    write_header,
)
from broker.records.excerpt import excerpt, open_batch
from broker.records.message_set import build_message_set
from broker.records.reader import read_columns
from broker.records.record import TIMESTAMP_MAX, Record, TimestampType, name_bytes
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk, DeepReason, Frame
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.intake import UNBOUNDED, BatchLimit, Intake, IntakeConfig
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.steps.record import RecordError
from mirrormaker.topology.model import FailurePolicies, FailurePolicy, RecordErrorPolicy
from tests.flow.test_intake import SIZE_MAX, build, compacted, records_of, take

SOURCE = TopicPartition("orders", 3)
SKIPPING = FailurePolicies(
    oversize=FailurePolicy.SKIP_AND_RECORD,
    not_shallow=FailurePolicy.SKIP_AND_RECORD,
    record_error=RecordErrorPolicy.SKIP_AND_RECORD,
)
NOTED = 3
OLD = [Record(offset, 1_000, TimestampType.CREATE_TIME, b"key", b"value", ()) for offset in range(2)]


def config(**more: object) -> IntakeConfig:
    return IntakeConfig(**{"chunk_bytes": SIZE_MAX, "chunk_batches_max": 1, **more})  # type: ignore[arg-type]


def aside(policies: FailurePolicies) -> Aside:
    return Aside(route="r", source=SOURCE, policies=policies, skipped_lane=NOTED, parked_lane=NOTED)


def numbers_of(chunks: Iterable[Chunk]) -> dict[int, list[int]]:
    """The numbers in the keys of the records, by lane."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for chunk in chunks:
        for record in records_of(chunk):
            assert record.key is not None
            numbers[chunk.lane].append(int(record.key.removeprefix(b"key-")))
    return numbers


class Spread:
    """Records by their offsets: some dropped, some doubled, some refused, the others over three lanes."""

    def __init__(self, drop: int, double: int, refuse: int) -> None:
        self.drop, self.double, self.refuse = drop, double, refuse

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        if record.offset % self.refuse == self.refuse - 1:
            raise RecordError("not that one")
        if record.offset % self.drop == self.drop - 1:
            return []
        return [(record.offset % 3, record)] * (2 if record.offset % self.double == 1 else 1)


def assert_sound(intake: Intake, limit: int, lanes: int) -> None:
    """Chunks are whole batches, in order, that part no record from what was made of it."""
    ends = [0] * lanes
    for chunk in intake.chunks:
        assert chunk.first_offset >= ends[chunk.lane]
        ends[chunk.lane] = chunk.next_offset
        assert chunk.lane == NOTED or chunk.size <= limit
        sizes = [header.size for _, header in iterate_batches(chunk.records)]
        assert (chunk.batches, chunk.size, len(chunk.records)) == (len(sizes), sum(sizes), sum(sizes))
        for position, header in iterate_batches(chunk.records):
            verify_crc(chunk.records, position, header)
            assert header.record_count == header.last_offset_delta + 1


@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.sampled_from(list(Codec)), st.booleans()), max_size=12),
    start=st.integers(0, 40),
    codec=st.none() | st.sampled_from(list(Codec)),
    gather_bytes=st.sampled_from([0, 300, 2_000]),
    batch_bytes_max=st.sampled_from([UNBOUNDED, 1_500, 250]),
    is_deep=st.booleans(),
    turn_bytes=st.sampled_from([1, 800, 1 << 20]),
)
def test_records_cross_once_and_in_order_whatever_their_batches_become(
    sizes: list[tuple[int, Codec, bool]],
    start: int,
    codec: Codec | None,
    gather_bytes: int,
    batch_bytes_max: int,
    is_deep: bool,
    turn_bytes: int,
) -> None:
    answer, end = bytearray(), 0
    for count, batch_codec, is_appended in sizes:
        flags = TIMESTAMP_TYPE_FLAG if is_appended else 0
        answer += build(end, count, codec=batch_codec, flags=flags)
        end += count
    bounds = config(
        codec=codec,
        gather_bytes=min(gather_bytes, batch_bytes_max),
        batch_bytes_max=batch_bytes_max,
        deep=is_deep,
        turn_bytes=turn_bytes,
    )
    position, at, chunks = min(start, end), 0, []
    start = position
    while True:
        intake = take_in(answer[at:], position, bounds, Frame(len(answer)))
        assert_sound(intake, batch_bytes_max, 1)
        chunks += intake.chunks
        position = intake.position
        if intake.left_at is None:
            break
        at += intake.left_at
    assert (intake.damage, intake.obstacle, position) == (None, None, end)
    assert numbers_of(chunks)[0] == list(range(start, end))
    if codec is not None:
        assert {read_header(chunk.records).codec for chunk in chunks} <= {codec}


@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    drop=st.integers(2, 9),
    double=st.integers(2, 9),
    refuse=st.integers(2, 30),
    floors=st.none() | st.tuples(*[st.integers(0, 60)] * 4),
    batch_bytes_max=st.sampled_from([UNBOUNDED, 400]),
)
def test_every_record_has_the_fate_that_the_steps_give_it(
    counts: list[int],
    drop: int,
    double: int,
    refuse: int,
    floors: tuple[int, ...] | None,
    batch_bytes_max: int,
) -> None:
    answer, end = bytearray(), 0
    for count in counts:
        answer += build(end, count)
        end += count
    steps = Spread(drop, double, refuse)
    bounds = config(steps=steps, aside=aside(SKIPPING), batch_bytes_max=batch_bytes_max)
    position = min(min(floors), end) if floors else 0
    intake = take_in(answer, position, bounds, Frame(len(answer)), floors=lambda _: floors or ())
    assert intake.position == end
    assert_sound(intake, batch_bytes_max, 4)
    numbers = numbers_of([chunk for chunk in intake.chunks if chunk.lane != NOTED])
    for lane in range(3):
        expected: list[int] = []
        for offset in range(max(position, floors[lane] if floors else 0), end):
            if offset % 3 == lane and offset % refuse != refuse - 1 and offset % drop != drop - 1:
                expected += [offset] * (2 if offset % double == 1 else 1)
        assert numbers[lane] == expected
    noted = [
        json.loads(record.key or b"")["offset"]
        for chunk in intake.chunks
        if chunk.lane == NOTED
        for record in records_of(chunk)
    ]
    assert noted == [offset for offset in range(position, end) if offset % refuse == refuse - 1]


def test_runs_say_where_records_come_from_that_steps_dropped_or_doubled() -> None:
    (chunk,) = [
        each for each in take(build(0, 12), config=config(steps=Spread(4, 3, 99))).chunks if not each.lane
    ]
    assert (chunk.first_offset, chunk.next_offset) == (0, 10)
    assert [tuple(run) for run in chunk.runs] == [(0, 1), (6, 1), (9, 1)]


@pytest.mark.parametrize("policies", [FailurePolicies(), FailurePolicies(oversize=FailurePolicy.FAIL)])
def test_what_is_before_a_record_that_is_too_large_crosses_and_the_position_stays_there(
    policies: FailurePolicies,
) -> None:
    answer = build(0, 4, codec=Codec.NONE) + build(4, 1, codec=Codec.NONE, size=900) + build(5)
    bounds = config(batch_bytes_max=300, aside=aside(policies))
    intake = take(answer, config=bounds)
    assert numbers_of(intake.chunks) == {0: [0, 1, 2, 3]}
    assert intake.position == 4
    assert intake.obstacle is not None
    assert (intake.obstacle.kind, intake.obstacle.offset) == (TroubleKind.OVERSIZE, 4)
    assert intake.obstacle.next_offset == 5
    again = take(answer[read_header(answer).size :], position=4, config=bounds)
    assert (again.chunks, again.position, again.obstacle) == ([], 4, intake.obstacle)


def test_what_is_made_of_one_record_crosses_undivided_where_batches_are_split_and_it_is_taken() -> None:
    class Doubled:
        def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
            return [(0, record)] * 2

    bounds = config(steps=Doubled(), codec=Codec.NONE, split_bytes=250, batch_bytes_max=600)
    answer = build(0, 4, codec=Codec.NONE, size=100) + build(4, 1, codec=Codec.NONE, size=400)
    intake = take(answer, config=bounds)
    assert [(chunk.first_offset, chunk.count) for chunk in intake.chunks] == [(n, 2) for n in range(4)]
    assert intake.obstacle is not None
    assert intake.obstacle.offset == 4


def test_an_obstacle_inside_a_batch_lets_pass_what_lies_before_it() -> None:
    class Refusing:
        def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
            if record.offset == 7:
                raise RecordError("seven")
            return [(record.offset % 2, record)]

    intake = take(build(0, 5) + build(5, 5), config=config(steps=Refusing()))
    assert numbers_of(intake.chunks) == {0: [0, 2, 4, 6], 1: [1, 3, 5]}
    assert intake.position == 7
    assert intake.obstacle is not None
    assert intake.obstacle.problem == "seven"


def test_what_would_have_to_be_decoded_is_noted_where_nothing_may_be() -> None:
    answer = build(0) + compacted(3, [3, 5], 6) + build(9)
    held = take(answer, config=config(is_shallow=True))
    assert held.position == 3
    assert held.obstacle is not None
    assert held.obstacle.kind is TroubleKind.NOT_SHALLOW
    noted = take(answer, config=config(is_shallow=True, aside=aside(SKIPPING)))
    assert [(chunk.lane, chunk.first_offset) for chunk in noted.chunks] == [(0, 0), (0, 9), (NOTED, 3)]
    (note,) = records_of(noted.chunks[2])
    assert json.loads(note.value or b"")["last_offset"] == 8
    assert noted.left_out == {3: TroubleKind.NOT_SHALLOW}


@pytest.mark.parametrize(("count", "kind"), [(1, TroubleKind.OVERSIZE), (5, TroubleKind.NOT_SHALLOW)])
def test_a_shallow_route_that_would_have_to_split_a_batch_is_not_shallow(
    count: int, kind: TroubleKind
) -> None:
    """Each of its records alone may cross."""
    answer = build(0, count, size=1_000)
    held = take(answer, config=config(is_shallow=True, batch_bytes_max=len(answer) - 1))
    assert held.obstacle is not None
    assert (held.obstacle.kind, held.obstacle.offset, held.obstacle.next_offset) == (kind, 0, count)


@pytest.mark.parametrize(
    ("answer", "position"), [(build(0, 5), 2), (build_message_set(OLD, 1, Codec.NONE), 0)]
)
def test_a_shallow_route_stands_in_front_of_what_comes_first_and_would_have_to_be_decoded(
    answer: bytes | bytearray, position: int
) -> None:
    held = take(answer, position=position, config=config(is_shallow=True))
    assert (held.position, held.chunks) == (position, [])
    assert held.obstacle is not None
    assert (held.obstacle.kind, held.obstacle.offset) == (TroubleKind.NOT_SHALLOW, position)


def test_a_dead_letter_is_the_record_with_headers_that_tell_its_place() -> None:
    parking = aside(FailurePolicies(record_error=RecordErrorPolicy.PARK))
    intake = take(build(0, 2), config=config(steps=Spread(9, 9, 2), aside=parking))
    (letter,) = records_of(next(chunk for chunk in intake.chunks if chunk.lane == NOTED))
    assert letter.key == b"key-1"
    told = dict(letter.headers)
    assert (told["parked.topic"], told["parked.partition"], told["parked.offset"]) == (b"orders", b"3", b"1")
    assert told["parked.error"] == b"not that one"


def note_of_obstacle(answer: bytearray, position: int, bounds: IntakeConfig) -> Any:
    """Of records 3 to 7, which are never decoded: they are an obstacle, or left out with this note."""
    held = take(answer, position, bounds)
    first = max(position, 3)
    assert numbers_of(held.chunks) == ({} if position else {0: [0, 1, 2]})
    assert held.obstacle is not None
    assert (held.position, held.obstacle.offset, held.obstacle.next_offset) == (first, first, 8)
    assert (held.obstacle.kind, held.damage) == (TroubleKind.OVERSIZE, None)
    noted = take(answer, position, replace(bounds, aside=aside(SKIPPING)))
    assert numbers_of(chunk for chunk in noted.chunks if not chunk.lane)[0][-3:] == [8, 9, 10]
    (note,) = [record for chunk in noted.chunks if chunk.lane for record in records_of(chunk)]
    assert (noted.position, noted.left_out) == (11, {first: TroubleKind.OVERSIZE})
    return json.loads(note.value or b"")


@pytest.mark.parametrize(("gather_bytes", "position"), [(0, 0), (0, 4), (50_000, 4)])
def test_a_batch_that_is_never_decoded_as_a_whole_is_an_obstacle_or_noted(
    gather_bytes: int, position: int
) -> None:
    answer = build(0) + build(3, 5, size=10_000) + build(8)
    bounds = config(deep=not gather_bytes, gather_bytes=gather_bytes, decoded_bytes_max=20_000)
    assert note_of_obstacle(answer, position, bounds)["last_offset"] == 7


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("position", [0, 4])
def test_messages_of_old_formats_that_are_never_unpacked_are_an_obstacle_or_noted(
    magic: int, position: int
) -> None:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    large = [Record(3 + each, each if magic else -1, kind, None, bytes(10_000), ()) for each in range(5)]
    wrapper = build_message_set(large, magic, Codec.GZIP)
    answer, bounds = build(0) + wrapper + build(8), config(decoded_bytes_max=20_000)
    note = note_of_obstacle(answer, position, bounds)
    assert (note["last_offset"], note["timestamp_ms"]) == (7, 4 if magic else -1)
    assert take(answer, 8, bounds).left_out == {}
    (chunk,) = take(answer, 8, bounds).chunks
    assert chunk.first_offset == 8
    refused = take(answer, position, replace(bounds, is_shallow=True)).obstacle
    assert refused is not None
    assert refused.kind is TroubleKind.NOT_SHALLOW
    damaged = bytearray(wrapper)
    damaged[-1] ^= 1
    assert take(damaged, config=bounds).damage is not None


def test_records_without_a_time_cross_beside_one_of_the_last_time_there_is() -> None:
    times = [-1, 5, TIMESTAMP_MAX, -1]
    old = [Record(at, each, TimestampType.CREATE_TIME, b"", b"", ()) for at, each in enumerate(times)]
    for codec in (Codec.NONE, Codec.GZIP):
        (chunk,) = take(build_message_set(old, 1, codec)).chunks
        assert [record.timestamp for record in records_of(chunk)] == times
        assert (chunk.first_timestamp, chunk.max_timestamp) == (-1, TIMESTAMP_MAX)


def test_notes_are_split_by_what_their_topic_takes_and_none_is_too_large_for_it() -> None:
    bounds = config(steps=Spread(9, 9, 2), aside=aside(SKIPPING), side_limits={NOTED: BatchLimit(700, 700)})
    notes = [chunk for chunk in take(build(0, 12), config=bounds).chunks if chunk.lane == NOTED]
    assert all(chunk.size <= 700 for chunk in notes)
    assert [len(records_of(chunk)) for chunk in notes] == [4, 2]
    tiny = take(build(0, 12), config=replace(bounds, side_limits={NOTED: BatchLimit(9, 9)}))
    assert [chunk.first_offset for chunk in tiny.chunks if chunk.lane == NOTED] == [1, 3, 5, 7, 9, 11]
    assert tiny.obstacle is None


def test_batches_that_found_no_neighbour_pass_as_they_are() -> None:
    large, small = build(0, 20, codec=Codec.NONE, size=100), build(20)
    intake = take(large + small + large[:0], config=config(gather_bytes=1_000))
    assert [bytes(chunk.records) for chunk in intake.chunks] == [bytes(large), bytes(small)]
    assert not intake.deep


def test_a_batch_that_gathering_would_leave_out_passes_as_it_is() -> None:
    large = build(3, 5, size=10_000)
    answer = build(0) + large + build(8, 4, codec=Codec.NONE) + build(12, codec=Codec.NONE)
    intake = take(answer, config=config(gather_bytes=50_000, decoded_bytes_max=20_000))
    chunks = [bytes(chunk.records) for chunk in intake.chunks]
    assert chunks[1] == bytes(large)
    assert numbers_of(intake.chunks) == {0: list(range(15))}
    assert (intake.position, intake.obstacle, intake.left_out) == (15, None, {})
    assert intake.deep == {DeepReason.GATHERED: 3}


@pytest.mark.parametrize("kept", [(True, True, True), (True, False, True)], ids=["whole", "compacted"])
@pytest.mark.parametrize(
    ("flags", "wish"),
    [
        (TIMESTAMP_TYPE_FLAG, {}),
        (0, {"deep": True}),
        (0, {"gather_bytes": 50_000}),
        (0, {"steps": Spread(9, 9, 9)}),
        (0, {"batch_bytes_max": 150}),
    ],
    ids=["append-time", "deep", "gathered", "steps", "split"],
)
def test_names_of_headers_that_are_not_utf_8_cross_as_they_are(
    flags: int, wish: dict[str, object], kept: tuple[bool, ...]
) -> None:
    strange = build(3, codec=Codec.NONE, flags=flags)
    strange[strange.rindex(b"header")] = 0xFF
    write_header(strange, 0, read_header(strange))
    opened = open_batch(strange, read_header(strange), size_max=SIZE_MAX)
    batches = build(0, codec=Codec.NONE) + excerpt(opened, kept) + build(6, codec=Codec.NONE)
    intake = take(batches, config=config(**wish))
    names = []
    for chunk in sorted(intake.chunks, key=lambda chunk: chunk.first_offset):
        for place, header in iterate_batches(chunk.records):
            columns = read_columns(chunk.records[place:], header, size_max=SIZE_MAX, exact_names=True)
            names += [name_bytes(name) for headers in columns.headers for name, _ in headers]
    assert sorted(names) == [b"header"] * (len(names) - 1) + [b"\xffeader"]
    assert len(names) == 6 + sum(kept)


def test_damage_in_a_batch_that_was_to_be_gathered_is_told_where_it_is() -> None:
    damaged = build(3)
    damaged[-1] ^= 1
    intake = take(build(0) + damaged + build(6), config=config(gather_bytes=1_000))
    assert numbers_of(intake.chunks) == {0: [0, 1, 2]}
    assert intake.position == 3
    assert intake.damage is not None
    assert intake.deep == {DeepReason.GATHERED: 1}


def test_a_position_is_safe_only_once_a_note_that_comes_late_is() -> None:
    partition = Partition(SOURCE, [TopicPartition("a", 3), TopicPartition("notes", 0)], 0, 100, 1 << 20)
    main, notes = partition.lanes
    partition.extend_to(200)
    assert notes.acknowledged == 200
    (chunk,) = take(build(150, 1), position=150).chunks
    main.go_back_to(140)
    notes.append(chunk)
    partition.extend_to(170)
    assert (notes.position, notes.acknowledged, chunk.next_offset) == (200, 150, 200)
    chunk.acknowledged = True
    notes.take_acknowledged()
    assert notes.acknowledged == 200
