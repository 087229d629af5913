"""Decoders: one generated function per message and version.

The text mirrors the encoder's: fixed-size fields in a row, and the length after them, are one `unpack_from`.
No length is trusted. Reading past the end raises IndexError or struct.error, or moves the position past the
end, where the next read or the message's final check finds it; an array's count is held against the bytes
left before anything is made of it. So what a decoder allocates is bounded by the bytes it was given.
`record_bytes` values are views of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.errors import WireError
from broker.types import Buffer
from broker.wire.primitives import (
    ARRAY_STRUCTS,
    finish_string_length,
    finish_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
    uuid_of,
)
from broker.wire.run_decoding import read_layout, read_nothing, read_runs
from broker.wire.runs import carried_fields, comes_in_runs
from broker.wire.schema import FIXED_SIZES, Field, Kind, Struct
from broker.wire.source import Source, add_defaults, minimum_element_size

Read = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, position, end of the message) -> (message, position after it)."""

_NAMESPACE = {
    "WireError": WireError,
    "new": object.__new__,
    "finish_string_length": finish_string_length,
    "finish_unsigned_varint": finish_unsigned_varint,
    "read_unsigned_varint": read_unsigned_varint,
    "skip_tagged_fields": skip_tagged_fields,
    "uuid_of": uuid_of,
}


def holds_records(struct: type[Struct], version: int) -> bool:
    """Whether `struct` has a `record_bytes` field in `version`, at any depth."""
    for field in struct.__fields__:
        inner = field.element or field
        if version not in field.versions:
            continue
        if inner.kind is Kind.RECORDS or (inner.struct is not None and holds_records(inner.struct, version)):
            return True
    return False


def compile_reader(struct: type[Struct], version: int, *, flexible: bool) -> Read:
    """The function that reads one `struct` in `version`.

    It raises what torn bytes provoke (IndexError, struct.error, UnicodeDecodeError) or WireError, and may
    return a position past the end; the message's `decode` translates and checks.
    """
    viewing = holds_records(struct, version)
    reader = _Reader(version, flexible=flexible, viewing=viewing)
    source = reader.source
    if viewing:
        source.add("view = memoryview(buffer)")
    else:
        source.add("buffer = bytes(buffer)")
    reader.structure(struct, "message")
    reader.flush()
    source.add("return message, position")
    return source.compile("read(buffer, position, size)", f"<decoder of {struct.__name__} {version}>")


