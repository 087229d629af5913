"""Tables of Markdown with their columns aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table, a line a row, every line ended."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "".join(f"{_line(cells, widths)}\n" for cells in lines)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
