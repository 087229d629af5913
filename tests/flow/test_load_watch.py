"""When members measure, what they tell, and when they ask for a rebalance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.bucket_rates import (
    IDLE_BYTES_PER_SECOND,
    GroupLoad,
    RateMeter,
    decode_load,
    decode_rates,
    encode_load,
    encode_rates,
    quantised,
)
from mirrormaker.flow.load_watch import REST_MAX_MS, REST_MS, LoadWatch

MEGABYTE = 1 << 20
UNEVEN = GroupLoad(rates={0: 8 * MEGABYTE, 1: 8 * MEGABYTE, 2: MEGABYTE}, members=2)
OWN = {0: 8 * MEGABYTE, 1: 8 * MEGABYTE}


@given(st.integers(IDLE_BYTES_PER_SECOND, 1 << 40))
def test_told_figures_are_near_the_measured_ones(rate: int) -> None:
    assert 0.9 < quantised(rate) / rate < 1.1


def test_next_to_nothing_is_nothing() -> None:
    assert quantised(0) == quantised(IDLE_BYTES_PER_SECOND - 1) == 0


def test_rates_come_of_running_totals_and_follow_slowly() -> None:
    meter = RateMeter()
    meter.measure({3: 0}, 0)
    assert meter.rates() == {}
    meter.measure({3: 5 * MEGABYTE}, 5_000)
    assert meter.rates() == {3: MEGABYTE}
    meter.measure({3: 5 * MEGABYTE}, 10_000)
    assert MEGABYTE / 2 < meter.rates()[3] < MEGABYTE
    for turn in range(3, 40):
        meter.measure({3: 5 * MEGABYTE}, turn * 5_000)
    assert meter.rates()[3] < MEGABYTE / 100


def test_a_bucket_that_is_given_up_is_forgotten_and_one_that_begins_anew_has_no_negative_rate() -> None:
    meter = RateMeter()
    meter.measure({3: 0, 4: 0}, 0)
    meter.measure({3: MEGABYTE, 4: MEGABYTE}, 1_000)
    meter.measure({3: 0}, 2_000)
    assert meter.rates() == {3: MEGABYTE}


@given(st.dictionaries(st.integers(0, 1000), st.integers(0, 1 << 40)), st.integers(1, 100))
def test_what_is_told_is_understood(rates: dict[int, int], members: int) -> None:
    assert decode_rates(encode_rates(rates)) == rates
    load = GroupLoad(rates=rates, members=members)
    assert decode_load(encode_load(load)) == load


@given(st.binary(max_size=40) | st.sampled_from([b"[]", b'{"rates": 1}', b'{"members": "x"}', b"7"]))
def test_what_cannot_be_understood_tells_nothing(data: bytes) -> None:
    assert decode_rates(data) == {}
    assert decode_load(data).rates == {}


def watch(load: GroupLoad = UNEVEN, held: tuple[int, ...] = (0, 1)) -> LoadWatch:
    made = LoadWatch(0)
    made.shared_out(load, held, 0)
    return made


def test_a_member_with_far_more_than_the_mean_asks_after_a_rest_and_once() -> None:
    asking = watch()
    assert not asking.asks(OWN, REST_MS - 1)
    assert asking.asks(OWN, REST_MS)
    assert not asking.asks(OWN, REST_MS + 1)


def test_who_asks_in_vain_rests_longer_until_something_moves() -> None:
    asking, now_ms, rests = watch(), 0, []
    for _ in range(8):
        began_ms = now_ms
        while not asking.asks(OWN, now_ms):
            now_ms += 1000
        rests.append(now_ms - began_ms)
        asking.shared_out(UNEVEN, (0, 1), now_ms)
    assert rests == [min(REST_MS << turn, REST_MAX_MS) for turn in range(8)]
    asking.shared_out(UNEVEN, (0, 1, 2), now_ms)
    assert asking.asks(OWN, now_ms + REST_MS)


def test_nobody_asks_for_little_or_alone_or_with_a_single_bucket() -> None:
    assert not watch(GroupLoad(rates={0: 9000, 1: 9000}, members=2)).asks({0: 9000, 1: 9000}, REST_MS)
    assert not watch(GroupLoad(rates=OWN, members=1)).asks(OWN, REST_MS)
    assert not watch(GroupLoad(), (0, 1)).asks(OWN, REST_MS)
    assert not watch(held=(0,)).asks({0: 8 * MEGABYTE}, REST_MS)


def test_nobody_asks_with_an_even_share() -> None:
    load = GroupLoad(rates=dict.fromkeys(range(4), MEGABYTE), members=2)
    assert not watch(load).asks({0: MEGABYTE, 1: MEGABYTE}, REST_MS)