class _Reader:
    """Generates the body of one decoder.

    `_run` holds the fixed-size values not yet read: format and the target each is assigned to. `_after`
    holds the lines that need them.
    """

    def __init__(self, version: int, *, flexible: bool, viewing: bool) -> None:
        self.source = Source(_NAMESPACE)
        self._version = version
        self._flexible = flexible
        self._viewing = viewing
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    def structure(self, struct: type[Struct], target: str) -> None:
        """Emit the reading of a `struct` into the variable `target`; its last fields may stay pending."""
        self.source.add(f"{target} = new({self.source.bind('struct', struct, struct)})")
        add_defaults(self.source, struct, self._version, target)
        for field in carried_fields(struct, self._version):
            self._value(field, f"{target}.{field.name}")
        if self._flexible:
            self._tagged_fields(struct, target)

    def flush(self) -> None:
        """Emit the read of the pending fixed-size values."""
        run, after = self._run, self._after
        self._run, self._after = [], []
        if len(run) == 1 and run[0][0] == "B":
            self.source.add(f"{run[0][1]} = buffer[position]; position += 1")
        elif run:
            unpack, size = self.source.packed("unpack_from", [code for code, _ in run])
            targets = ", ".join(place for _, place in run)
            self.source.add(
                f"{targets}{',' * (len(run) == 1)} = {unpack}(buffer, position); position += {size}"
            )
        for line in after:
            self.source.add(line)

    def _value(self, field: Field, place: str) -> None:
        if field.kind is Kind.UUID:
            raw = self.source.variable("raw")
            self._run.append((field.kind.value, raw))
            self._after.append(f"{place} = uuid_of({raw})")
        elif field.kind in FIXED_SIZES:
            self._run.append((field.kind.value, place))
        elif field.kind is Kind.STRUCT:
            self._nested(field, place)
        else:
            self._sized(field, place)

    def _sized(self, field: Field, place: str) -> None:
        """Read a length and what it measures. Flexible versions send the length plus one, 0 being null."""
        source, length = self.source, self._length(field.kind)
        null = 0 if self._flexible else -1
        with source.block(f"if {length} > {null}:"):
            if field.kind is Kind.ARRAY:
                if self._flexible:
                    source.add(f"{length} -= 1")
                self._array(field, place, length)
            else:
                self._bytes(field, place, f"{length} - 1" if self._flexible else length)
        if self._version in field.nullable:
            with source.block(f"elif {length} == {null}:"):
                source.add(f"{place} = None")
        with source.block("else:"):
            source.add(
                f"raise WireError(f'{field.name or 'an element'} has the length {{{length} - {null + 1}}}')"
            )

    def _length(self, kind: Kind) -> str:
        length = self.source.variable("length")
        if not self._flexible:
            self._run.append(("h" if kind is Kind.STRING else "i", length))
            self.flush()
            return length
        self._run.append(("B", length))
        self.flush()
        finish = "finish_string_length" if kind is Kind.STRING else "finish_unsigned_varint"
        with self.source.block(f"if {length} > 127:"):
            self.source.add(f"{length}, position = {finish}(buffer, {length}, position)")
        return length

    def _bytes(self, field: Field, place: str, length: str) -> None:
        source = self.source
        source.add(f"end = position + {length}")
        if field.kind is Kind.RECORDS:
            source.add(f"{place} = view[position:end]")
        elif field.kind is Kind.BYTES:
            source.add(
                f"{place} = {'bytes(buffer[position:end])' if self._viewing else 'buffer[position:end]'}"
            )
        elif self._viewing:
            source.add(f"{place} = str(buffer[position:end], 'utf-8')")
        else:
            source.add(f"{place} = buffer[position:end].decode()")
        source.add("position = end")

    def _array(self, field: Field, place: str, length: str) -> None:
        source, element = self.source, field.element
        assert element is not None
        if element.struct is not None and comes_in_runs(element.struct, self._version):
            self._runs(field, element.struct, place, length)
            return
        self._check_count(field, length)
        if field.is_number_array:
            structs = source.bind("structs", element.kind, ARRAY_STRUCTS[element.kind.value])
            source.add(f"{place} = {structs}[{length}].unpack_from(buffer, position)")
            source.add(f"position += {length} * {FIXED_SIZES[element.kind]}")
            return
        items, item = source.variable("items"), source.variable("item")
        source.add(f"{items} = {place} = []")
        with source.block(f"for _ in range({length}):"):
            if element.struct is not None:
                self.structure(element.struct, item)
            else:
                self._value(element, item)
            self.flush()
            source.add(f"{items}.append({item})")

    def _check_count(self, field: Field, count: str) -> None:
        """Refuse an array of more elements than the bytes left can hold."""
        assert field.element is not None
        element_size = minimum_element_size(field.element, self._version, flexible=self._flexible)
        with self.source.block(f"if {count} * {element_size} > size - position:"):
            self.source.add(
                f"raise WireError(f'{{{count}}} {field.name} cannot be in {{size - position}} bytes')"
            )

    def _runs(self, field: Field, struct: type[Struct], place: str, left: str) -> None:
        """Read structures in runs of one layout, and those between the runs one by one."""
        source = self.source
        runs = read_runs(struct, self._version, flexible=self._flexible)
        run, items, item = source.variable("run"), source.variable("items"), source.variable("item")
        has_arrays = any(field.kind is Kind.ARRAY for field in carried_fields(struct, self._version))
        first_run = read_nothing if has_arrays else runs.find(())
        source.add_prologue(f"{run} = {source.bind('first_run', run, first_run)}")
        take_run = f"position, {left} = {run}(buffer, position, size, {left}, {items})"
        source.add(f"{items} = {place} = []")
        source.add(take_run)
        with source.block(f"while {left}:"):
            self._check_count(field, left)
            if has_arrays:
                layout_at = read_layout(struct, self._version, flexible=self._flexible)
                find, layout_at_name = (
                    source.bind("find", runs, runs.find),
                    source.bind("layout_at", runs, layout_at),
                )
                source.add(f"{run} = {find}({layout_at_name}(buffer, position))")
                source.add(take_run)
                with source.block(f"if not {left}:"):
                    source.add("break")
            self.structure(struct, item)
            self.flush()
            source.add(f"{items}.append({item}); {left} -= 1")
            source.add(take_run)

    def _nested(self, field: Field, place: str) -> None:
        source, item = self.source, self.source.variable("item")
        if self._version not in field.nullable:
            self.structure(field.nested(), item)
            source.add(f"{place} = {item}")
            return
        marker = source.variable("marker")
        self._run.append(("b", marker))
        self.flush()
        with source.block(f"if {marker} < 0:"):
            source.add(f"{place} = None")
        with source.block("else:"):
            self.structure(field.nested(), item)
            self.flush()
            source.add(f"{place} = {item}")

    def _tagged_fields(self, struct: type[Struct], target: str) -> None:
        source = self.source
        fields = [
            field for field in struct.__fields__ if self._version in field.versions and field.tag is not None
        ]
        count = source.variable("count")
        self._run.append(("B", count))
        if not fields:
            self._after.append(f"if {count}: position = skip_tagged_fields(buffer, {count}, position, size)")
            self.flush()
            return
        self.flush()
        with source.block(f"if {count} > 127:"):
            source.add(f"{count}, position = finish_unsigned_varint(buffer, {count}, position)")
        tag, length, end = source.variable("tag"), source.variable("length"), source.variable("end")
        with source.block(f"for _ in range({count}):"):
            source.add(f"{tag}, position = read_unsigned_varint(buffer, position)")
            source.add(f"{length}, position = read_unsigned_varint(buffer, position)")
            source.add(f"{end} = position + {length}")
            with source.block(f"if {end} > size:"):
                source.add("raise WireError('a tagged field ends after the message')")
            for number, field in enumerate(fields):
                with source.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                    self._value(field, f"{target}.{field.name}")
                    self.flush()
            with source.block("else:"):
                source.add(f"position = {end}")
            with source.block(f"if position != {end}:"):
                source.add("raise WireError('a tagged field is longer or shorter than it says')")
