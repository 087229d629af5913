"""Processes that share a limit: together never above it, whatever is lost; and used by who needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormaker.flow.bandwidth.fair_parts import Want, fair_parts
from mirrormaker.flow.bandwidth.lending import KEPT, LOAN_MS, Lending
from mirrormaker.flow.bandwidth.statements import (
    LimitName,
    Need,
    Statement,
    decode_statements,
    encode_statement,
    member_name,
)
from mirrormaker.topology.model import ClusterName

LINK = LimitName("link jfk aggregate")
AGGREGATE = ClusterName("aggregate")
PARTS = st.floats(0, 1)
WEIGHTS = st.floats(0.1, 10)


@given(st.lists(st.tuples(PARTS, WEIGHTS), min_size=1, max_size=8), st.floats(0.1, 1))
def test_fair_parts_are_within_wants_and_the_total_and_leave_nothing_that_is_wanted(
    kinds: list[tuple[float, float]], total: float
) -> None:
    wants = {number: Want(part=part, weight=weight) for number, (part, weight) in enumerate(kinds)}
    parts = fair_parts(wants, total)
    assert all(parts[number] <= want.part + 1e-9 for number, want in wants.items())
    assert sum(parts.values()) == pytest.approx(min(total, sum(want.part for want in wants.values())))
    levels = [parts[number] / want.weight for number, want in wants.items()]
    for number, want in wants.items():
        if parts[number] < want.part - 1e-9:
            assert parts[number] / want.weight == pytest.approx(max(levels)), "less than it wants: the most"


IDLE, BUSY = Want(part=0.0), Want(part=1.0)


@dataclass(eq=False)
class Process:
    """One of them, with a clock of its own."""

    number: int
    clock_ms: int
    """What its clock shows when the others' time is 0."""
    want: Want = BUSY
    starts: int = 0
    is_alive: bool = True
    lending: Lending = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.is_alive = True
        self.lending = Lending(AGGREGATE, member_name(f"d/{self.number}", str(self.starts)))

    def part(self, members: int, time_ms: int) -> float:
        return self.lending.part(LINK, members, self.clock_ms + time_ms) if self.is_alive else 0.0

    def tell(self, members: int, time_ms: int) -> Statement:
        need = Need(members=members, want=self.want)
        return self.lending.tell({LINK: need}, self.clock_ms + time_ms)

    def hear(self, statement: Statement, time_ms: int) -> None:
        (decoded,) = decode_statements([encode_statement(statement)])
        assert decoded == statement
        self.lending.hear(decoded, self.clock_ms + time_ms)


def exchange(processes: Sequence[Process], time_ms: int) -> None:
    told = [each.tell(len(processes), time_ms) for each in processes]
    for process in processes:
        for statement in told:
            process.hear(statement, time_ms)


def parts(processes: Sequence[Process], time_ms: int) -> list[float]:
    return [each.part(len(processes), time_ms) for each in processes]


@settings(max_examples=150)
@given(st.data())
def test_the_parts_in_use_are_never_more_than_the_limit_though_statements_are_lost_late_and_out_of_order(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(2, 4))
    processes = [Process(number, data.draw(st.integers(0, 10**9))) for number in range(count)]
    under_way: list[tuple[Process, Statement]] = []
    time_ms = 0
    for _ in range(data.draw(st.integers(10, 60))):
        process = data.draw(st.sampled_from(processes))
        match data.draw(st.sampled_from(("tell", "hear", "hear", "want", "wait", "end", "round"))):
            case "tell" if process.is_alive:
                told = process.tell(count, time_ms)
                under_way += [(other, told) for other in processes if other is not process]
            case "hear" if under_way:
                other, statement = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
                if data.draw(st.booleans()) and other.is_alive:
                    other.hear(statement, time_ms)
            case "want":
                process.want = Want(part=data.draw(PARTS), weight=data.draw(WEIGHTS))
            case "wait":
                time_ms += data.draw(st.sampled_from((100, 1_000, 5_000, LOAN_MS)))
            case "end":
                process.is_alive = False
            case "round":
                exchange([each for each in processes if each.is_alive], time_ms)
            case _:
                continue
        assert sum(parts(processes, time_ms)) <= 1 + 1e-6


