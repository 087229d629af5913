"""How the names begin that patterns match: by that, two are known to have none in common. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

OPENINGS_MAX = 1000
"""Of one pattern; of one with more it is not known how its names begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The text that names begin with; `is_whole` where it is all of the name."""

    text: str
    is_whole: bool

    def followed_by(self, other: Opening) -> Opening:
        """What comes of another one behind it."""
        if not self.is_whole:
            return self
        return Opening(text=self.text + other.text, is_whole=other.is_whole)

    def may_be(self, other: Opening) -> bool:
        """Whether one name could begin with both."""
        if self.is_whole and other.is_whole:
            return self.text == other.text
        fits_self = self.text.startswith(other.text) and not other.is_whole
        return fits_self or (other.text.startswith(self.text) and not self.is_whole)


def names_in(pattern: str) -> frozenset[str]:
    """Names that a pattern says one by one, where it does. A dot that is not repeated is taken for one of a
    name, escaped or not. Raises re.error.
    """
    return frozenset(each.text for each in openings_of(_DOT.sub(r"\\.", pattern)) if each.is_whole)


_DOT = re.compile(r"(?<!\\)\.(?![*+?{])")
_NOTHING = Opening(text="", is_whole=True)
UNKNOWN = Opening(text="", is_whole=False)


def openings_of(pattern: str) -> list[Opening]:
    """One of these begins each name that the pattern matches. Raises re.error."""
    parsed = _parser.parse(pattern)
    return [UNKNOWN] if parsed.state.flags & re.IGNORECASE else _openings(parsed)


def _openings(parsed: Iterable[tuple[Any, Any]]) -> list[Opening]:
    found = [_NOTHING]
    for kind, told in parsed:
        following = _openings_of_part(kind, told)
        found = [each.followed_by(other) for each in found for other in following]
        if len(found) > OPENINGS_MAX:
            return [UNKNOWN]
        found = list(dict.fromkeys(found))
    return found


def _openings_of_part(kind: Any, told: Any) -> list[Opening]:
    if kind is _constants.LITERAL:
        return [Opening(text=chr(told), is_whole=True)]
    if kind is _constants.BRANCH:
        return [each for branch in told[1] for each in _openings(branch)]
    if kind is _constants.SUBPATTERN and not told[1]:
        return _openings(told[3])
    return [UNKNOWN]
