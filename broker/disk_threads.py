"""The threads that block on the disk for a node, as many as the settings say at any time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DiskThreads(Executor):
    """A pool whose number of threads can change: work goes to a new pool, and the old one ends its own."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = _pool(count)
        self._lock = Lock()

    @property
    def count(self) -> int:
        """Threads at most."""
        return self._count

    def resize(self, count: int) -> None:
        """Use up to `count` threads from now on; what was submitted before is finished all the same."""
        with self._lock:
            if count == self._count:
                return
            old, self._pool, self._count = self._pool, _pool(count), count
        old.shutdown(wait=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread."""
        with self._lock:
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when what there is is done."""
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)


def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="disk")
