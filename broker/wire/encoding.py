"""Encoders: one generated function per message and version.

The text is straight-line code. Fixed-size fields in a row are one call of a prepared `struct`, to which
the length that follows them is joined; structures are written in place of their parent, so that a message
is one function without calls per element. `record_bytes` values are appended as they are and marked as
cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from broker.errors import WireError
from broker.wire.primitives import ARRAY_STRUCTS, ONE_BYTE, encode_string_length, encode_unsigned_varint
from broker.wire.runs import Layout, Runs, carried_fields, comes_in_runs
from broker.wire.schema import FIXED_SIZES, Field, Kind, Struct
from broker.wire.source import Source, differs_from_default


class Parts(list[Any]):
    """Encoded pieces in wire order; `cuts` are the indexes of those that must stay parts of their own."""

    __slots__ = ("cuts",)

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[int] = []


Write = Callable[[Any, Parts], None]

_NAMESPACE = {
    "WireError": WireError,
    "ONE_BYTE": ONE_BYTE,
    "encode_string_length": encode_string_length,
    "encode_unsigned_varint": encode_unsigned_varint,
}


def compile_writer(struct: type[Struct], version: int, *, flexible: bool) -> Write:
    """The function that appends the pieces of a `struct` in `version` to the Parts it is given.

    It raises what its values provoke (struct.error, AttributeError, TypeError) and WireError for values
    that the version would lose; the message's `encode` translates.
    """
    writer = _Writer(version, flexible=flexible)
    writer.source.add("add = parts.append")
    writer.structure(struct, "message")
    writer.flush()
    return writer.source.compile("write(message, parts)", f"<encoder of {struct.__name__} {version}>")


class _Writer:
    """Generates the body of one encoder. `_run`: format and expression of the values not yet written."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.source = Source(_NAMESPACE)
        self._version = version
        self._flexible = flexible
        self._run: list[tuple[str, str]] = []

    def structure(self, struct: type[Struct], target: str) -> None:
        """Emit the fields of `struct`, which the expression `target` holds; the last may stay pending."""
        tagged: list[Field] = []
        for field in struct.__fields__:
            value = f"{target}.{field.name}"
            if self._version not in field.versions:
                self._refuse_lost_value(struct, field, value)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._value(field, value)
        if self._flexible:
            self._tagged_fields(sorted(tagged, key=lambda field: field.tag or 0), target)

    def flush(self) -> None:
        """Emit the pending fixed-size values."""
        if self._run:
            self.source.add(f"add({self._packed(self._run)})")
            self._run = []

    def _packed(self, run: list[tuple[str, str]]) -> str:
        pack, _size = self.source.packed("pack", [code for code, _ in run])
        return f"{pack}({', '.join(value for _, value in run if value)})"

    def _refuse_lost_value(self, struct: type[Struct], field: Field, value: str) -> None:
        if field.ignorable:
            return
        with self.source.block(f"if {differs_from_default(self.source, field, value, self._version)}:"):
            message = f"{struct.__name__}.{field.name} cannot be sent in version {self._version}"
            self.source.add(f"raise WireError({message!r})")

    def _value(self, field: Field, value: str) -> None:
        if field.kind in FIXED_SIZES:
            self._run.append((field.kind.value, f"{value}.bytes" if field.kind is Kind.UUID else value))
        elif field.kind is Kind.STRUCT:
            self._nested(field, value)
        elif field.kind is Kind.ARRAY:
            self._array(field, value)
        else:
            self._sized_bytes(field, value)

    def _sized_bytes(self, field: Field, value: str) -> None:
        """Emit a string, bytes or records: the length, by which null is told from empty, then the bytes."""
        source, nullable = self.source, self._version in field.nullable
        held, length = source.variable("value"), source.variable("length")
        plus_one = " + 1" if self._flexible else ""
        source.add(f"{held} = {value}{'.encode()' if field.kind is Kind.STRING and not nullable else ''}")
        if nullable:
            with source.block(f"if {held} is None:"):
                source.add(f"{held} = b''; {length} = {0 if self._flexible else -1}")
            with source.block("else:"):
                if field.kind is Kind.STRING:
                    source.add(f"{held} = {held}.encode()")
                source.add(f"{length} = len({held}){plus_one}")
        else:
            source.add(f"{length} = len({held}){plus_one}")
        self._length(field.kind, length)
        if field.kind is Kind.RECORDS:
            with source.block(f"if len({held}):"):
                source.add("parts.cuts.append(len(parts))")
                source.add(f"add({held})")
        else:
            source.add(f"add({held})")

    def _length(self, kind: Kind, length: str) -> None:
        """Emit the pending run with a length at its end; the variable `length` holds what is sent."""
        if not self._flexible:
            self._run.append(("h" if kind is Kind.STRING else "i", length))
            self.flush()
            return
        encode = "encode_string_length" if kind is Kind.STRING else "encode_unsigned_varint"
        if not self._run:
            self.source.add(f"add(ONE_BYTE[{length}] if {length} < 128 else {encode}({length}))")
            return
        with self.source.block(f"if {length} < 128:"):
            self.source.add(f"add({self._packed([*self._run, ('B', length)])})")
        with self.source.block("else:"):
            self.source.add(f"add({self._packed(self._run)}); add({encode}({length}))")
        self._run = []

    def _array(self, field: Field, value: str) -> None:
        source = self.source
        held, length = source.variable("items"), source.variable("length")
        source.add(f"{held} = {value}")
        if self._version in field.nullable:
            with source.block(f"if {held} is None:"):
                source.add(f"{held} = (); {length} = {0 if self._flexible else -1}")
            with source.block("else:"):
                source.add(f"{length} = len({held}){' + 1' if self._flexible else ''}")
        else:
            source.add(f"{length} = len({held}){' + 1' if self._flexible else ''}")
        self._length(field.kind, length)
        self._elements(field, held)

    def _elements(self, field: Field, held: str) -> None:
        source, element = self.source, field.element
        assert element is not None
        if field.is_number_array:
            code = element.kind.value
            structs = source.bind("structs", code, ARRAY_STRUCTS[code])
            with source.block(f"if {held}:"):
                source.add(f"add({structs}[len({held})].pack(*{held}))")
            return
        if element.struct is not None and comes_in_runs(element.struct, self._version):
            self._runs(element.struct, held)
            return
        item = source.variable("item")
        with source.block(f"for {item} in {held}:"):
            if element.kind is Kind.STRUCT:
                self.structure(element.nested(), item)
            else:
                self._value(element, item)
            self.flush()

    def _runs(self, struct: type[Struct], held: str) -> None:
        """Write structures in runs of one layout, and those between the runs one by one."""
        source = self.source
        arrays = [field for field in carried_fields(struct, self._version) if field.kind is Kind.ARRAY]
        runs = write_runs(struct, self._version, flexible=self._flexible)
        run, index, item = source.variable("run"), source.variable("index"), source.variable("item")
        first = _write_nothing if arrays else runs.find(())
        source.add_prologue(f"{run} = {source.bind('first_run', run, first)}")
        source.add(f"{index} = {run}({held}, 0, add)")
        with source.block(f"while {index} < len({held}):"):
            source.add(f"{item} = {held}[{index}]")
            if arrays:
                values = [f"{item}.{field.name}" for field in arrays]
                layout = ", ".join(f"-1 if {value} is None else len({value})" for value in values)
                find = source.bind("find_run", runs, runs.find)
                source.add(f"{run} = {find}(({layout},))")
                source.add(f"{index} = {run}({held}, {index}, add)")
                with source.block(f"if {index} == len({held}):"):
                    source.add("break")
                source.add(f"{item} = {held}[{index}]")
            self.structure(struct, item)
            self.flush()
            source.add(f"{index} = {run}({held}, {index} + 1, add)")

    def _nested(self, field: Field, value: str) -> None:
        source = self.source
        held = source.variable("item")
        source.add(f"{held} = {value}")
        if self._version not in field.nullable:
            self.structure(field.nested(), held)
            return
        self.flush()
        with source.block(f"if {held} is None:"):
            source.add("add(b'\\xff')")
        with source.block("else:"):
            self._run.append(("b", "1"))
            self.structure(field.nested(), held)
            self.flush()

    def _tagged_fields(self, fields: list[Field], target: str) -> None:
        """Emit the section of tagged fields: those with their default are left out."""
        if not fields:
            self._run.append(("x", ""))
            return
        source = self.source
        self.flush()
        sections = source.variable("sections")
        source.add(f"{sections} = []")
        for field in fields:
            value = f"{target}.{field.name}"
            outer, inner = source.variable("outer"), source.variable("inner")
            with source.block(f"if {differs_from_default(self.source, field, value, self._version)}:"):
                source.add(f"{outer} = add; {inner} = []; add = {inner}.append")
                self._value(field, value)
                self.flush()
                source.add(f"add = {outer}; {inner} = b''.join({inner})")
                source.add(
                    f"{sections} += (ONE_BYTE[{field.tag}], encode_unsigned_varint(len({inner})), {inner})"
                )
        source.add(f"add(ONE_BYTE[len({sections}) // 3] + b''.join({sections}))")


