"""Kinds of settings: how the text of a setting becomes a typed value, and back.

A kind is data: a node's settings, a topic's settings and what DescribeConfigs says about either all rest on
the same few kinds. Parsing never guesses: text that is not exactly of the kind is a ValueError that says
what was expected.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


class SettingType(IntEnum):
    """Types as numbered in DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ResourceType(IntEnum):
    """What has settings, by its number in the protocol."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from, by its number in the protocol."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER_DYNAMIC = 2
    CLUSTER_DYNAMIC = 3
    BROKER_STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """One kind of value: `parse` raises ValueError saying what was expected, `render` is its inverse."""

    type: SettingType
    parse: Callable[[str], T]
    render: Callable[[T], str] = str


def boolean() -> Kind[bool]:
    """`true` or `false`, in any case."""

    def parse(text: str) -> bool:
        match text.strip().lower():
            case "true":
                return True
            case "false":
                return False
            case _:
                raise ValueError(f"expected true or false, not {text!r}")

    return Kind(type=SettingType.BOOLEAN, parse=parse, render=lambda value: "true" if value else "false")


def integer(low: int = -(2**31), high: int = INT_MAX) -> Kind[int]:
    """A 32-bit integer from `low` to `high`."""
    return Kind(type=SettingType.INT, parse=_whole_number(low, high))


def long(low: int = -(2**63), high: int = LONG_MAX) -> Kind[int]:
    """A 64-bit integer from `low` to `high`."""
    return Kind(type=SettingType.LONG, parse=_whole_number(low, high))


def double(low: float, high: float = DOUBLE_MAX) -> Kind[float]:
    """A number with a fraction, from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text.strip())
        except ValueError:
            raise ValueError(f"expected a number, not {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"expected a number from {low:g} to {high:g}, not {value:g}")
        return value

    return Kind(type=SettingType.DOUBLE, parse=parse)


def optional_long(low: int = -(2**63)) -> Kind[int | None]:
    """A 64-bit integer, or nothing (empty text) where another setting decides."""
    parse = _whole_number(low, LONG_MAX)
    return Kind(
        type=SettingType.LONG,
        parse=lambda text: parse(text) if text.strip() else None,
        render=lambda value: "" if value is None else str(value),
    )


def string(choices: tuple[str, ...] = ()) -> Kind[str]:
    """Text, one of `choices` where any are given."""

    def parse(text: str) -> str:
        value = text.strip()
        if choices and value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, not {value!r}")
        return value

    return Kind(type=SettingType.STRING, parse=parse)


def optional_string() -> Kind[str | None]:
    """Text, or nothing where it is empty."""
    return Kind(
        type=SettingType.STRING,
        parse=lambda text: text.strip() or None,
        render=lambda value: value or "",
    )


def names(choices: tuple[str, ...] = ()) -> Kind[tuple[str, ...]]:
    """Comma-separated names, each one of `choices` where any are given."""
    return Kind(type=SettingType.LIST, parse=_list_of(choices), render=",".join)


def name_set(choices: tuple[str, ...]) -> Kind[frozenset[str]]:
    """Comma-separated names in any order, each one of `choices` and at least one."""
    parse_list = _list_of(choices)

    def parse(text: str) -> frozenset[str]:
        values = frozenset(parse_list(text))
        if not values:
            raise ValueError(f"expected a list of {', '.join(choices)}, not nothing")
        return values

    return Kind(type=SettingType.LIST, parse=parse, render=lambda values: ",".join(sorted(values)))


def parse_settings(
    texts: Mapping[str, str], kinds: Mapping[str, tuple[str, Kind[Any]]], *, unknown: str
) -> tuple[dict[str, Any], list[str]]:
    """Values by the name of their field, and what is wrong with the texts, each problem beginning with the
    name of its setting. `kinds` says field and kind of each setting; `unknown` is what is said of others.
    """
    values: dict[str, Any] = {}
    problems = []
    for name, text in texts.items():
        if name not in kinds:
            problems.append(f"{name}: {unknown}")
            continue
        field, kind = kinds[name]
        try:
            values[field] = kind.parse(text)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return values, problems


def suggestion(name: str, known: Iterable[str]) -> str:
    """`" (did you mean ...?)"` for a misspelt name, or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def _list_of(choices: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        values = tuple(part.strip() for part in text.split(",") if part.strip())
        strange = [value for value in values if choices and value not in choices]
        if strange:
            raise ValueError(f"expected a list of {', '.join(choices)}, not {strange[0]!r}")
        return values

    return parse


def _whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            raise ValueError(f"expected a whole number, not {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, not {value}")
        return value

    return parse


def setting(kind: Kind[T], default: T, doc: str) -> T:
    """A field with its kind and documentation in the metadata; typed as its value for the checker."""
    declared: T = field(default=default, metadata={"kind": kind, "doc": doc})
    return declared
