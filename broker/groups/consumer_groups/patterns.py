"""Regular expressions for topic names, matched in time that is linear in the name whatever the expression.

Members send them, so one that backtracks for ever would stop a node. The syntax is RE2's, as far as it means
anything for topic names: literals, `.`, classes with ranges and POSIX names, escapes, groups, alternatives,
repeats, anchors, `(?i)`, `\\Q…\\E`. An expression is made into a set of states (Thompson's construction); a
name is walked through sets of them, each of which is worked out once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.errors import ErrorCode, ProtocolError

STATES_MAX = 5_000
"""States of one expression, repeats written out; larger ones are refused."""
REPEATS_MAX = 1_000
"""RE2's bound on `{n}`."""
NESTING_MAX = 100
STEPS_KEPT_MAX = 20_000
"""Steps between sets of states that are remembered, for one expression."""

_ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""What names of topics are made of; nothing else can match."""
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {
    "d": _DIGITS,
    "w": _WORD,
    "s": frozenset[str](),
    "D": _ALPHABET - _DIGITS,
    "W": _ALPHABET - _WORD,
    "S": _ALPHABET,
}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ALPHABET,
    "digit": _DIGITS,
    "graph": _ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": _ALPHABET,
    "punct": frozenset("._-"),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
    "cntrl": frozenset[str](),
    "space": frozenset[str](),
    "blank": frozenset[str](),
}
_CONTROLS = frozenset("afnrtv")

Chars = frozenset[str]


@dataclass(slots=True)
class _State:
    """Where a match may stand: `chars` lead to `next`; without them `next` and `other` are reached freely,
    at the begin or end of the name only where it says so.
    """

    chars: Chars | None = None
    next: int = -1
    other: int = -1
    only_at_begin: bool = False
    only_at_end: bool = False


class Pattern:
    """One expression, ready to match whole names."""

    def __init__(self, expression: str) -> None:
        """Raises ProtocolError INVALID_REGULAR_EXPRESSION that says what is wrong."""
        self.expression = expression
        compiler = _Compiler(expression)
        self._states, start = compiler.states, compiler.start
        self._begin = self._closure([start], at_begin=True)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether all of `name` matches."""
        reached = self._begin
        for char in name:
            step = self._steps.get((reached, char))
            if step is None:
                step = self._step(reached, char)
            reached = step
            if not reached:
                return False
        at_end = self._closure(reached, at_begin=not name, at_end=True)
        return any(self._states[each].next < 0 and self._states[each].chars is None for each in at_end)

    def _step(self, reached: frozenset[int], char: str) -> frozenset[int]:
        states = (self._states[each] for each in reached)
        step = self._closure([each.next for each in states if each.chars is not None and char in each.chars])
        if len(self._steps) >= STEPS_KEPT_MAX:
            self._steps.clear()
        self._steps[reached, char] = step
        return step

    def _closure(
        self, begin: Iterable[int], *, at_begin: bool = False, at_end: bool = False
    ) -> frozenset[int]:
        reached: set[int] = set()
        waiting = list(begin)
        while waiting:
            number = waiting.pop()
            if number < 0 or number in reached:
                continue
            reached.add(number)
            state = self._states[number]
            blocked = (state.only_at_begin and not at_begin) or (state.only_at_end and not at_end)
            if state.chars is None and not blocked:
                waiting += (state.next, state.other)
        return frozenset(reached)


Node = Callable[["_Compiler", int], int]
"""Makes the states of a part of the expression that lead to a given state; returns the first of them."""


