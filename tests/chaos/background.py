"""What goes on in a thread of its own while a test disturbs it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """Work within a `with`, whose end waits for that of the work. Each kind has a `_run` and an `_after`."""

    def __init__(self, name: str) -> None:
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def _run(self) -> None:
        """The work, until `_stopping` is set."""

    @abstractmethod
    def _after(self, *, failed: bool) -> None:
        """What is left to do and to check after `_run`; where the test `failed` it is not hidden by more."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._after(failed=error is not None)
