"""Topic names that two patterns share, such as `orders-eu` of `orders.*` and `.*-eu`. Pure.

Each pattern becomes an automaton over the characters of topic names, and both are walked together: the first
way to the end of both is a shortest name. Look-arounds, anchors, flags and back references are passed over,
so a name is one that both are likely to match.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, takewhile
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from mirrormaker.topology.examples import SAMPLE_CHARACTERS, contains

_PAIRS_MAX = 1000
"""Pairs of patterns that are compared, of those that do not begin or end differently."""
_STATES_MAX = 400
"""Of one automaton; a pattern that needs more is compared with none."""
_STEPS_MAX = 2000
"""Places that two automata are walked to together."""
_LEGAL = f"{SAMPLE_CHARACTERS}{string.ascii_letters}{string.digits}._-"
_ALL = sum(1 << ord(character) for character in set(_LEGAL))
"""Sets of characters are numbers whose bits are the characters' codes."""

Moves = Sequence[tuple[int, int]]
"""Sets of characters, each with the state that they lead to."""


def shared_names(patterns: Sequence[str]) -> Iterator[str]:
    """A name for each pair of legal patterns that have one in common, as far as the bounds above go. Patterns
    without any choice are left out: they are names already.
    """
    known = [automaton for pattern in patterns if (automaton := _automaton_of(pattern)) is not None]
    pairs = (pair for pair in combinations(known, 2) if _are_alike(*pair))
    for one, other in islice(pairs, _PAIRS_MAX):
        name = _shared_name(one, other)
        if name is not None:
            yield name


class _TooLargeError(Exception):
    """A pattern that needs too many states."""


class _Automaton:
    """What a parsed pattern matches: states from 0 to `end`, with moves by a character and free ones."""

    def __init__(self, parsed: Any) -> None:
        self.prefix = _prefix(parsed)
        self.suffix = _prefix(reversed(list(parsed)))[::-1]
        self._by_character: list[list[tuple[int, int]]] = [[]]
        self._free: list[list[int]] = [[]]
        self._end = self._add_all(parsed, 0)
        self._moves: dict[int, tuple[Moves, bool]] = {}

    def moves(self, state: int) -> tuple[Moves, bool]:
        """Where characters lead from a state, and whether the pattern may end there."""
        if state not in self._moves:
            met = {state}
            waiting = [state]
            while waiting:
                for free in self._free[waiting.pop()]:
                    if free not in met:
                        met.add(free)
                        waiting.append(free)
            moves = [move for each in sorted(met) for move in self._by_character[each]]
            self._moves[state] = moves, self._end in met
        return self._moves[state]

    def _new(self) -> int:
        if len(self._free) >= _STATES_MAX:
            raise _TooLargeError
        self._by_character.append([])
        self._free.append([])
        return len(self._free) - 1

    def _add_all(self, parsed: Any, state: int) -> int:
        for operation, argument in parsed:
            state = self._add(operation, argument, state)
        return state

    def _add(self, operation: Any, argument: Any, state: int) -> int:
        """Put one part behind a state; the state behind that part."""
        match operation:
            case _constants.LITERAL | _constants.NOT_LITERAL | _constants.ANY | _constants.IN:
                behind = self._new()
                self._by_character[state].append((_characters(operation, argument), behind))
                return behind
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
                return self._add_repeat(argument, state)
            case _constants.SUBPATTERN:
                return self._add_all(argument[-1], state)
            case _constants.ATOMIC_GROUP:
                return self._add_all(argument, state)
            case _constants.BRANCH:
                behind = self._new()
                for branch in argument[1]:
                    self._free[self._add_all(branch, state)].append(behind)
                return behind
            case _:
                return state

    def _add_repeat(self, argument: Any, state: int) -> int:
        low, high, repeated = argument
        for _ in range(min(low, _STATES_MAX)):
            before, state = state, self._add_all(repeated, state)
            if state == before:
                break  # nothing is repeated
        behind = self._new()
        self._free[state].append(behind)
        if high is _constants.MAXREPEAT:
            self._free[self._add_all(repeated, behind)].append(behind)
            return behind
        for _ in range(min(high - low, _STATES_MAX)):
            before, state = state, self._add_all(repeated, state)
            if state == before:
                break
            self._free[state].append(behind)
        return behind


def _automaton_of(pattern: str) -> _Automaton | None:
    parsed = _parser.parse(pattern)
    if all(operation is _constants.LITERAL for operation, _ in parsed):
        return None
    try:
        return _Automaton(parsed)
    except _TooLargeError:
        return None


def _prefix(parsed: Iterable[Any]) -> str:
    """The characters that parts begin with, as far as they are said one by one."""
    literals = takewhile(lambda part: part[0] is _constants.LITERAL, parsed)
    return "".join(chr(argument) for _, argument in literals)


def _are_alike(one: _Automaton, other: _Automaton) -> bool:
    """Whether one may begin and end as the other does."""
    if not (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)):
        return False
    return one.suffix.endswith(other.suffix) or other.suffix.endswith(one.suffix)


def _characters(operation: Any, argument: Any) -> int:
    match operation:
        case _constants.LITERAL:
            return (1 << argument) & _ALL if argument < 128 else 0
        case _constants.NOT_LITERAL:
            return _ALL & ~(1 << argument) if argument < 128 else _ALL
        case _constants.IN:
            return sum(1 << ord(each) for each in set(_LEGAL) if contains(argument, ord(each)))
        case _:
            return _ALL


def _shared_name(one: _Automaton, other: _Automaton) -> str | None:
    """A shortest name that both end with; None where there is none, or it is too far."""
    names = {(0, 0): ""}
    places = deque(names)
    while places and len(names) < _STEPS_MAX:
        place = places.popleft()
        (moves, ends), (others, other_ends) = one.moves(place[0]), other.moves(place[1])
        if ends and other_ends and names[place]:
            return names[place]
        for characters, behind in moves:
            for other_characters, other_behind in others:
                both, following = characters & other_characters, (behind, other_behind)
                if both and following not in names:
                    names[following] = names[place] + _one_of(both)
                    places.append(following)
    return None


def _one_of(characters: int) -> str:
    return next(each for each in _LEGAL if characters >> ord(each) & 1)
