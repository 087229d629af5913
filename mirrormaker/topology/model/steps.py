"""Filters and transforms: what is done to records on their way. All of them decode batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

JsonScalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPrefix:
    """The record's key starts with these bytes, as UTF-8."""

    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMatches:
    """A regular expression matches the whole of the record's key, as UTF-8 text."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What readers of records can ask nodes for, such as `$.delay >= 15 or header.kind = "late"`."""

    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTest:
    """The record has a header of this name whose value, as UTF-8 text, is one that is wanted."""

    name: str
    """Name of the header."""
    one_of: tuple[str, ...] = ()
    """What the value is one of; left out, anything."""
    matches: str | None = None
    """A regular expression that matches the whole value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTest:
    """The record's value is JSON and has this field, with a value that is wanted."""

    field: str
    """Names from the outside in, with dots between: `customer.country`."""
    one_of: tuple[JsonScalar, ...] = ()
    """What the value is one of; left out, anything."""
    matches: str | None = None
    """A regular expression that matches the whole value, which must be text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The condition does not hold."""

    condition: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """At least one condition holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """Every condition holds."""

    conditions: tuple[Condition, ...]


Condition = KeyPrefix | KeyMatches | Where | HeaderTest | JsonTest | Not | AnyOf | AllOf


class FilterAction(Enum):
    """What a filter does with records that meet its condition."""

    DROP = "drop"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSpec:
    """One filter. A record crosses when it passes all filters of its topic: `drop` leaves out the records
    that meet the condition, `keep` those that do not.
    """

    action: FilterAction
    condition: Condition
    topics: tuple[str, ...] = ()
    """Regular expressions of the source topics that it is for; left out, all of the route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropParts:
    """Takes fields out of JSON values, and headers."""

    fields: tuple[str, ...] = ()
    """JSON fields, with dots between the names."""
    headers: tuple[str, ...] = ()
    """Names of headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskParts:
    """Replaces what stands in fields of JSON values, in headers, and in keys."""

    fields: tuple[str, ...] = ()
    """JSON fields, with dots between the names."""
    headers: tuple[str, ...] = ()
    """Names of headers."""
    key: bool = False
    """Whether the record's key is replaced too."""
    replacement: str = "***"
    """What stands there instead."""
    hash: bool = False
    """Instead: the SHA-256 of what stands there, in hexadecimal digits, so that what was equal stays so."""
    salt: str | None = None
    """What is hashed along (HMAC), as `env:NAME` or `file:/PATH`: without it short values can be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameParts:
    """Gives fields of JSON values, and headers, other names."""

    fields: Mapping[str, str] = field(default_factory=dict)
    """JSON field -> its new name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header -> its new name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTo:
    """Writes records to another topic of the destination."""

    to: str
    """The topic, a template as in `topics.name`."""
    when: Condition | None = None
    """Which records; left out, all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFunction:
    """Calls a function of yours with every record: it returns the record, another one, or None to drop it."""

    module: str
    """Where it is imported from."""
    name: str
    """Its name there."""


TransformStep = DropParts | MaskParts | RenameParts | RouteTo | CallFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSpec:
    """One transform; they are done in the order in which they stand, after the filters."""

    step: TransformStep
    topics: tuple[str, ...] = ()
    """Regular expressions of the source topics that it is for; left out, all of the route."""
