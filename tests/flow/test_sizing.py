"""Depth and sizes by round trip and speed; what the file says is taken as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.answer_size import ANSWER_BYTES_MIN, AnswerSize
from mirrormaker.flow.delivery_rate import SPAN_MS, DeliveryRate
from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.fetch_planning import next_fetch_bytes
from mirrormaker.flow.round_trips import SPAN_MS as ROUND_TRIP_SPAN_MS
from mirrormaker.flow.round_trips import SPANS_KEPT, RoundTrips
from mirrormaker.flow.sizing import IN_FLIGHT_MIN, IN_FLIGHT_USUAL, Ways, fetching, flow_config
from mirrormaker.topology.model import BatchSpec, Resources

MB = 1_000_000


def sized(ways: Ways, resources: Resources | None = None) -> FlowConfig:
    return flow_config(resources or Resources(), ways, chunk_batches_max=1024)


def test_a_near_route_has_the_usual_sizes() -> None:
    config = sized(Ways(source_ms=0.5, destination_ms=0.5))
    assert (config.requests_in_flight, config.in_flight_bytes) == (5, IN_FLIGHT_USUAL)
    assert (config.produce_bytes, config.partition_buffer_bytes) == (1 << 20, 8 << 20)
    assert fetching(Resources(), Ways(source_ms=0.5)).lanes == 1


@given(st.floats(0, 1_000), st.floats(1_000, 1e9), st.sampled_from([1 << 20, 48 << 20, 1 << 30]))
def test_what_is_under_way_covers_the_way_within_the_buffer(
    round_trip_ms: float, rate: float, buffer_bytes: int
) -> None:
    config = sized(
        Ways(destination_ms=round_trip_ms, delivery_rate=rate), Resources(buffer_bytes=buffer_bytes)
    )
    on_the_way = rate * round_trip_ms / 1000
    assert config.in_flight_bytes <= buffer_bytes
    assert config.in_flight_bytes >= min(on_the_way, buffer_bytes) - 1
    assert config.in_flight_bytes <= max(rate, IN_FLIGHT_MIN)
    assert 5 * config.produce_bytes >= min(config.in_flight_bytes, 80 << 20)


def test_speed_that_was_found_may_double_from_one_look_to_the_next() -> None:
    rate, way_ms, width = 1 * MB, 150.0, 100 * MB
    for _ in range(12):
        in_flight = sized(Ways(destination_ms=way_ms, delivery_rate=rate)).in_flight_bytes
        rate = min(width, round(in_flight * 1000 / way_ms))
    assert rate == width


def test_what_the_file_says_is_taken_as_it_is() -> None:
    resources = Resources(
        requests_in_flight=3,
        produce_bytes=4096,
        fetch_bytes=65536,
        fetch_partition_bytes=16384,
        partition_buffer_bytes=32768,
    )
    ways = Ways(source_ms=150, destination_ms=150, delivery_rate=100 * MB, limit=1000)
    config = sized(ways, resources)
    assert (config.requests_in_flight, config.in_flight_bytes) == (3, 3 * 4096)
    assert (config.produce_bytes, config.built_batch_bytes) == (4096, 4096)
    assert (config.fetch_partition_bytes, config.fetch_partition_bytes_full) == (16384, 16384)
    assert config.partition_buffer_bytes == 32768
    found = fetching(resources, ways)
    assert (found.answer_bytes, found.answer_bytes_max) == (65536, 65536)


@pytest.mark.parametrize(
    ("batch_bytes", "fetched_bytes"), [(16 << 10, 1 << 20), (4 << 20, 4 << 20), (1 << 30, 8 << 20)]
)
def test_batches_are_built_up_to_the_size_that_the_file_says(batch_bytes: int, fetched_bytes: int) -> None:
    config = flow_config(
        Resources(produce_bytes=1 << 20), Ways(), chunk_batches_max=1, batch=BatchSpec(bytes=batch_bytes)
    )
    assert (config.gather_bytes, config.built_batch_bytes) == (batch_bytes, batch_bytes)
    assert config.fetch_partition_bytes == config.fetch_partition_bytes_full == fetched_bytes
    asked = Resources(fetch_partition_bytes=4096)
    kept = flow_config(asked, Ways(), chunk_batches_max=1, batch=BatchSpec(bytes=batch_bytes))
    assert kept.fetch_partition_bytes == 4096


def test_under_a_low_limit_others_wait_for_a_tenth_of_a_second() -> None:
    assert sized(Ways(limit=2 * MB)).produce_bytes == 200_000
    assert sized(Ways(limit=10)).produce_bytes == 32 << 10
    assert sized(Ways(limit=500 * MB)).produce_bytes == 1 << 20


def test_far_brokers_are_asked_by_several_fetches_at_a_time() -> None:
    lanes = [fetching(Resources(), Ways(source_ms=source_ms)).lanes for source_ms in (1, 10, 150)]
    assert lanes == [1, 2, 3]


def test_a_partition_asks_for_more_while_its_answers_are_full() -> None:
    config = FlowConfig(fetch_partition_bytes=100, fetch_partition_bytes_full=1_000)
    asked, sizes = 100, []
    for came in (100, 200, 390, 800, 1_000, 500, 100, 10, 0, 0):
        asked = next_fetch_bytes(asked, came, config)
        sizes.append(asked)
    assert sizes == [200, 400, 800, 1_000, 1_000, 1_000, 500, 250, 125, 100]
    assert next_fetch_bytes(100, 100, replace(config, fetch_partition_bytes_full=0)) == 100


def test_answers_grow_until_round_trips_are_small_beside_them_and_shrink_when_slow() -> None:
    size = AnswerSize(1 * MB)
    for _ in range(10):
        elapsed_ms = 150 + size.bytes / 20_000
        size.took(size.bytes, size.bytes, elapsed_ms, 150, fetchers=1, largest=24 * MB)
    assert size.bytes == 24 * MB or size.bytes / 20_000 >= 8 * 150
    size = AnswerSize(8 * MB)
    for _ in range(10):
        size.took(size.bytes, size.bytes, size.bytes / 500, 150, fetchers=1, largest=24 * MB)
    assert size.bytes / 500 <= 3_000
    for _ in range(20):
        size.timed_out()
    assert size.bytes == ANSWER_BYTES_MIN


def test_an_answer_that_waited_for_records_says_nothing_of_the_way() -> None:
    size = AnswerSize(1 * MB)
    size.took(1 * MB, 10_000, 5_000, 1, fetchers=1, largest=8 * MB)
    assert size.bytes == 1 * MB


def test_speed_is_measured_from_answer_to_answer() -> None:
    rate = DeliveryRate()
    for _ in range(100):
        rate.sent(1_000, 0)
    for turn in range(60):
        rate.ended(1_000, 5_000 + turn * 10, is_answered=True)
    assert rate.per_second == 100_000


def test_a_pause_does_not_lower_the_speed_and_a_failure_is_not_counted() -> None:
    rate = DeliveryRate()
    for turn in range(2 * SPAN_MS // 10):
        rate.sent(1_000, turn * 10)
        rate.sent(1_000, turn * 10)
        rate.ended(1_000, turn * 10, is_answered=True)
    fast = rate.per_second
    now_ms = 10_000
    while rate._in_flight:
        rate.ended(1_000, now_ms, is_answered=False)
    for _ in range(20):
        now_ms += 5_000
        rate.sent(10, now_ms)
        rate.ended(10, now_ms + 100, is_answered=True)
    assert rate.per_second == fast


def test_requests_that_go_one_at_a_time_raise_a_speed_that_is_known() -> None:
    rate = DeliveryRate()
    rate.sent(1_000, 0)
    rate.ended(1_000, 150, is_answered=True)
    assert rate.per_second is None, "a little that came in a round trip says nothing of the way"
    for turn in range(2 * SPAN_MS // 10):
        rate.sent(1_000, turn * 10)
        rate.sent(1_000, turn * 10)
        rate.ended(1_000, turn * 10, is_answered=True)
    while rate._in_flight:
        rate.ended(1_000, 1_000, is_answered=False)
    assert rate.per_second == 100_000
    rate.sent(900_000, 2_000)
    rate.ended(900_000, 2_200, is_answered=True)
    assert rate.per_second == 4_500_000
    rate.sent(900_000, 3_000)
    rate.ended(900_000, 3_005, is_answered=True)
    rate.sent(900_000, 3_010)
    rate.ended(900_000, 3_200, is_answered=False)
    assert rate.per_second == 4_500_000, "what was too quick to tell, or failed, raises nothing"


def test_the_shortest_round_trip_of_the_last_minutes_counts() -> None:
    trips = RoundTrips()
    trips.observe(1, 150, 0)
    trips.observe(1, 400, 1_000)
    trips.observe(2, 50, 1_000)
    assert (trips.by_broker, trips.longest_ms) == ({1: 150, 2: 50}, 150)
    for minute in range(1, SPANS_KEPT + 1):
        trips.observe(1, 300, minute * ROUND_TRIP_SPAN_MS)
    assert trips.by_broker[1] == 300
    trips.keep({2})
    assert trips.by_broker == {2: 50}
