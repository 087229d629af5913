"""Which records somebody wants: a predicate on key, value, headers and the fields of JSON values. Pure.

    key starts with "JFK" and $.delay >= 15
    header.kind in ("late", "cancelled") or not $.carrier = "UA"

`filter_syntax` says how it is written, `filter_terms` what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from broker.records.filter_syntax import parse
from broker.records.filter_terms import LookedAt, Term
from broker.records.record import Header

_PARSED_KEPT = 64


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A filter and the text that it was read from."""

    text: str
    _term: Term = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> RecordFilter:
        """Read a filter; the last ones are remembered. Raises ConfigurationError."""
        return _parse(text)

    @property
    def term(self) -> Term:
        """The predicate itself, to be combined with others."""
        return self._term

    def matches(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bool:
        """Whether the record is wanted."""
        return self._term.holds(LookedAt(key, value, headers))


@lru_cache(maxsize=_PARSED_KEPT)
def _parse(text: str) -> RecordFilter:
    return RecordFilter(text, parse(text))