class _Compiler:
    """Reads an expression from left to right, and makes its states from right to left."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._folds_case = False
        self._depth = 0
        self.states: list[_State] = []
        node = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a group is closed that was not opened")
        self.start = node(self, self.add(_State()))

    def add(self, state: _State) -> int:
        """The number of a new state."""
        if len(self.states) >= STATES_MAX:
            raise self._error(f"it needs more than {STATES_MAX} states")
        self.states.append(state)
        return len(self.states) - 1

    def _error(self, reason: str) -> ProtocolError:
        return ProtocolError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{self._text}` is not a valid regular expression: {reason} "
            f"(at character {self._at})",
        )

    # Reading

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise self._error("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self) -> Node:
        nodes = [self._sequence()]
        while self._accept("|"):
            nodes.append(self._sequence())
        return nodes[0] if len(nodes) == 1 else _either(nodes)

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            node = self._one()
            nodes.append(self._repeated(node) if node is not None else _in_order([]))
        return _in_order(nodes)

    def _one(self) -> Node | None:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return _one_of(self._folded(self._class()))
            case ".":
                return _one_of(_ALPHABET)
            case "^":
                return _at_edge(begin=True)
            case "$":
                return _at_edge(begin=False)
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise self._error(f"there is nothing that {char} could repeat")
            case _:
                return _one_of(self._folded(frozenset(char)))

    def _folded(self, chars: Chars) -> Chars:
        if not self._folds_case:
            return chars
        return frozenset(fold for char in chars for fold in (char.lower(), char.upper()))

    def _group(self) -> Node | None:
        """A group, or None for flags that hold from here on."""
        folded_before = self._folds_case
        if self._accept("?"):
            if self._accept("P<") or (self._peek(1) == "<" and self._accept("<")):
                self._group_name()
            elif not self._flags():
                return None
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error("groups are nested too deep")
        node = self._alternatives()
        if not self._accept(")"):
            raise self._error("a group is not closed")
        self._depth -= 1
        self._folds_case = folded_before
        return node

    def _group_name(self) -> None:
        name = ""
        while (char := self._take()) != ">":
            name += char
        if not name or not _WORD.issuperset(name):
            raise self._error(f"a group cannot be named {name!r}")

    def _flags(self) -> bool:
        """Take flags in; whether a group follows them."""
        sets = True
        while True:
            match self._take():
                case "i":
                    self._folds_case = sets
                case "m" | "s" | "U":
                    pass  # lines and greed make no difference to whether a whole name matches
                case "-":
                    sets = False
                case ":":
                    return True
                case ")":
                    return False
                case flag:
                    raise self._error(f"(?{flag} is not supported")

    def _escaped(self) -> Node | None:
        char = self._take()
        if char in _CLASSES:
            return _one_of(_CLASSES[char])
        match char:
            case "A":
                return _at_edge(begin=True)
            case "z":
                return _at_edge(begin=False)
            case "Q":
                return self._quoted()
        return _one_of(self._folded(self._escaped_char(char)))

    def _escaped_char(self, char: str) -> Chars:
        if char == "x":
            return frozenset(self._hexadecimal())
        if char in _CONTROLS:
            return frozenset()
        if char in _WORD:
            raise self._error(f"\\{char} is not supported")
        return frozenset(char)

    def _hexadecimal(self) -> str:
        if self._accept("{"):
            digits = ""
            while (char := self._take()) != "}":
                digits += char
        else:
            digits = self._take() + self._take()
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._error(f"\\x{digits} is no character") from None

    def _quoted(self) -> Node:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at += len(quoted) + (2 if end >= 0 else 0)
        return _in_order([_one_of(self._folded(frozenset(char))) for char in quoted])

    def _class(self) -> Chars:
        negated = self._accept("^")
        chars: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._accept("[:"):
                chars |= self._posix()
                continue
            low, members = self._class_item()
            if low is not None and self._peek() == "-" and self._peek(2) != "-]":
                self._take()
                high, _ = self._class_item()
                if high is None or high < low:
                    raise self._error("a range in a class is turned around")
                members = frozenset(char for char in _ALPHABET if low <= char <= high)
            chars |= members
        self._take()
        folded = self._folded(frozenset(chars))
        return _ALPHABET - folded if negated else folded

    def _class_item(self) -> tuple[str | None, Chars]:
        """A character (where it is one) and what it stands for."""
        char = self._take()
        if char != "\\":
            return char, frozenset(char)
        escaped = self._take()
        if escaped in _CLASSES:
            return None, _CLASSES[escaped]
        chars = self._escaped_char(escaped)
        return next(iter(chars), None), chars

    def _posix(self) -> Chars:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            raise self._error(f"there is no class [:{name}:]")
        self._at = end + 2
        return _ALPHABET - known if name.startswith("^") else known

    def _repeated(self, node: Node) -> Node:
        while True:
            at_least, at_most = self._repeats()
            if at_least is None:
                return node
            self._accept("?")  # lazy or greedy: the same names match
            node = _repeat(node, at_least, at_most)

    def _repeats(self) -> tuple[int | None, int | None]:
        """How often the part before may come, (None, None) where no repeat follows; no upper bound: None."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None, None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None, None  # as RE2: no repeat, a brace
        at_least = int(low)
        at_most = at_least if not comma else int(high) if high else None
        if max(at_least, at_most or 0) > REPEATS_MAX or (at_most is not None and at_most < at_least):
            raise self._error(f"a repeat of {self._text[self._at : end + 1]}")
        self._at = end + 1
        return at_least, at_most


def _one_of(chars: Chars) -> Node:
    return lambda compiler, then: compiler.add(_State(chars=chars & _ALPHABET, next=then))


def _at_edge(*, begin: bool) -> Node:
    return lambda compiler, then: compiler.add(_State(next=then, only_at_begin=begin, only_at_end=not begin))


def _in_order(nodes: list[Node]) -> Node:
    def build(compiler: _Compiler, then: int) -> int:
        then = compiler.add(_State(next=then))  # so that even parts that match nothing are counted
        for node in reversed(nodes):
            then = node(compiler, then)
        return then

    return build


def _either(nodes: list[Node]) -> Node:
    def build(compiler: _Compiler, then: int) -> int:
        first = nodes[-1](compiler, then)
        for node in reversed(nodes[:-1]):
            first = compiler.add(_State(next=node(compiler, then), other=first))
        return first

    return build


def _repeat(node: Node, at_least: int, at_most: int | None) -> Node:
    def build(compiler: _Compiler, then: int) -> int:
        then = compiler.add(_State(next=then))
        if at_most is None:
            loop = compiler.add(_State(other=then))
            compiler.states[loop].next = node(compiler, loop)
            then = loop
        else:
            end = then
            for _ in range(at_most - at_least):
                then = compiler.add(_State(next=node(compiler, then), other=end))
        for _ in range(at_least):
            then = node(compiler, then)
        return then

    return build
