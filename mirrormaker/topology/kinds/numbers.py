"""Whole numbers, and sizes in bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import yaml

from mirrormaker.topology.document import INT, STR, Place, clipped
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, UnreadableError, scalar, unexpected

_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_UNDERSCORED = "[-+]?[1-9][0-9]*_[0-9_]*"
_DIGITS_MAX = 1000
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]+)")
_SIZE_UNITS = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def whole_number(place: Place) -> int:
    """The number at `place`. Raises UnreadableError when there is none, or one of absurdly many digits."""
    node = place.node
    if isinstance(node, yaml.ScalarNode) and node.tag == STR and _LEADING_ZERO.fullmatch(node.value):
        raise UnreadableError(
            f"{clipped(node.value)} starts with 0, which some read as octal: write it without"
        )
    text = scalar(place, INT, "a whole number")
    return read_number(text)


def read_number(text: str) -> int:
    """The whole number that a plain word says. Raises UnreadableError, also for absurdly many digits."""
    try:
        if len(text) <= _DIGITS_MAX:
            return int(text.replace("_", ""), 0)
    except ValueError:
        pass
    raise UnreadableError(f"{clipped(text)} is no number that can be read")


def amount(text: str, units: Mapping[str, int]) -> int | None:
    """What a number with one of `units`, such as `1.5 MiB`, comes to; None for anything else, also for more
    than a float holds.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2] not in units:
        return None
    number = float(found[1]) * units[found[2]]
    return round(number) if math.isfinite(number) else None


def integer_schema(low: int, high: int, *others: str) -> JsonSchema:
    """Of a whole number within bounds, or text by one of these patterns. A number with underscores is text to
    readers of YAML 1.2.
    """
    patterns = "|".join((_UNDERSCORED, *others))
    return {"type": ["integer", "string"], "minimum": low, "maximum": high, "pattern": f"^({patterns})$"}


def require_between(number: int, low: int, high: int, shown: str) -> int:
    """The number, which must be within bounds. Raises UnreadableError."""
    if not low <= number <= high:
        raise UnreadableError(f"{clipped(shown)} is not between {low} and {high}")
    return number


class Integer(Kind[int]):
    """A whole number within bounds."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._high = high

    @property
    def words(self) -> str:
        return f"{self._low} to {self._high}"

    @property
    def stand_in(self) -> int:
        return self._low

    def read(self, place: Place) -> int:
        try:
            number = whole_number(place)
        except UnreadableError:
            if isinstance(place.node, yaml.ScalarNode) and place.node.tag == INT:
                raise UnreadableError(
                    f"{clipped(place.node.value)} is not between {self._low} and {self._high}"
                ) from None
            raise
        return require_between(number, self._low, self._high, str(place.node.value))

    def schema(self) -> JsonSchema:
        return integer_schema(self._low, self._high)


class Size(Kind[int]):
    """Bytes: a whole number, or one with a unit."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._high = high

    @property
    def words(self) -> str:
        return f"bytes, or with a unit: {self.render(self._low)} to {self.render(self._high)}"

    @property
    def stand_in(self) -> int:
        return self._low

    def read(self, place: Place) -> int:
        node = place.node
        if not isinstance(node, yaml.ScalarNode) or node.tag not in (INT, STR):
            raise unexpected("a size in bytes", place)
        if node.tag == INT or _LEADING_ZERO.fullmatch(node.value):
            return Integer(self._low, self._high).read(place)
        size = amount(node.value, _SIZE_UNITS)
        if size is None:
            raise unexpected("a size such as 1048576, 64KiB, 8MiB or 50MB", place)
        return require_between(size, self._low, self._high, node.value)

    def schema(self) -> JsonSchema:
        units = "|".join(_SIZE_UNITS)
        return integer_schema(self._low, self._high, rf"[0-9]+(\.[0-9]+)? ?({units})")

    def render(self, value: int) -> str:
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if value and value % _SIZE_UNITS[unit] == 0:
                return f"{value // _SIZE_UNITS[unit]}{unit}"
        return str(value)
