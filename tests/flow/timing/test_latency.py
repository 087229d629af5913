"""How long records took."""

from __future__ import annotations

from mirrormaker.flow.copied import Copied
from mirrormaker.flow.lag import EndHistory
from mirrormaker.flow.timing.histogram import bucket_of
from mirrormaker.flow.timing.latency import Basis, Latency, arrival_of
from tests.flow.timing.partitions import ORDERS

WALL_SHIFT_MS = 1_000_000


def copied(first: int, count: int, max_timestamp: int) -> Copied:
    return Copied(
        source=ORDERS,
        first=first,
        next=first + count,
        destination=ORDERS,
        base_offset=first,
        count=count,
        crc=None,
        source_crc=None,
        max_timestamp=max_timestamp,
        append_time_ms=None,
        origin=0,
    )


def seen(*ends: tuple[int, int, int]) -> EndHistory:
    history = EndHistory()
    for end, now_ms, asked_ms in ends:
        history.observe(end, now_ms, asked_ms)
    return history


def test_a_timestamp_counts_between_the_looks_that_did_not_and_did_find_the_record() -> None:
    history = seen((10, 5_000, 4_990), (10, 6_000, 5_500), (20, 6_100, 6_010))
    for said_ms, taken_ms in [(5_800, 5_800), (6_050, 6_050), (1_000, 5_500), (9_000, 6_100)]:
        assert arrival_of(copied(15, 5, WALL_SHIFT_MS + said_ms), history, WALL_SHIFT_MS) == taken_ms


def test_what_was_there_before_the_first_look_is_as_old_as_it_says_unless_it_is_a_backlog() -> None:
    history = seen((20, 6_100, 6_010))
    assert arrival_of(copied(15, 5, WALL_SHIFT_MS - 50_000), history, WALL_SHIFT_MS) == -50_000
    assert arrival_of(copied(15, 5, WALL_SHIFT_MS - 60_000), history, WALL_SHIFT_MS) is None
    assert arrival_of(copied(15, 5, -1), history, WALL_SHIFT_MS) == 6_100


def test_without_looks_or_timestamps_nothing_is_known() -> None:
    assert arrival_of(copied(15, 5, WALL_SHIFT_MS + 5), None, WALL_SHIFT_MS) == 5
    assert arrival_of(copied(15, 5, -1), None, WALL_SHIFT_MS) is None
    assert arrival_of(copied(15, 5, -1), seen((10, 1, 1)), WALL_SHIFT_MS) is None


def test_latencies_are_counted_by_what_the_timestamps_are() -> None:
    latency = Latency(0)
    latency.count(ORDERS, 100, 3, 108)
    latency.bases = {"orders": Basis.APPEND}
    latency.count(ORDERS, 100, 5, 132)
    told = latency.describe(200)
    assert told["create"]["buckets"] == told["create"]["recent"] == {str(bucket_of(8)): 3}
    assert told["append"]["buckets"] == {str(bucket_of(32)): 5}
    assert (told["append"]["records"], told["append"]["seconds"]) == (5, 0.16)


def test_what_a_transaction_wrote_counts_once_readers_see_it() -> None:
    latency = Latency(0)
    latency.hold(ORDERS, 10, 100, 10)
    latency.hold(ORDERS, 20, 200, 10)
    latency.settle(lambda _: 10, 500)
    assert latency.describe(500)["create"]["recent"] == {str(bucket_of(400)): 10}
    latency.settle(lambda _: None, 600)
    latency.settle(lambda _: 20, 700)
    assert latency.describe(700)["create"]["records"] == 10, "a partition that is gone is copied by others"
