"""What a process could use of a limit, and what becomes of its debts when its part of one changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.bandwidth.appetite import HEADROOM, Appetite
from mirrormaker.flow.bandwidth.bucket import BURST_MS, Bucket
from mirrormaker.flow.bandwidth.shares import Share

LIMIT, PIECE = 100_000, 1_000


class Sender:
    """Has so many bytes a second to send, and looks four times a second."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.bucket = Bucket(LIMIT, 0)
        self.root = Share(bucket=self.bucket)
        self.leaf = Share(self.root)
        self.appetite = Appetite(self.root)
        self._left = 0.0

    def run(self, from_ms: int, until_ms: int) -> None:
        for now_ms in range(from_ms, until_ms, 10):
            self._left += self.wanted / 100
            while self._left >= PIECE:
                if not self.leaf.is_waiting:
                    self.leaf.wait()
                if self.root.next_leaf(now_ms) is None:
                    break
                self.leaf.serve(PIECE, now_ms)
                self._left -= PIECE
            if now_ms % 250 == 0:
                self.appetite.look(now_ms)


@given(st.integers(0, 80_000))
def test_who_wants_less_than_there_is_could_use_somewhat_more_than_it_sends(wanted: int) -> None:
    sender = Sender(wanted)
    sender.run(0, 20_000)
    assert not sender.appetite.is_hungry
    part = sender.appetite.part_of(LIMIT)
    assert abs(part - min(wanted * HEADROOM / LIMIT, 1)) < 0.05


@given(st.integers(120_000, 1_000_000))
def test_who_wants_more_could_use_all_and_no_longer_once_it_wants_less(wanted: int) -> None:
    sender = Sender(wanted)
    sender.run(0, 5_000)
    assert sender.appetite.part_of(LIMIT) == 1
    sender.wanted, sender._left = 10_000, 0
    sender.run(5_000, 25_000)
    assert sender.appetite.part_of(LIMIT) < 0.2


def test_a_debt_stays_when_only_the_part_is_another_and_is_forgiven_when_the_limit_is() -> None:
    bucket = Bucket(1_000, 0)
    bucket.spend(5_000, 0)
    owed = 5_000 - 1_000 * BURST_MS // 1000
    bucket.set_rate(1_000, 0, 0.5)
    assert bucket.opens_at_ms(0) == owed * 2
    bucket.set_rate(1_000, 0)
    assert bucket.opens_at_ms(0) == owed
    bucket.set_rate(100, 0)
    assert bucket.opens_at_ms(0) == BURST_MS


@given(st.lists(st.tuples(st.integers(0, 2_000), st.floats(0.01, 1), st.integers(1, 50_000)), max_size=60))
def test_parts_that_change_all_the_time_pass_no_more_than_their_rates_a_burst_and_a_piece(
    steps: list[tuple[int, float, int]],
) -> None:
    bucket = Bucket(LIMIT, 0)
    now_ms, part, allowed, passed = 0, 1.0, LIMIT * BURST_MS / 1000, 0
    for wait_ms, next_part, size in steps:
        now_ms += wait_ms
        allowed += LIMIT * part * wait_ms / 1000
        if bucket.is_open(now_ms):
            bucket.spend(size, now_ms)
            passed += size
            assert passed <= allowed + size + 1
        bucket.set_rate(LIMIT, now_ms, next_part)
        part = next_part
