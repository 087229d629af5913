"""Source text under construction: what the encoder and decoder generators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as PackedStruct
from typing import Any

from broker.wire.runs import carried_fields
from broker.wire.schema import FIXED_SIZES, MADE_NEW, Field, Kind, Struct


class Source:
    """Indented lines of one function, and the objects that its text refers to by name."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = dict(namespace)
        self._prologue: list[str] = []
        self._lines: list[str] = []
        self._indent = 1
        self._names: dict[tuple[str, object], str] = {}
        self._count = 0

    def add(self, line: str) -> None:
        """Append a line at the present indent."""
        self._lines.append("    " * self._indent + line)

    def add_prologue(self, line: str) -> None:
        """Append a line to those that come before all others."""
        self._prologue.append("    " + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Append `opening` (which ends in a colon); lines added inside are indented under it."""
        self.add(opening)
        self._indent += 1
        yield
        self._indent -= 1

    def variable(self, stem: str) -> str:
        """A name that this function does not use yet."""
        self._count += 1
        return f"{stem}{self._count}"

    def bind(self, stem: str, key: object, value: Any) -> str:
        """The name under which the text can use `value`; the same `stem` and `key` give the same name."""
        if (stem, key) not in self._names:
            name = self._names[stem, key] = f"{stem}_{len(self._names)}"
            self.namespace[name] = value
        return self._names[stem, key]

    def constant(self, value: Any) -> str:
        """An expression for an immutable `value`."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        return self.bind("constant", value, value)

    def packed(self, method: str, formats: list[str]) -> tuple[str, int]:
        """Name of a bound `struct` method for big-endian `formats`, and the bytes they take."""
        text = ">" + "".join(formats)
        struct = PackedStruct(text)
        return self.bind(method, text, getattr(struct, method)), struct.size

    def compile(self, signature: str, file_name: str) -> Callable[..., Any]:
        """The function `signature` (`name(arguments)`) with the lines as its body."""
        text = f"def {signature}:\n" + "\n".join(self._prologue + self._lines) + "\n"
        exec(compile(text, file_name, "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace[signature.partition("(")[0]]
        return function


def add_defaults(source: Source, struct: type[Struct], version: int, target: str) -> None:
    """Set the fields of `target` that `version` does not carry, and its tagged ones, to their defaults."""
    for field in struct.__fields__:
        if version not in field.versions or field.tag is not None:
            _add_default(source, field, f"{target}.{field.name}")


def _add_default(source: Source, field: Field, place: str) -> None:
    if field.default is not MADE_NEW:
        source.add(f"{place} = {source.constant(field.default)}")
    elif field.kind is Kind.ARRAY:
        source.add(f"{place} = []")
    else:
        item, struct = source.variable("item"), field.nested()
        source.add(f"{item} = {place} = new({source.bind('struct', struct, struct)})")
        for member in struct.__fields__:
            _add_default(source, member, f"{item}.{member.name}")


def differs_from_default(source: Source, field: Field, value: str, version: int) -> str:
    """A condition: the expression `value` is not the default of `field`."""
    if field.default is None:
        return f"{value} is not None"
    if field.kind is Kind.ARRAY:
        return f"{value} is None or {value}" if version in field.nullable else value
    if field.default is not MADE_NEW:
        return f"{value} != {source.constant(field.default)}"
    members = [
        differs_from_default(source, member, f"{value}.{member.name}", version)
        for member in field.nested().__fields__
    ]
    return " or ".join([f"{value} is None"] * (version in field.nullable) + members)


def minimum_size(struct: type[Struct], version: int, *, flexible: bool) -> int:
    """Fewest bytes that `struct` takes in `version`: they bound an array's count by the bytes left."""
    fields = carried_fields(struct, version)
    return sum(_minimum_field_size(field, version, flexible=flexible) for field in fields) + flexible


def minimum_element_size(element: Field, version: int, *, flexible: bool) -> int:
    """As `minimum_size`, for one element of an array; never 0."""
    return max(1, _minimum_field_size(element, version, flexible=flexible))


def _minimum_field_size(field: Field, version: int, *, flexible: bool) -> int:
    if field.kind in FIXED_SIZES:
        return FIXED_SIZES[field.kind]
    if field.kind is Kind.STRUCT:
        return 1 if version in field.nullable else minimum_size(field.nested(), version, flexible=flexible)
    if flexible:
        return 1
    return 2 if field.kind is Kind.STRING else 4
