"""How processes that share limits leave each other what they do not need, and never use more together. Pure.

Of a limit that n processes share each owns an n-th. Who needs less than its fair part (`fair_parts`, of what
all have told that they want) lends the rest to those whose fair part is larger, for a while, again and again.
Nobody decides for others, so there is nobody to lose: a process that nothing is heard of lends nothing,
borrows nothing, and has its own part.

That the parts in use never come to more than the limit rests on this alone:

- A lender does without what it has lent from the moment it says so, until the borrower has said that it goes
  by a later statement, or the loan has ended.
- A borrower uses what the newest statement of the lender grants. Such a statement names the statement of the
  borrower that was heard last, and grants for `LOAN_MS` from the moment when that one was made. The lender
  heard it later than that, and counts from then: clocks need not agree, they only run equally fast.

A process that takes the place of one that died does without what that one had lent last, once it hears of it.

What changes when the number of processes does is no more exact than their knowledge of it: loans of those who
know another number do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mirrormaker.flow.bandwidth.fair_parts import Want, fair_parts
from mirrormaker.flow.bandwidth.statements import (
    LimitName,
    MemberName,
    Need,
    Stake,
    Statement,
    place_of,
)
from mirrormaker.topology.model import ClusterName

LOAN_MS = 12_000
"""Some times longer than a statement takes to the others and theirs back."""
SLACK_MS = 1_000
"""A borrower may notice so late that a loan is over; and clocks do not run quite equally fast."""
PRESENT_MS = LOAN_MS // 2
"""Who has told nothing for so long is lent nothing."""
KEPT = 1 / 16
"""Of its own part, what a process keeps at least, to begin with when there is something to send."""
GRAINS = 1 << 20
"""Parts that are lent are multiples of so small a part, so that both sides go by the same figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loans:
    """Made to one borrower by one statement."""

    number: int
    ends_ms: int
    parts: Mapping[LimitName, float]


@dataclass(slots=True, eq=False)
class _Other:
    """What is known of another process."""

    statement: Statement
    heard_ms: int
    has_spoken: bool = False
    """It has told something since it was met: it is not just a note that was left lying."""
    loans: list[_Loans] = field(default_factory=list)
    """Made to it, and not known to be over."""

    def is_present(self, now_ms: int) -> bool:
        return self.has_spoken and now_ms < self.heard_ms + PRESENT_MS

    def owes(self, limit: LimitName) -> float:
        """The most that it may be using of what it was lent."""
        return max((loans.parts.get(limit, 0.0) for loans in self.loans), default=0.0)


