"""What is to be told about files that are imported. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from broker.config_file import Entry


class Remarks:
    """Problems, for which nothing is imported, and notes on what is not carried over, or means something
    else; each once. Knows which entries had a use, or were told of.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [str(file) for file in files]
        self._problems: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        """What is told, and its place."""
        self._used: set[Entry] = set()

    @property
    def problems(self) -> list[str]:
        """In the order of files and lines."""
        return self._in_order(self._problems)

    @property
    def notes(self) -> list[str]:
        """In the order of files and lines."""
        return self._in_order(self._notes)

    def use(self, entry: Entry) -> None:
        """Nothing is to be told of it."""
        self._used.add(entry)

    def is_used(self, entry: Entry) -> bool:
        """Whether it had a use, or was told of."""
        return entry in self._used

    def report(self, entry: Entry, message: str) -> None:
        """A problem."""
        self.use(entry)
        self._problems[f"{entry.place}: {entry.name}: {message}"] = entry.place

    def report_file(self, file: Path, message: str) -> None:
        """A problem of a file as a whole."""
        self._problems[f"{file}: {message}"] = f"{file}:0"

    def report_lines(self, file: Path, problems: Iterable[str]) -> None:
        """Problems that tell their places, `FILE:LINE: MESSAGE`."""
        for problem in problems:
            line = problem.removeprefix(f"{file}:").partition(":")[0]
            self._problems[problem] = f"{file}:{line}"

    def note(self, entry: Entry, message: str) -> None:
        """Something that is done otherwise than the file says."""
        self.use(entry)
        self._notes[f"{entry.place}: {entry.name}: {message}"] = entry.place

    def note_line(self, file: Path, line: int, message: str) -> None:
        """Of a file that has other lines than settings."""
        self._notes[f"{file}:{line}: {message}"] = f"{file}:{line}"

    def _in_order(self, told: dict[str, str]) -> list[str]:
        def rank(line: str) -> tuple[int, int]:
            file, _, number = told[line].rpartition(":")
            return self._files.index(file) if file in self._files else len(self._files), int(number)

        return sorted(told, key=rank)
