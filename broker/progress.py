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


class _NoBar:
    def begin(self, size: int) -> None:
        pass

    def by(self, size: int) -> None:
        pass


@contextlib.contextmanager
def progress_bar(action: str) -> Iterator[ProgressBar]:
    """A bar with a word on what is done; it shows nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    from broker.terminal_bar import terminal_bar  # only here: the library takes a while to load

    with terminal_bar(action) as bar:
        yield bar
