"""What a dump of a file consists of: lines of named fields, and the damage that is met between them.

The names are those that Kafka's DumpLogSegments prints. As text a line is `name: value name: value`, a record
led by `| `; as a document it is one flat object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

_CONTROL_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
"""Stored bytes must not steer the terminal that they are printed on."""


@dataclass(frozen=True, slots=True)
class OptionalLong:
    """A number that may be missing, printed as Java prints it."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


FieldValue: TypeAlias = (
    str | int | bool | bytes | OptionalLong | tuple[str, ...] | Mapping[str, object] | None
)


class LineKind(Enum):
    """What a line tells of."""

    BATCH = "batch"
    """An entry of a log: a batch, or a message of magic 0 or 1."""
    RECORD = "record"
    """A record inside the entry of the line before."""
    ENTRY = "entry"
    """An entry of any other file."""
    NOTE = "note"
    """A word about the file itself."""


@dataclass(frozen=True, slots=True)
class DumpLine:
    """One line. Fields that are None are left out of text, and null in documents."""

    kind: LineKind
    fields: Mapping[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what they should be; `position` is where in the file they begin, None for all of
    it.
    """

    position: int | None
    message: str

    def __str__(self) -> str:
        return self.message if self.position is None else f"position {self.position}: {self.message}"


Finding: TypeAlias = DumpLine | Damage


def text_of(line: DumpLine) -> str:
    """The line as text, on one line whatever the fields hold."""
    words = " ".join(f"{name}: {_text(value)}" for name, value in line.fields.items() if value is not None)
    return f"| {words}" if line.kind is LineKind.RECORD else words


def document_of(line: DumpLine) -> dict[str, object]:
    """The line as a JSON document."""
    return {"kind": line.kind.value} | {name: _plain(value) for name, value in line.fields.items()}


def _text(value: FieldValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode(errors="backslashreplace").translate(_CONTROL_ESCAPES)
        case OptionalLong():
            return str(value)
        case tuple():
            return f"[{','.join(value)}]".translate(_CONTROL_ESCAPES)
        case Mapping():
            return json.dumps(value, separators=(",", ":"))
        case _:
            return str(value)


def _plain(value: FieldValue) -> object:
    match value:
        case bytes():
            return value.decode(errors="backslashreplace")
        case OptionalLong():
            return value.value
        case _:
            return value
