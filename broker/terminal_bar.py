"""The progress bar on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class TerminalBar:
    """See `broker.progress.ProgressBar`."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def begin(self, size: int) -> None:
        self._progress.update(self._task, total=size, completed=0)

    def by(self, size: int) -> None:
        self._progress.advance(self._task, size)


@contextlib.contextmanager
def terminal_bar(action: str) -> Iterator[TerminalBar]:
    """A bar on stderr that goes when the work is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield TerminalBar(progress, progress.add_task(action, total=None))
