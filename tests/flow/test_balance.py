"""Shares of work: even, sticky, and at rest once they are good enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.balance import DIFFERENCE_MIN, PART_MAX, share_out

WEIGHTS = st.dictionaries(st.integers(0, 63), st.integers(1, 10_000), max_size=40)
MEMBERS = st.integers(1, 8).map(lambda count: [f"m{index}" for index in range(count)])


def loads(weights: dict[int, int], owners: dict[int, str], members: list[str]) -> dict[str, int]:
    return {
        member: sum(weights[bucket] for bucket, owner in owners.items() if owner == member)
        for member in members
    }


@given(WEIGHTS, MEMBERS, st.data())
def test_every_bucket_has_one_owner_and_nothing_moves_once_it_is_shared_out(
    weights: dict[int, int], members: list[str], data: st.DataObject
) -> None:
    owners = {bucket: data.draw(st.sampled_from([*members, None])) for bucket in weights}
    shared = share_out(weights, owners, members)
    assert shared.keys() == weights.keys()
    assert set(shared.values()) <= set(members)
    assert share_out(weights, shared, members) == shared


@given(WEIGHTS, MEMBERS)
def test_who_has_much_more_than_the_idlest_has_nothing_that_could_move(
    weights: dict[int, int], members: list[str]
) -> None:
    shared = share_out(weights, {}, members)
    load = loads(weights, shared, members)
    least = min(load.values())
    for bucket, owner in shared.items():
        difference = load[owner] - least
        assert difference <= load[owner] * DIFFERENCE_MIN or weights[bucket] > difference * PART_MAX


def test_many_small_buckets_are_shared_evenly_too() -> None:
    shared = share_out(dict.fromkeys(range(1000), 1), dict.fromkeys(range(1000), "a"), ["a", "b", "c"])
    load = loads(dict.fromkeys(range(1000), 1), shared, ["a", "b", "c"])
    assert max(load.values()) <= min(load.values()) / (1 - DIFFERENCE_MIN)


@given(WEIGHTS, MEMBERS, st.lists(st.integers(-40, 40), min_size=64, max_size=64), st.integers(2, 5))
def test_figures_that_waver_move_nothing_back_and_forth(
    weights: dict[int, int], members: list[str], noise: list[int], turns: int
) -> None:
    """By up to four per cent, in each turn the other way."""
    grown = {bucket: weight * 1000 for bucket, weight in weights.items()}
    owners = share_out(grown, {}, members[:2])
    history = {bucket: [owner] for bucket, owner in owners.items()}
    for turn in range(turns):
        sign = 1 if turn % 2 else -1
        wavering = {
            bucket: weight + sign * weight * noise[bucket] // 1000 for bucket, weight in grown.items()
        }
        owners = share_out(wavering, owners, members[:2])
        for bucket, owner in owners.items():
            if history[bucket][-1] != owner:
                history[bucket].append(owner)
    assert all(len(owned) <= 2 for owned in history.values())


def test_a_bucket_that_is_more_than_all_others_stays_and_the_others_go() -> None:
    weights = {0: 100, 1: 10, 2: 10, 3: 10}
    shared = share_out(weights, {0: "a", 1: "a", 2: "b", 3: "b"}, ["a", "b"])
    assert shared == {0: "a", 1: "b", 2: "b", 3: "b"}


def test_what_a_giver_cannot_even_the_next_one_does() -> None:
    weights = {0: 1000, 1: 50, 2: 50}
    shared = share_out(weights, {0: "a", 1: "b", 2: "b"}, ["a", "b", "c"])
    assert sorted(loads(weights, shared, ["a", "b", "c"]).values()) == [50, 50, 1000]
    assert shared[0] == "a"
