"""Which topics a stream reads when it names none: those that an expression matches, or all others. Pure.

Expressions are read as Kafka's consumers read them, which meet ours in one group: a comma means "or", blanks
and the quotes around the whole count for nothing, and the whole name must match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Self

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics by regular expression: allowed, or denied when `denies` is set."""

    expression: str
    denies: bool = False

    @classmethod
    def allow(cls, expression: str) -> Self:
        """The topics whose whole name matches. Raises ValueError for what is no regular expression."""
        return cls(_cleaned(expression))

    @classmethod
    def deny(cls, expression: str) -> Self:
        """All topics but those whose whole name matches. Raises ValueError as `allow`."""
        return cls(_cleaned(expression), denies=True)

    def __post_init__(self) -> None:
        _compiled(self.expression)

    def matches(self, topic: str, *, internal_too: bool = False) -> bool:
        """Whether the topic is to be read; internal ones are only when asked for."""
        if topic in INTERNAL_TOPICS and not internal_too:
            return False
        return (_compiled(self.expression).fullmatch(topic) is None) == self.denies


def _cleaned(expression: str) -> str:
    return expression.replace(",", "|").replace(" ", "").strip("\"'")


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ValueError(f"{expression!r} is no regular expression: {error}") from error
