"""Texts that a regular expression for topics matches, made up from its parts. Pure.

Of every choice that a pattern leaves (`a|b`, `x?`) each way is taken in some example. Where a character or a
repeat is left open, one way stands for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, islice, product, zip_longest
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from mirrormaker.topology.naming import TOPIC_NAME_SIZE_MAX

EXAMPLES_MAX = 64
"""Of one pattern."""
SAMPLE_CHARACTERS = "x0_"
"""Those that are taken before others where a pattern leaves the choice."""
_SIZE_MAX = TOPIC_NAME_SIZE_MAX + 1
_SAMPLE_CHARACTER = "x"
_OTHER_CHARACTER = "o"


@lru_cache(maxsize=1024)
def examples_of(pattern: str) -> tuple[str, ...]:
    """Short texts that `pattern`, a legal one, is likely to match in full, at least one and at most
    `EXAMPLES_MAX`; look-arounds and back references are not followed. What needs more than a topic name has
    room for is cut off, and matched no more.
    """
    return tuple(_texts(_parser.parse(pattern)))


def contains(choices: Any, code: int) -> bool:
    """Whether a set like `[a-z0-9]`, as parsed, has the character of this code."""
    negated = bool(choices) and choices[0][0] is _constants.NEGATE
    return any(_is_of(choice, code) for choice in choices) != negated


def _texts(parsed: Any) -> list[str]:
    """The choices of each part, put together: first every choice once, then all combinations."""
    parts = [_choices(operation, argument) for operation, argument in parsed]
    varied = chain(_each_choice_once(parts), map(_joined, product(*parts)))
    return list(dict.fromkeys(islice(varied, 2 * EXAMPLES_MAX)))[:EXAMPLES_MAX]


def _each_choice_once(parts: Sequence[Sequence[str]]) -> Iterable[str]:
    first = [part[0] for part in parts]
    yield _joined(first)
    for number, part in enumerate(parts):
        for choice in part[1:]:
            yield _joined([*first[:number], choice, *first[number + 1 :]])


def _joined(parts: Iterable[str]) -> str:
    return "".join(parts)[:_SIZE_MAX]


def _choices(operation: Any, argument: Any) -> Sequence[str]:
    """What one part may be, at least one text."""
    match operation:
        case _constants.LITERAL:
            return (chr(argument),)
        case _constants.ANY:
            return (_SAMPLE_CHARACTER,)
        case _constants.NOT_LITERAL:
            return (_OTHER_CHARACTER if argument == ord(_SAMPLE_CHARACTER) else _SAMPLE_CHARACTER,)
        case _constants.IN:
            return (_member(argument),)
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            return _repeated(*argument)
        case _constants.SUBPATTERN:
            return _texts(argument[-1])
        case _constants.ATOMIC_GROUP:
            return _texts(argument)
        case _constants.BRANCH:
            return _branches(argument[1])
        case _:
            return ("",)


def _repeated(low: int, high: int, repeated: Any) -> Sequence[str]:
    """As often as it must be, or once; what may be there once, is there and is not."""
    times = min(max(low, min(1, high)), _SIZE_MAX)
    texts = [(text * times)[:_SIZE_MAX] for text in _texts(repeated)]
    return [*texts, ""] if (low, high) == (0, 1) else texts


def _branches(branches: Sequence[Any]) -> Sequence[str]:
    """The first example of each before the second ones."""
    rows = zip_longest(*map(_texts, branches))
    texts = (text for row in rows for text in row if text is not None)
    return list(islice(texts, EXAMPLES_MAX))


def _member(choices: Any) -> str:
    """A character of a set."""
    candidates = (*SAMPLE_CHARACTERS, *(chr(code) for code in range(33, 127)))
    found = (candidate for candidate in candidates if contains(choices, ord(candidate)))
    return next(found, _SAMPLE_CHARACTER)


def _is_of(choice: Any, code: int) -> bool:
    operation, argument = choice
    match operation:
        case _constants.LITERAL:
            return bool(argument == code)
        case _constants.RANGE:
            return bool(argument[0] <= code <= argument[1])
        case _constants.CATEGORY:
            category = {
                _constants.CATEGORY_DIGIT: r"\d",
                _constants.CATEGORY_NOT_DIGIT: r"\D",
                _constants.CATEGORY_SPACE: r"\s",
                _constants.CATEGORY_NOT_SPACE: r"\S",
                _constants.CATEGORY_WORD: r"\w",
                _constants.CATEGORY_NOT_WORD: r"\W",
            }[argument]
            return re.fullmatch(category, chr(code)) is not None
        case _:
            return False