class Lending:
    """Of one process, for all limits at one destination."""

    def __init__(self, destination: ClusterName, member: MemberName) -> None:
        self._destination = destination
        self._member = member
        self._number = 0
        self._told_ms: dict[int, int] = {}
        """When statements were made, as far back as loans may go by them."""
        self._others: dict[MemberName, _Other] = {}
        self._inherited: dict[MemberName, _Loans] = {}
        """Made by those who had the place of this process before."""

    def hear(self, statement: Statement, now_ms: int) -> bool:
        """What another told; statements come in whatever order. Returns whether it was new: then parts are to
        be put in force before the next `tell`, which says that they are.
        """
        name = statement.member
        if name == self._member:
            return False
        if place_of(name) == place_of(self._member):
            return self._inherit(statement, now_ms)
        other = self._others.get(name)
        if other is None:
            self._others[name] = _Other(statement, now_ms)
        elif statement.number > other.statement.number:
            other.statement, other.heard_ms, other.has_spoken = statement, now_ms, True
        else:
            return False
        return True

    def _inherit(self, statement: Statement, now_ms: int) -> bool:
        if statement.member in self._inherited:
            return False
        self._inherited[statement.member] = _Loans(
            number=statement.number,
            ends_ms=now_ms + LOAN_MS + SLACK_MS,
            parts={limit: sum(stake.lends.values()) for limit, stake in statement.stakes.items()},
        )
        return True

    def tell(self, needs: Mapping[LimitName, Need], now_ms: int) -> Statement:
        """A statement for the others. What it lends is gone from the parts of this process at once."""
        self._forget(now_ms)
        self._number += 1
        self._told_ms[self._number] = now_ms
        stakes = {
            limit: Stake(need=need, lends=self._lend(limit, need, now_ms)) for limit, need in needs.items()
        }
        for name, other in self._others.items():
            parts = {limit: stake.lends[name] for limit, stake in stakes.items() if name in stake.lends}
            if parts:
                ends_ms = other.heard_ms + LOAN_MS + SLACK_MS
                other.loans.append(_Loans(number=self._number, ends_ms=ends_ms, parts=parts))
        return Statement(
            destination=self._destination,
            member=self._member,
            number=self._number,
            heard={name: other.statement.number for name, other in self._others.items()},
            stakes=stakes,
        )

    def part(self, limit: LimitName, members: int, now_ms: int) -> float:
        """What this process may use of a limit that so many share; 1: all of it."""
        if not self._others and not self._inherited:
            return 1 / members
        self._void(now_ms)
        lent = self._lent(limit, now_ms)
        borrowed = sum(self._borrowed(other, limit, members, now_ms) for other in self._others.values())
        return max(1 / members - lent, 0.0) + borrowed

    # ---- as a lender

    def _lent(self, limit: LimitName, now_ms: int) -> float:
        """The most of this process's part that others may be using."""
        inherited = (
            loans.parts.get(limit, 0.0) for loans in self._inherited.values() if loans.ends_ms > now_ms
        )
        return sum(other.owes(limit) for other in self._others.values()) + sum(inherited)

    def _lend(self, limit: LimitName, need: Need, now_ms: int) -> dict[MemberName, float]:
        """What others may use from now on."""
        wishes = self._wishes(limit, need, now_ms)
        room = 1 / need.members - self._lent(limit, now_ms)
        lends: dict[MemberName, float] = {}
        for name, wish in wishes.items():
            owed = self._others[name].owes(limit)
            more = min(wish - owed, max(room, 0.0))
            part = _rounded(wish if wish <= owed else owed + more)
            if part > 0:
                lends[name] = part
                room -= max(more, 0.0)
        return lends

    def _wishes(self, limit: LimitName, need: Need, now_ms: int) -> dict[MemberName, float]:
        """What would be fair to lend, given what everybody wants."""
        present = {
            name: stake.need.want
            for name, other in self._others.items()
            if other.is_present(now_ms)
            and (stake := other.statement.stakes.get(limit)) is not None
            and stake.need.members == need.members
        }
        own = 1 / need.members
        wants = {
            name: Want(part=max(want.part, own * KEPT), weight=want.weight)
            for name, want in {**present, self._member: need.want}.items()
        }
        parts = fair_parts(wants, own * len(wants))
        spare = {name: own - part for name, part in parts.items() if part < own}
        if self._member not in spare:
            return {}
        of_all = spare[self._member] / sum(spare.values())
        return {name: (part - own) * of_all for name, part in sorted(parts.items()) if part > own}

    def _void(self, now_ms: int) -> None:
        """Strike off loans that are over."""
        for other in self._others.values():
            if other.loans:
                heard = other.statement.heard.get(self._member, 0)
                other.loans = [
                    loans for loans in other.loans if loans.number >= heard and loans.ends_ms > now_ms
                ]

    def _forget(self, now_ms: int) -> None:
        self._void(now_ms)
        self._told_ms = {
            number: told_ms for number, told_ms in self._told_ms.items() if now_ms < told_ms + LOAN_MS
        }
        self._others = {
            name: other
            for name, other in self._others.items()
            if other.loans or now_ms < other.heard_ms + LOAN_MS + SLACK_MS
        }

    # ---- as a borrower

    def _borrowed(self, lender: _Other, limit: LimitName, members: int, now_ms: int) -> float:
        stake = lender.statement.stakes.get(limit)
        if stake is None or stake.need.members != members:
            return 0.0
        told_ms = self._told_ms.get(lender.statement.heard.get(self._member, 0))
        if told_ms is None or now_ms >= told_ms + LOAN_MS:
            return 0.0
        return stake.lends.get(self._member, 0.0)


def _rounded(part: float) -> float:
    return math.floor(part * GRAINS) / GRAINS
