"""Heartbeats on their way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.record import Record
from mirrormaker.flow.heartbeats.beat import (
    HOPS_MAX,
    KEY_PREFIX,
    Beat,
    Hop,
    decode_beat,
    encode_beat,
    encode_key,
)
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage

PLANT = Beat(cluster="id-plant", name="plant", daemon="d", host="h", at_ms=1_000)


def record(offset: int, beat: Beat | bytes | None = PLANT) -> Record:
    value = encode_beat(beat) if isinstance(beat, Beat) else beat
    return Record(offset, 1_000, 0, encode_key("id-plant"), value, ())


def passage(
    now_ms: int = 1_500, source: str = "id-region", destination: str = "id-centre"
) -> HeartbeatPassage:
    return HeartbeatPassage(source, destination, "up", lambda: now_ms)


def at(at_ms: int, cluster: str = "id-plant") -> Beat:
    return Beat(cluster=cluster, name="n", daemon="d", host="h", at_ms=at_ms)


@given(
    st.text(), st.integers(0, 1 << 50), st.lists(st.tuples(st.text(), st.text(), st.integers()), max_size=5)
)
def test_what_is_written_is_read(text: str, at_ms: int, hops: list[tuple[str, str, int]]) -> None:
    path = tuple(Hop(cluster=cluster, route=route, at_ms=when) for cluster, route, when in hops)
    beat = Beat(cluster=text, name=text, daemon=text, host=text, at_ms=at_ms, path=path)
    assert decode_beat(encode_beat(beat)) == beat
    assert json.loads(encode_key(text)) == {"heartbeat": text}
    assert encode_key(text).startswith(KEY_PREFIX.encode())


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"\xff", b"[]", b"{}", b'{"cluster":1}', encode_beat(PLANT).replace(b"[]", b"[3]")),
        b"[" * 100_000,
        encode_beat(PLANT).replace(b'"plant"', b'"\\ud800"'),
        encode_beat(PLANT).replace(b": 1000", b": -1" + b"0" * 400),
        encode_beat(PLANT).replace(b": 1000", b": 1" + b"0" * 400),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_others_write_there_is_no_heartbeat(value: bytes | None) -> None:
    assert decode_beat(value) is None
    assert passage().apply(record(0, value)) == ()


def test_a_heartbeat_goes_on_with_the_route_on_its_path_and_is_heard_of_once_it_is_there() -> None:
    way = passage()
    ((lane, carried),) = way.apply(record(7))
    assert (lane, carried.offset, carried.key) == (0, 7, encode_key("id-plant"))
    hop = Hop(cluster="id-region", route="up", at_ms=1_500)
    assert decode_beat(carried.value) == PLANT.via(hop)
    way.arrived(7)
    assert way.describe() == {}
    way.arrived(8)
    assert way.describe() == {
        "id-plant": {"name": "plant", "path": ["up"], "born_ms": 1_000, "arrived_ms": 1_500}
    }


def test_a_heartbeat_never_comes_back_to_where_it_has_been() -> None:
    assert passage(destination="id-plant").apply(record(0)) == ()
    been = PLANT.via(Hop(cluster="id-centre", route="down", at_ms=1))
    assert passage().apply(record(0, been)) == ()
    tired = PLANT
    for number in range(HOPS_MAX):
        tired = tired.via(Hop(cluster=f"id-{number}", route="r", at_ms=1))
    assert passage().apply(record(0, tired)) == ()


def test_of_several_paths_the_first_to_bring_a_heartbeat_counts() -> None:
    way = passage()
    passed = [
        beat.at_ms
        for offset, beat in enumerate([at(10), at(10), at(20), at(15), at(5, "id-other"), at(21)])
        if way.apply(record(offset, beat))
    ]
    assert passed == [10, 20, 5, 21]


def test_what_is_fetched_once_more_goes_on_once_more() -> None:
    way = passage()
    for offset, at_ms in [(0, 10), (1, 20)]:
        assert way.apply(record(offset, at(at_ms)))
    assert not way.apply(record(0, at(10))), "a newer one is under way"
    assert way.apply(record(1, at(20)))
    way.arrived(2)
    assert way.describe()["id-plant"]["born_ms"] == 20


def test_a_clock_that_was_set_right_does_not_keep_heartbeats_until_its_former_time_comes() -> None:
    now_ms = 10_000_000
    up = HeartbeatPassage("id-region", "id-centre", "up", lambda: now_ms)
    hour_ahead = now_ms + 3_600_000
    assert up.apply(record(0, at(hour_ahead)))
    assert up.apply(record(1, at(now_ms)))
    assert not up.apply(record(2, at(now_ms - 1)))
    assert up.apply(record(3, at(now_ms + 1_000)))
    up.arrived(4)
    assert up.describe()["id-plant"]["born_ms"] == now_ms + 1_000
