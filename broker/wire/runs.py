"""Arrays whose structures are laid out alike: the codecs' inner loops, specialised once more at run time.

Partitions of a topic mostly differ in values only: the same fixed-size fields, replica lists of the same
lengths. Such a run of structures is read by one `iter_unpack` and written with one `pack` each. A layout
is what all structures of a run share: the lengths of the arrays in them. Its function is generated when
the layout is first met; a run ends where the layout changes or tagged fields appear, and the general code
takes the next structure. A run may be empty.

Peers choose the layouts that are met, so their number and their lengths are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from broker.wire.schema import FIXED_SIZES, Field, Struct

LAYOUTS_MAX = 64
"""Layouts kept for one structure, version and direction; those met later go the general way."""
ARRAY_LENGTH_MAX = 8
"""Longest array that makes a layout."""

RUN_LENGTH_MAX = 256
"""Structures tried as one run: a run cut short at once has cost no more than these."""

Layout = tuple[int, ...]
"""Lengths of a structure's arrays in the order of its fields, -1 for null."""
RunType = TypeVar("RunType")


def carried_fields(struct: type[Struct], version: int) -> list[Field]:
    """Untagged fields of `struct` in `version`, in wire order."""
    return [field for field in struct.__fields__ if version in field.versions and field.tag is None]


def comes_in_runs(struct: type[Struct], version: int) -> bool:
    """Whether `struct` consists of fixed-size fields and arrays of fixed-size values only."""
    fields = carried_fields(struct, version)
    return bool(fields) and all(field.kind in FIXED_SIZES or field.is_number_array for field in fields)


class Runs(Generic[RunType]):
    """Functions by layout, generated on demand; `empty` stands in for layouts beyond the bounds."""

    def __init__(self, generate: Callable[[Layout], RunType], empty: RunType) -> None:
        self._generate = generate
        self._empty = empty
        self._by_layout: dict[Layout, RunType] = {}

    def __len__(self) -> int:
        return len(self._by_layout)

    def find(self, layout: Layout) -> RunType:
        """The function for `layout`, or the one that takes nothing."""
        run = self._by_layout.get(layout)
        if run is not None:
            return run
        if len(self._by_layout) >= LAYOUTS_MAX or any(not -1 <= n <= ARRAY_LENGTH_MAX for n in layout):
            return self._empty
        run = self._by_layout[layout] = self._generate(layout)
        return run
