"""Single values: text, references to secrets, flags, choices, addresses, settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

import yaml

from broker.types import HostPort
from mirrormaker.topology.document import BOOL, FLOAT, INT, NULL, STR, Place, describe_hidden, suggestion
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, UnreadableError, scalar, unexpected
from mirrormaker.topology.kinds.numbers import whole_number
from mirrormaker.topology.model import JsonScalar

E = TypeVar("E", bound=Enum)
_TRUTHS = ("yes", "no", "on", "off", "y", "n")


class Text(Kind[str]):
    """Text."""

    def __init__(self, words: str = "text", *, empty: bool = True) -> None:
        self._words = words
        self._empty = empty

    @property
    def words(self) -> str:
        return self._words

    @property
    def stand_in(self) -> str:
        return ""

    def read(self, place: Place) -> str:
        text = scalar(place, STR, "text")
        if not text and not self._empty:
            raise UnreadableError("is empty")
        return text

    def schema(self) -> JsonSchema:
        return {"type": "string"} if self._empty else {"type": "string", "minLength": 1}


class Reference(Text):
    """Where a secret is. Complaints do not show what stands there: it may be the secret itself."""

    def __init__(self) -> None:
        super().__init__("`env:NAME` or `file:/PATH`")

    def read(self, place: Place) -> str:
        if not isinstance(place.node, yaml.ScalarNode) or place.node.tag != STR:
            raise UnreadableError(f"expected env:NAME or file:/PATH, found {describe_hidden(place.node)}")
        return super().read(place)


class Flag(Kind[bool]):
    """`true` or `false`."""

    @property
    def words(self) -> str:
        return "`true` or `false`"

    @property
    def stand_in(self) -> bool:
        return False

    def read(self, place: Place) -> bool:
        node = place.node
        if isinstance(node, yaml.ScalarNode) and node.tag == STR and node.value.lower() in _TRUTHS:
            raise UnreadableError(f"expected true or false, found text ({node.value}): write true or false")
        return _truth(place)

    def schema(self) -> JsonSchema:
        return {"type": "boolean"}

    def render(self, value: bool) -> str:
        return "true" if value else "false"


class Choice(Kind[E]):
    """One of the values of an enumeration, or of some of them."""

    def __init__(self, members: Iterable[E]) -> None:
        self._members = {str(member.value): member for member in members}

    @property
    def words(self) -> str:
        return ", ".join(f"`{value}`" for value in self._members)

    @property
    def stand_in(self) -> E:
        return next(iter(self._members.values()))

    def read(self, place: Place) -> E:
        text = scalar(place, STR, f"one of {', '.join(self._members)}")
        if text not in self._members:
            raise UnreadableError(
                f"{text!r} is not one of {', '.join(self._members)}{suggestion(text, self._members)}"
            )
        return self._members[text]

    def schema(self) -> JsonSchema:
        return {"enum": list(self._members)}

    def render(self, value: E) -> str:
        return str(value.value)


class Address(Kind[HostPort]):
    """`host:port`."""

    @property
    def words(self) -> str:
        return "`host:port`"

    @property
    def stand_in(self) -> HostPort:
        return HostPort("", 0)

    def read(self, place: Place) -> HostPort:
        text = scalar(place, STR, "text")
        try:
            return HostPort.parse(text)
        except ValueError as error:
            raise UnreadableError(str(error)) from error

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": "^[^,/]+:[0-9]+$"}


class Setting(Kind[str]):
    """The value of a setting of Kafka's: text, a number, true or false; kept as text, as Kafka has it."""

    @property
    def words(self) -> str:
        return "text, a number, `true` or `false`"

    @property
    def stand_in(self) -> str:
        return ""

    def read(self, place: Place) -> str:
        node = place.node
        if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
            raise unexpected("the value of a setting", place)
        if node.tag == INT:
            return str(whole_number(place))
        return str(_truth(place)).lower() if node.tag == BOOL else str(node.value)

    def schema(self) -> JsonSchema:
        return {"type": ["string", "number", "boolean"]}


class AnyScalar(Kind[JsonScalar]):
    """A value that JSON has: text, a number, true, false or null."""

    @property
    def words(self) -> str:
        return "text, a number, `true`, `false` or `null`"

    @property
    def stand_in(self) -> JsonScalar:
        return None

    def read(self, place: Place) -> JsonScalar:
        node = place.node
        if not isinstance(node, yaml.ScalarNode):
            raise unexpected("a single value", place)
        if node.tag == NULL:
            return None
        if node.tag == BOOL:
            return _truth(place)
        if node.tag == INT:
            return whole_number(place)
        return _finite(place) if node.tag == FLOAT else str(node.value)

    def schema(self) -> JsonSchema:
        return {"type": ["string", "number", "boolean", "null"]}


def _truth(place: Place) -> bool:
    """Also where a tag says that other words are one."""
    word = scalar(place, BOOL, "true or false").lower()
    if word not in ("true", "false"):
        raise unexpected("true or false", place)
    return word == "true"


def _finite(place: Place) -> float:
    try:
        number = float(str(place.node.value).replace("_", ""))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise unexpected("a number that JSON has", place)
    return number