WriteRun = Callable[[Sequence[Any], int, Callable[[bytes], None]], int]
"""(structures, index of the first to write, where to append) -> index of the first not written."""


def _write_nothing(_items: Sequence[Any], index: int, _add: Callable[[bytes], None]) -> int:
    return index


@cache
def write_runs(struct: type[Struct], version: int, *, flexible: bool) -> Runs[WriteRun]:
    """The run writers of `struct` in `version`."""

    def generate(layout: Layout) -> WriteRun:
        writer = _RunWriter(struct, version, layout, flexible=flexible)
        return writer.source.compile(
            "run(items, index, add)", f"<run encoder of {struct.__name__} {version}>"
        )

    return Runs(generate, _write_nothing)


class _RunWriter(_Writer):
    """Generates the loop over structures of one layout; a structure that does not fit returns its index."""

    def __init__(self, struct: type[Struct], version: int, layout: Layout, *, flexible: bool) -> None:
        super().__init__(version, flexible=flexible)
        self._layout = iter(layout)
        with self.source.block("for index in range(index, len(items)):"):
            self.source.add("item = items[index]")
            self.structure(struct, "item")
            self.flush()
        self.source.add("return len(items)")

    def _array(self, field: Field, value: str) -> None:
        assert field.element is not None
        source, count = self.source, next(self._layout)
        held = source.variable("items")
        source.add(f"{held} = {value}")
        mismatch = f"{held} is not None" if count < 0 else f"{held} is None or len({held}) != {count}"
        if self._version not in field.nullable:
            mismatch = f"len({held}) != {count}"
        with source.block(f"if {mismatch}:"):
            source.add("return index")
        self._run.append(("B", str(count + 1)) if self._flexible else ("i", str(count)))
        values = [source.variable("value") for _ in range(count)]
        if values:
            source.add(f"{', '.join(values)}, = {held}")
        self._run += [(field.element.kind.value, value) for value in values]

    def _tagged_fields(self, fields: list[Field], target: str) -> None:
        for field in fields:
            value = f"{target}.{field.name}"
            with self.source.block(f"if {differs_from_default(self.source, field, value, self._version)}:"):
                self.source.add("return index")
        self._run.append(("x", ""))
