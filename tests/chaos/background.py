"""What goes on in a thread of its own while a test disturbs it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Background:
    """Work within a `with`, whose end waits for the work's. Each kind of work fills in `_run` and `_end`."""

    def __init__(self, name: str) -> None:
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        """The work, until `_stopping` is set."""
        raise NotImplementedError

    def _end(self, *, failed: bool) -> None:
        """What is left to do and to check after `_run`; where the test `failed` it is not hidden by more."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._end(failed=error is not None)
