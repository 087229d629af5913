"""Fair shares: by weight, nothing wasted, nobody left waiting, limits kept."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.bandwidth.bucket import BURST_MS, Bucket
from mirrormaker.flow.bandwidth.shares import VOID_ENTRIES_MAX, Share

SIZES = st.integers(1, 5_000)


@dataclass(eq=False)
class Flow:
    """A leaf that always has a piece waiting, of sizes that repeat."""

    leaf: Share
    sizes: list[int]
    weight: int = 1
    served: int = 0
    pieces: int = 0

    @property
    def size(self) -> int:
        return self.sizes[self.pieces % len(self.sizes)]

    def serve(self, now_ms: int) -> None:
        size = self.size
        self.leaf.serve(size, now_ms)
        self.served += size
        self.pieces += 1


def turn(root: Share, flows: list[Flow], now_ms: int = 0) -> Flow | None:
    """Serve one piece; whoever was served has another at once."""
    leaf = root.next_leaf(now_ms)
    if leaf is None:
        return None
    flow = next(each for each in flows if each.leaf is leaf)
    flow.serve(now_ms)
    leaf.wait()
    return flow


@given(
    st.lists(st.tuples(st.integers(1, 10), st.lists(SIZES, min_size=1, max_size=5)), min_size=2, max_size=6),
    st.integers(1, 300),
)
def test_what_two_that_always_wait_got_differs_by_a_piece_of_each(
    kinds: list[tuple[int, list[int]]], turns: int
) -> None:
    root = Share()
    flows = [Flow(Share(root, weight=weight), sizes, weight) for weight, sizes in kinds]
    for flow in flows:
        flow.leaf.wait()
    for _ in range(turns):
        assert turn(root, flows) is not None
    for one in flows:
        for other in flows:
            apart = one.served / one.weight - other.served / other.weight
            assert apart <= max(one.sizes) / one.weight + max(other.sizes) / other.weight + 1e-6


@given(st.integers(1, 40), st.integers(1, 200))
def test_a_topic_of_many_lanes_gets_no_more_than_one_of_a_single_lane(lanes: int, turns: int) -> None:
    root = Share()
    busy, quiet = Share(root), Share(root)
    flows = [Flow(Share(busy), [100]) for _ in range(lanes)] + [Flow(Share(quiet), [100])]
    for flow in flows:
        flow.leaf.wait()
    for _ in range(turns):
        turn(root, flows)
    assert abs(sum(flow.served for flow in flows[:-1]) - flows[-1].served) <= 200


@given(st.integers(2, 50))
def test_who_comes_late_has_saved_up_nothing_and_is_next(before: int) -> None:
    root = Share()
    early, late = Flow(Share(root), [100]), Flow(Share(root), [100])
    early.leaf.wait()
    for _ in range(before):
        turn(root, [early, late])
    late.leaf.wait()
    for _ in range(10):
        turn(root, [early, late])
    assert abs(late.served - 500) <= 100


@given(st.data())
def test_something_passes_whenever_something_waits_that_no_limit_forbids(data: st.DataObject) -> None:
    root = Share()
    inner = [Share(root, weight=data.draw(st.integers(1, 10))) for _ in range(3)]
    leaves = [Share(data.draw(st.sampled_from(inner))) for _ in range(8)]
    waiting: set[Share] = set()
    for _ in range(60):
        leaf = data.draw(st.sampled_from(leaves))
        match data.draw(st.sampled_from(("wait", "leave", "serve"))):
            case "wait" if leaf not in waiting:
                leaf.wait()
                waiting.add(leaf)
            case "leave" if leaf in waiting:
                leaf.leave()
                waiting.discard(leaf)
            case _:
                served = root.next_leaf(0)
                assert (served is None) == (not waiting)
                if served is not None:
                    served.serve(data.draw(SIZES), 0)
                    waiting.remove(served)
        assert root.is_waiting == bool(waiting)


def test_a_limit_of_one_leaves_the_rest_to_the_others() -> None:
    bucket = Bucket(1_000, 0)
    root = Share(bucket=Bucket(10_000, 0))
    limited = Flow(Share(root, weight=10, bucket=bucket), [100])
    free = Flow(Share(root), [100])
    flows = [limited, free]
    for flow in flows:
        flow.leaf.wait()
    for now_ms in range(0, 10_000, 10):
        while turn(root, flows, now_ms) is not None:
            pass
    assert abs(limited.served - 10_000) <= 1_000 * BURST_MS / 1000 + 100
    assert abs(limited.served + free.served - 100_000) <= 10_000 * BURST_MS / 1000 + 100


def test_one_that_a_limit_held_for_long_does_not_take_everything_afterwards() -> None:
    bucket = Bucket(0, 0)
    root = Share()
    held, other = Flow(Share(root, bucket=bucket), [100]), Flow(Share(root), [100])
    flows = [held, other]
    for flow in flows:
        flow.leaf.wait()
    for _ in range(100):
        assert turn(root, flows) is other
    bucket.set_rate(None, 0)
    for _ in range(20):
        turn(root, flows)
    assert abs(held.served - 1_000) <= 200


def test_what_passes_one_that_a_limit_holds_leaves_nothing_in_the_line() -> None:
    root = Share()
    held = Flow(Share(root, bucket=Bucket(0, 0)), [100])
    others = [Flow(Share(root), [100]) for _ in range(3)]
    flows = [held, *others]
    for flow in flows:
        flow.leaf.wait()
    for _ in range(300):
        assert turn(root, flows) is not held
        assert len(root._line) <= 2 * len(flows) + VOID_ENTRIES_MAX
    assert max(flow.served for flow in others) - min(flow.served for flow in others) <= 100


@given(st.lists(st.tuples(st.integers(0, 400), SIZES), min_size=1, max_size=80), st.integers(100, 100_000))
def test_a_bucket_passes_its_rate_and_a_burst_and_one_piece(pieces: list[tuple[int, int]], rate: int) -> None:
    bucket = Bucket(rate, 0)
    now_ms, passed = 0, 0
    for wait_ms, size in pieces:
        now_ms += wait_ms
        if bucket.is_open(now_ms):
            bucket.spend(size, now_ms)
            passed += size
            assert passed <= rate * (now_ms + BURST_MS) / 1000 + size + 1
        else:
            opens_at_ms = bucket.opens_at_ms(now_ms)
            assert opens_at_ms is not None
            assert opens_at_ms > now_ms
            assert bucket.is_open(opens_at_ms)
            now_ms = opens_at_ms


def test_nothing_passes_at_zero_and_everything_without_a_limit() -> None:
    bucket = Bucket(0, 0)
    assert not bucket.is_open(10_000)
    assert bucket.opens_at_ms(10_000) is None
    bucket.set_rate(None, 10_000)
    bucket.spend(1 << 40, 10_000)
    assert bucket.is_open(10_000)
    bucket.set_rate(100, 20_000)
    assert bucket.opens_at_ms(20_000) == 20_000
