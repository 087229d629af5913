"""Decoders of runs: structures of one layout, read by one `iter_unpack` (see `runs`).

The lengths in the structures of a run, and their empty tagged-field sections, are values known
beforehand: they are read along with the others and compared. A run is taken only when the buffer holds
all of it, whatever the count says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import length_hint
from typing import Any, NamedTuple

from broker.types import Buffer
from broker.wire.primitives import uuid_of
from broker.wire.runs import ARRAY_LENGTH_MAX, RUN_LENGTH_MAX, Layout, Runs, carried_fields
from broker.wire.schema import FIXED_SIZES, Field, Kind, Struct
from broker.wire.source import Source, add_defaults

_NAMESPACE = {"length_hint": length_hint, "new": object.__new__, "uuid_of": uuid_of}
_TOO_LONG: Layout = (ARRAY_LENGTH_MAX + 1,)
"""Of structures with an array that makes no layout."""

ReadRun = Callable[[Buffer, int, int, int, list[Any]], tuple[int, int]]
"""(buffer, position, its size, structures left, list to append to) -> (position, structures left)."""


def read_nothing(_buffer: Buffer, position: int, _size: int, left: int, _items: list[Any]) -> tuple[int, int]:
    return position, left


@cache
def read_layout(struct: type[Struct], version: int, *, flexible: bool) -> Callable[[Buffer, int], Layout]:
    """The function that finds the layout of the `struct` at a position from the lengths in it.

    Behind an array that makes none it does not look: it may have skipped too little to find a length there.
    """
    source = Source({"TOO_LONG": _TOO_LONG})
    lengths, gap = [], 0
    for field in carried_fields(struct, version):
        if field.element is None:
            gap += FIXED_SIZES[field.kind]
            continue
        length = source.variable("length")
        lengths.append(length)
        unpack, size = source.packed("unpack_from", [str(gap) + "x", "B" if flexible else "i"])
        source.add(f"{length}, = {unpack}(buffer, position)")
        if flexible:
            source.add(f"{length} -= 1")
        with source.block(f"if {length} > {ARRAY_LENGTH_MAX}:"):
            source.add("return TOO_LONG")
        element_size = FIXED_SIZES[field.element.kind]
        source.add(f"position += {size} + ({length} * {element_size} if {length} > 0 else 0)")
        gap = 0
    source.add(f"return ({', '.join(lengths)},)")
    return source.compile("look(buffer, position)", f"<layout of {struct.__name__} {version}>")


@cache
def read_runs(struct: type[Struct], version: int, *, flexible: bool) -> Runs[ReadRun]:
    """The run readers of `struct` in `version`."""

    def generate(layout: Layout) -> ReadRun:
        return _compile_run_reader(struct, version, layout, flexible=flexible)

    return Runs(generate, read_nothing)


class _Packed(NamedTuple):
    """A value of a packed structure: format, variable, and what it must be if that is known beforehand."""

    code: str
    target: str
    expected: int | None = None


def _compile_run_reader(struct: type[Struct], version: int, layout: Layout, *, flexible: bool) -> ReadRun:
    """Generate the loop over structures of `layout`, which ends before the first that is not of it."""
    source, lengths = Source(_NAMESPACE), iter(layout)
    packed: list[_Packed] = []
    values: list[tuple[Field, str]] = []
    for field in carried_fields(struct, version):
        target = source.variable("value")
        if field.element is None:
            packed.append(_Packed(field.kind.value, target))
            values.append((field, f"uuid_of({target})" if field.kind is Kind.UUID else target))
            continue
        count = next(lengths)
        if count < 0 and version not in field.nullable:
            return read_nothing
        elements = [source.variable("element") for _ in range(count)]
        packed.append(_Packed("B" if flexible else "i", target, count + flexible))
        packed += [_Packed(field.element.kind.value, element) for element in elements]
        values.append(
            (field, f"({''.join(f'{element}, ' for element in elements)})" if count >= 0 else "None")
        )
    if flexible:
        packed.append(_Packed("B", source.variable("tags"), 0))
    packed = _join_expected_bytes(packed)
    mismatch = " or ".join(
        f"{target} != {expected}" for _, target, expected in packed if expected is not None
    )
    unpack, size = source.packed("iter_unpack", [code for code, _, _ in packed])
    source.add(f"count = left if left < {RUN_LENGTH_MAX} else {RUN_LENGTH_MAX}")
    source.add(f"end = position + count * {size}")
    with source.block("if end > size:"):
        source.add("return position, left")
    source.add(f"rest = {unpack}(buffer[position:end])")
    with source.block(f"for {', '.join(target for _, target, _ in packed)}, in rest:"):
        if mismatch:
            with source.block(f"if {mismatch}:"):
                source.add("unread = length_hint(rest) + 1")
                source.add(f"return end - unread * {size}, left - count + unread")
        source.add(f"item = new({source.bind('struct', struct, struct)})")
        for field, value in values:
            source.add(f"item.{field.name} = {value}")
        add_defaults(source, struct, version, "item")
        source.add("items.append(item)")
    source.add("return end, left - count")
    return source.compile(
        "run(buffer, position, size, left, items)", f"<run decoder of {struct.__name__} {version}>"
    )


def _join_expected_bytes(packed: list[_Packed]) -> list[_Packed]:
    """Make neighbouring bytes whose values are known one 16-bit value, which is one comparison less."""
    joined: list[_Packed] = []
    for value in packed:
        last = joined[-1] if joined else None
        if (
            last is None
            or last.code != "B"
            or value.code != "B"
            or last.expected is None
            or value.expected is None
        ):
            joined.append(value)
        else:
            joined[-1] = _Packed("H", last.target, last.expected << 8 | value.expected)
    return joined