@given(st.lists(st.tuples(PARTS, WEIGHTS), min_size=2, max_size=6))
def test_who_hears_of_each_other_shares_as_is_fair(kinds: list[tuple[float, float]]) -> None:
    processes = [
        Process(number, 1_000 * number, Want(part=part, weight=weight))
        for number, (part, weight) in enumerate(kinds)
    ]
    for round_number in range(6):
        exchange(processes, 1_000 * round_number)
    own = 1 / len(processes)
    wants = {
        each.number: Want(part=max(each.want.part, own * KEPT), weight=each.want.weight) for each in processes
    }
    for number, part in fair_parts(wants, 1.0).items():
        used = processes[number].part(len(processes), 5_000)
        assert used >= part - 1e-4
        if part > own:
            assert used == pytest.approx(part, abs=1e-4), "beyond its own it borrows what it wants"


def shared() -> tuple[Process, Process]:
    """An idle one that has lent to a busy one."""
    idle, busy = Process(0, 0, IDLE), Process(1, 777)
    for time_ms in range(0, 4_000, 1_000):
        exchange([idle, busy], time_ms)
    assert busy.part(2, 3_000) > 0.95
    return idle, busy


def test_one_that_hears_nothing_more_has_its_own_part_again_and_the_other_gives_back_before() -> None:
    idle, busy = shared()
    ends_ms = next(time_ms for time_ms in range(3_000, 30_000, 100) if busy.part(2, time_ms) == 0.5)
    back_ms = next(time_ms for time_ms in range(3_000, 30_000, 100) if idle.part(2, time_ms) == 0.5)
    assert ends_ms < back_ms <= 3_000 + LOAN_MS + 1_000


def test_what_is_wanted_back_is_there_after_the_borrower_has_said_that_it_knows() -> None:
    idle, busy = shared()
    idle.want = BUSY
    busy.hear(idle.tell(2, 4_000), 4_100)
    assert busy.part(2, 4_100) == 0.5
    assert idle.part(2, 4_100) < 0.05, "it cannot know yet"
    idle.hear(busy.tell(2, 4_200), 4_300)
    assert idle.part(2, 4_300) == 0.5


def test_a_process_in_the_place_of_one_that_died_does_without_what_that_one_had_lent() -> None:
    idle, busy = shared()
    last = idle.tell(2, 4_000)
    busy.hear(last, 4_000)
    idle.start()
    assert idle.part(2, 5_000) == 0.5
    idle.hear(last, 5_000)
    assert idle.part(2, 5_000) + busy.part(2, 5_000) <= 1
    exchange([idle, busy], 5_500)
    assert idle.part(2, 5_000 + LOAN_MS + 1_000) == 0.5


def test_loans_of_those_who_count_other_processes_do_not_count() -> None:
    _, busy = shared()
    assert busy.part(3, 3_000) == pytest.approx(1 / 3)


@pytest.mark.parametrize("told", [None, 7, {}, {"destination": "a", "member": "m", "number": "1"}])
def test_what_is_no_statement_is_passed_over(told: object) -> None:
    assert decode_statements([told]) == []


def test_a_limit_of_which_nonsense_is_told_is_left_out() -> None:
    idle, _ = shared()
    told = encode_statement(idle.tell(2, 4_000))
    nonsense = {"wants": [float("nan")], "weight": [0, 10**400, float("inf")], "members": [0], "lends": [[1]]}
    for key, value in ((key, value) for key, values in nonsense.items() for value in values):
        garbled = {**told, "limits": {LINK: {**told["limits"][LINK], key: value}}}
        (statement,) = decode_statements([garbled])
        assert not statement.stakes
