"""How far a long command is, on stderr while that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class ProgressBar(Protocol):
    """A bar of bytes. Any thread."""

    def begin(self, size: int) -> None:
        """Start at nothing of `size` bytes."""
        ...

    def by(self, size: int) -> None:
        """Move on by so many bytes."""
        ...


class LeftError(Exception):
    """The bar was left; whoever still moves it on ends here."""


class _Bar:
    """What the work sees: a bar that shows how far it is, or nothing."""

    def __init__(self, shown: ProgressBar | None) -> None:
        self._shown = shown
        self.is_left = False

    def begin(self, size: int) -> None:
        if self._shown is not None:
            self._shown.begin(size)

    def by(self, size: int) -> None:
        if self.is_left:
            raise LeftError
        if self._shown is not None:
            self._shown.by(size)


@contextlib.contextmanager
def progress_bar(action: str) -> Iterator[ProgressBar]:
    """A bar with a word on what is done; it shows nothing where nobody watches.

    Work in a thread that moves it on after it was left, as by a signal, ends by `LeftError`.
    """
    with _shown_bar(action) as shown:
        bar = _Bar(shown)
        try:
            yield bar
        finally:
            bar.is_left = True


@contextlib.contextmanager
def _shown_bar(action: str) -> Iterator[ProgressBar | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from broker.terminal_bar import terminal_bar  # only here: the library takes a while to load

    with terminal_bar(action) as bar:
        yield bar
