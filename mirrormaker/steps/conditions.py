"""Conditions of filters and routing steps: as predicates, and as text for nodes that filter themselves. Pure.

Both say the same, in the terms of the nodes' own language (`broker.records.record_filter`). It has no regular
expressions, which a node would have to run for anybody who asks: what they decide is decided here. So is what
becomes of values that are no JSON where a `json` condition asks for it; `where` takes them for values without
fields, as nodes do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from broker.errors import ConfigurationError
from broker.records import filter_terms
from broker.records.filter_terms import (
    RELATIONS,
    Comparison,
    Existence,
    Field,
    HeaderNamed,
    JsonField,
    Key,
    Literal,
    LookedAt,
    Membership,
    Term,
)
from broker.records.record_filter import RecordFilter
from mirrormaker.steps.exact_json import syntax_problem
from mirrormaker.steps.record import RecordError
from mirrormaker.topology.model import (
    AllOf,
    AnyOf,
    Condition,
    FilterAction,
    FilterSpec,
    HeaderTest,
    JsonScalar,
    JsonTest,
    KeyMatches,
    KeyPrefix,
    Not,
    Where,
)

_HEADER_NAME = re.compile(r"[\w-]+", re.ASCII)
_NO_JSON = "(value exists and not $ exists)"
"""What nodes let pass beside what filters keep: record errors, which the mirror has to see."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Something that the field names is text that the pattern matches as a whole."""

    field: Field
    pattern: re.Pattern[str]

    def holds(self, record: LookedAt) -> bool:
        return any(self._is_match(found) for found in self.field.found(record))

    def _is_match(self, found: object) -> bool:
        if isinstance(found, bytes):
            found = found.decode(errors="replace")
        return isinstance(found, str) and self.pattern.fullmatch(found) is not None


@dataclass(frozen=True, slots=True)
class OfJson:
    """A term about fields of the value; raises RecordError where there is a value and it is no JSON."""

    term: Term

    def holds(self, record: LookedAt) -> bool:
        if record.document is None and record.value is not None:
            problem = syntax_problem(record.value)
            if problem is not None:
                raise RecordError(f"a condition asks for a field, and the value is no JSON: {problem}")
        return self.term.holds(record)


def compile_condition(condition: Condition) -> Term:
    """The predicate. Raises re.error and ConfigurationError for what validation refuses."""
    match condition:
        case KeyPrefix(prefix=prefix):
            return Comparison(Key(), RELATIONS["starts with"], prefix.encode())
        case KeyMatches(pattern=pattern):
            return Matches(Key(), re.compile(pattern))
        case HeaderTest(name=name):
            wanted = [one.encode() for one in condition.one_of]
            return _test(HeaderNamed(name), wanted, condition.matches)
        case JsonTest(field=path):
            return OfJson(_test(JsonField(tuple(path.split("."))), condition.one_of, condition.matches))
        case Where(expression=expression):
            return RecordFilter.parse(expression).term
        case Not(condition=inner):
            return filter_terms.Not(compile_condition(inner))
        case AnyOf(conditions=inner):
            return filter_terms.AnyOf(tuple(map(compile_condition, inner)))
        case AllOf(conditions=inner):
            return filter_terms.AllOf(tuple(map(compile_condition, inner)))
    assert_never(condition)


def _test(field: Field, one_of: Iterable[Literal], matches: str | None) -> Term:
    literals = tuple(one_of)
    terms: list[Term] = [Membership(field, literals)] if literals else []
    if matches is not None:
        terms.append(Matches(field, re.compile(matches)))
    if not terms:
        return Existence(field)
    return terms[0] if len(terms) == 1 else filter_terms.AllOf(tuple(terms))


def compile_filters(filters: Iterable[FilterSpec]) -> Term | None:
    """What a record must meet to pass all of them; None: nothing."""
    terms = [
        compile_condition(each.condition)
        if each.action is FilterAction.KEEP
        else filter_terms.Not(compile_condition(each.condition))
        for each in filters
    ]
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else filter_terms.AllOf(tuple(terms))


# ---- as text


def filter_text(filters: Iterable[FilterSpec]) -> str:
    """The same for a node, as far as its language goes: what it leaves out does not pass here either. Empty:
    there is nothing to tell it.
    """
    conditions = list(filters)
    told = " and ".join(
        text if each.action is FilterAction.KEEP else f"not {text}"
        for each in conditions
        if (text := _text(each.condition)) is not None
    )
    if told and any(_asks_for_json(each.condition) for each in conditions):
        told = f"({told}) or {_NO_JSON}"
    return _told(told)


def _asks_for_json(condition: Condition) -> bool:
    match condition:
        case JsonTest():
            return True
        case Not(condition=inner):
            return _asks_for_json(inner)
        case AnyOf(conditions=several) | AllOf(conditions=several):
            return any(map(_asks_for_json, several))
    return False


def any_filter_text(texts: Iterable[str]) -> str:
    """What lets everything pass that one of these does; empty where one of them is."""
    several = list(dict.fromkeys(texts))
    if not several or not all(several):
        return ""
    return several[0] if len(several) == 1 else _told(" or ".join(f"({text})" for text in several))


def _told(text: str) -> str:
    """The text, unless it is beyond the bounds of nodes."""
    try:
        return RecordFilter.parse(text).text if text else ""
    except ConfigurationError:
        return ""


def _text(condition: Condition) -> str | None:
    """The condition, in a form that can be negated; None where the language cannot say it."""
    match condition:
        case KeyPrefix(prefix=prefix):
            return f"key starts with {_quoted(prefix)}"
        case KeyMatches():
            return None
        case HeaderTest(name=name):
            field = f"header.{name}" if _HEADER_NAME.fullmatch(name) else f"header[{_quoted(name)}]"
            return _test_text(field, condition.one_of, condition.matches)
        case JsonTest(field=path):
            field = "$" + "".join(f"[{_quoted(step)}]" for step in path.split("."))
            return _test_text(field, condition.one_of, condition.matches)
        case Where(expression=expression):
            return f"({expression})"
        case Not(condition=inner):
            text = _text(inner)
            return None if text is None else f"not {text}"
        case AnyOf(conditions=inner):
            return _joined("or", inner)
        case AllOf(conditions=inner):
            return _joined("and", inner)
    assert_never(condition)


def _joined(word: str, conditions: Iterable[Condition]) -> str | None:
    texts = [_text(each) for each in conditions]
    told = [text for text in texts if text is not None]
    return f"({f' {word} '.join(told)})" if len(told) == len(texts) else None


def _test_text(field: str, one_of: Iterable[JsonScalar], matches: str | None) -> str | None:
    if matches is not None:
        return None
    literals = [_quoted(one) for one in one_of]
    return f"{field} in ({', '.join(literals)})" if literals else f"{field} exists"


def _quoted(value: JsonScalar) -> str:
    return json.dumps(value)
