"""`filters` and `transforms` of a route."""

from __future__ import annotations

import re
from typing import Any

from broker.errors import ConfigurationError
from broker.records.record_filter import RecordFilter
from mirrormaker.topology.document import Place
from mirrormaker.topology.kinds.collections import ListOf, MapOf
from mirrormaker.topology.kinds.kind import Checked, JsonSchema, Kind, UnreadableError
from mirrormaker.topology.kinds.records import Given, Key, Record
from mirrormaker.topology.kinds.scalars import AnyScalar, Flag, Reference, Text
from mirrormaker.topology.kinds.unions import Alternative, Named, OneKey
from mirrormaker.topology.model import (
    AllOf,
    AnyOf,
    CallFunction,
    Condition,
    DropParts,
    FilterAction,
    FilterSpec,
    HeaderTest,
    JsonScalar,
    JsonTest,
    KeyMatches,
    KeyPrefix,
    MaskParts,
    Not,
    RenameParts,
    RouteTo,
    TransformSpec,
    Where,
)
from mirrormaker.topology.naming import pattern_problem, target_problem

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_SECRET = re.compile(r"env:\w+|file:/.+")
_NAME = Text("name", empty=False)
_NAMES = ListOf(Text("names", empty=False))


def _check_pattern(pattern: str) -> str:
    if problem := pattern_problem(pattern):
        raise UnreadableError(problem)
    return pattern


def _check_target(target: str) -> str:
    if problem := target_problem(target):
        raise UnreadableError(problem)
    return target


def _check_anything(parts: Any, given: Given) -> Any:
    if not parts.fields and not parts.headers:
        given.place.report("names neither 'fields' nor 'headers'")
    return parts


def _check_mask(mask: MaskParts, given: Given) -> MaskParts:
    if not mask.fields and not mask.headers and not mask.key:
        given.place.report("names neither 'fields' nor 'headers' nor 'key'")
    if mask.hash and "replacement" in given.values:
        given.place.report("says both 'with' and 'hash': one of them would have no effect")
    if mask.salt is not None and not mask.hash:
        given.place.report("has a 'salt', which only a 'hash' needs")
    return mask


def _check_secret(reference: str) -> str:
    if not _SECRET.fullmatch(reference):
        raise UnreadableError("no reference to a secret: write env:NAME or file:/PATH")
    return reference


def _check_expression(expression: str) -> str:
    try:
        return RecordFilter.parse(expression).text
    except ConfigurationError as error:
        raise UnreadableError(str(error)) from error


def make_function(path: str) -> CallFunction:
    """What `module:function` names."""
    module, _, name = path.partition(":")
    return CallFunction(module=module, name=name)


def _check_function(path: str) -> str:
    if not _FUNCTION.fullmatch(path):
        raise UnreadableError(f"{path!r} is not a function: write package.module:function")
    return path


FUNCTION = Checked(Text("`package.module:function`"), _check_function)
PATTERN = Checked(Text("regular expression"), _check_pattern)
_EACH_PATTERN = Checked(Text("regular expressions"), _check_pattern)
PATTERNS = ListOf(_EACH_PATTERN)
SOME_PATTERNS = ListOf(_EACH_PATTERN, empty=False)
_CONDITION: Kind[Condition] = Named("condition", "[condition](#conditions)", lambda: CONDITION)
_CONDITIONS = ListOf(Named("condition", "[conditions](#conditions)", lambda: CONDITION), empty=False)


class _Single(Kind[tuple[JsonScalar, ...]]):
    """One value, as the only one of a list."""

    def __init__(self, kind: Kind[Any]) -> None:
        self._kind = kind

    @property
    def words(self) -> str:
        return self._kind.words

    @property
    def stand_in(self) -> tuple[JsonScalar, ...]:
        return ()

    def read(self, place: Place) -> tuple[JsonScalar, ...]:
        return (self._kind.read(place),)

    def schema(self) -> JsonSchema:
        return self._kind.schema()


def _tests_of(value: Kind[Any]) -> dict[str, Key | Kind[Any]]:
    return {
        "equals": Key(_Single(value), "one_of"),
        "in": Key(ListOf(value, empty=False), "one_of"),
        "matches": PATTERN,
    }


HEADER_TEST = Record(HeaderTest, {"name": _NAME, **_tests_of(Text())})
JSON_TEST = Record(JsonTest, {"field": _NAME, **_tests_of(AnyScalar())})

CONDITION: OneKey[Condition] = OneKey(
    {
        "key_prefix": Alternative(Text(empty=False), lambda prefix: KeyPrefix(prefix=prefix), KeyPrefix),
        "key_matches": Alternative(PATTERN, lambda pattern: KeyMatches(pattern=pattern), KeyMatches),
        "where": Alternative(
            Checked(Text("filter of records"), _check_expression),
            lambda expression: Where(expression=expression),
            Where,
        ),
        "header": Alternative(HEADER_TEST, lambda test: test, HeaderTest),
        "json": Alternative(JSON_TEST, lambda test: test, JsonTest),
        "not": Alternative(_CONDITION, lambda condition: Not(condition=condition), Not),
        "any": Alternative(_CONDITIONS, lambda conditions: AnyOf(conditions=conditions), AnyOf),
        "all": Alternative(_CONDITIONS, lambda conditions: AllOf(conditions=conditions), AllOf),
    },
    stand_in=AllOf(conditions=()),
)


def _filter(action: FilterAction) -> Alternative:
    def make(condition: Condition, **beside: Any) -> FilterSpec:
        return FilterSpec(action=action, condition=condition, **beside)

    return Alternative(_CONDITION, make, FilterSpec)


def _transform(kind: Kind[Any], documented: type) -> Alternative:
    def make(step: Any, **beside: Any) -> TransformSpec:
        return TransformSpec(step=make_function(step) if isinstance(step, str) else step, **beside)

    return Alternative(kind, make, documented)


_TOPICS = {"topics": PATTERNS}
FILTERS = ListOf(
    OneKey(
        {action.value: _filter(action) for action in FilterAction},
        cls=FilterSpec,
        beside=_TOPICS,
        stand_in=FilterSpec(action=FilterAction.DROP, condition=CONDITION.stand_in),
    )
)

_PARTS = {"fields": _NAMES, "headers": _NAMES}
_RENAMED = {"fields": MapOf("name", _NAME), "headers": MapOf("name", _NAME)}
TRANSFORMS = ListOf(
    OneKey(
        {
            "drop": _transform(Record(DropParts, _PARTS, check=_check_anything), DropParts),
            "mask": _transform(
                Record(
                    MaskParts,
                    {
                        **_PARTS,
                        "key": Flag(),
                        "with": Key(Text(), "replacement"),
                        "hash": Flag(),
                        "salt": Checked(Reference(), _check_secret),
                    },
                    check=_check_mask,
                ),
                MaskParts,
            ),
            "rename": _transform(Record(RenameParts, _RENAMED, check=_check_anything), RenameParts),
            "route": _transform(
                Record(RouteTo, {"to": Checked(Text("template"), _check_target), "when": _CONDITION}),
                RouteTo,
            ),
            "function": _transform(FUNCTION, CallFunction),
        },
        cls=TransformSpec,
        beside=_TOPICS,
        stand_in=TransformSpec(step=DropParts()),
    )
)
