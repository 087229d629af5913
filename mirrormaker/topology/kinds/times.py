"""Durations, times of the day, and points in time."""

from __future__ import annotations

import re
from datetime import datetime

import yaml

from mirrormaker.topology.document import INT, STR, Place, clipped
from mirrormaker.topology.kinds.kind import JsonSchema, Kind, UnreadableError, scalar, unexpected
from mirrormaker.topology.kinds.numbers import Integer, amount, integer_schema, require_between

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_TIMESTAMP_MS_MAX = 253_402_300_799_999  # the end of the year 9999


class Duration(Kind[int]):
    """A span of time in milliseconds; a number alone is taken only where the key says its unit."""

    def __init__(self, low_ms: int, high_ms: int, *, bare: bool) -> None:
        self._low_ms = low_ms
        self._high_ms = high_ms
        self._bare = bare

    @property
    def words(self) -> str:
        spans = f"{self.render(self._low_ms)} to {self.render(self._high_ms)}"
        return f"milliseconds, or with a unit: {spans}" if self._bare else spans

    @property
    def stand_in(self) -> int:
        return self._low_ms

    def read(self, place: Place) -> int:
        node = place.node
        if self._bare and isinstance(node, yaml.ScalarNode) and node.tag == INT:
            return Integer(self._low_ms, self._high_ms).read(place)
        examples = "1500, 90s or 5m" if self._bare else "90s or 5m"
        is_text = isinstance(node, yaml.ScalarNode) and node.tag == STR
        span_ms = amount(node.value, _UNITS_MS) if is_text else None
        if span_ms is None:
            raise unexpected(f"a duration such as {examples}", place)
        if not self._low_ms <= span_ms <= self._high_ms:
            spans = f"{self.render(self._low_ms)} and {self.render(self._high_ms)}"
            raise UnreadableError(f"{clipped(node.value)} is not between {spans}")
        return span_ms

    def schema(self) -> JsonSchema:
        text = r"[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)"
        if not self._bare:
            return {"type": "string", "pattern": f"^{text}$"}
        return integer_schema(self._low_ms, self._high_ms, text)

    def render(self, value: int) -> str:
        if self._bare and value < 60_000:
            return str(value)
        for unit in ("d", "h", "m", "s"):
            if value and value % _UNITS_MS[unit] == 0:
                return f"{value // _UNITS_MS[unit]}{unit}"
        return f"{value}ms"


class ClockTime(Kind[int]):
    """A time of the day, in minutes since midnight."""

    @property
    def words(self) -> str:
        return "`00:00` to `24:00`"

    @property
    def stand_in(self) -> int:
        return 0

    def read(self, place: Place) -> int:
        text = scalar(place, STR, "a time of the day such as 08:00")
        if not _CLOCK.fullmatch(text):
            raise unexpected("a time of the day such as 08:00", place)
        hours, minutes = text.split(":")
        return int(hours) * 60 + int(minutes)

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^({_CLOCK.pattern})$"}

    def render(self, value: int) -> str:
        return f"{value // 60:02}:{value % 60:02}"


class Timestamp(Kind[int]):
    """A point in time, in milliseconds since the epoch."""

    @property
    def words(self) -> str:
        return "ISO 8601 with a time zone, or milliseconds since the epoch"

    @property
    def stand_in(self) -> int:
        return 0

    def read(self, place: Place) -> int:
        node = place.node
        if isinstance(node, yaml.ScalarNode) and node.tag == INT:
            return Integer(0, _TIMESTAMP_MS_MAX).read(place)
        text = scalar(place, STR, "a time such as 2026-01-01T00:00:00Z")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise unexpected("a time such as 2026-01-01T00:00:00Z", place) from None
        if moment.tzinfo is None:
            raise UnreadableError(f"{text} has no time zone: add Z for UTC, or an offset such as +01:00")
        return require_between(round(moment.timestamp() * 1000), 0, _TIMESTAMP_MS_MAX, text)

    def schema(self) -> JsonSchema:
        moment = "[0-9]{4}-?[0-9]{2}-?[0-9]{2}.*([zZ]|[-+][0-9:]{2,5})"
        return integer_schema(0, _TIMESTAMP_MS_MAX, moment)
