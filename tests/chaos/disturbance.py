"""When things break, by chance, until the time of a scenario is over; and the ways to break a process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from broker.child_process import EmbeddedError
from broker.embedded import EmbeddedCluster


class Disturbance:
    """Gives the rounds of one scenario; the last begins before its time is over."""

    def __init__(self, chance: random.Random, *, seconds: float) -> None:
        self.chance = chance
        self.rounds = 0
        self._seconds = seconds

    def __iter__(self) -> Iterator[int]:
        """Numbers of rounds, each after a moment of peace."""
        return self.rounds_until(lambda: True)

    def rounds_until(self, is_enough: Callable[[], bool]) -> Iterator[int]:
        """As by themselves, and on beyond the time until it is enough."""
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline or not is_enough():
            self.pause(0.2, 3.0)
            self.rounds += 1
            yield self.rounds

    def pause(self, shortest: float, longest: float) -> None:
        """Let some time pass: seconds."""
        time.sleep(self.chance.uniform(shortest, longest))

    def crash(self, cluster: EmbeddedCluster) -> None:
        """Kill the node and start it again; now and then it is killed once more while it starts."""
        cluster.kill_node(1)
        while self.chance.random() < 0.3:
            with _killed_after(cluster, self.chance.uniform(0.0, 1.5)), contextlib.suppress(EmbeddedError):
                cluster.start_node(1)
            cluster.kill_node(1)
        cluster.start_node(1)

    def freeze(self, pid: int, shortest: float, longest: float) -> None:
        """Stop a process for a while, as a machine does that swaps or is moved."""
        os.kill(pid, signal.SIGSTOP)
        try:
            self.pause(shortest, longest)
        finally:
            os.kill(pid, signal.SIGCONT)


class Victims:
    """Who is next, by chance, and nobody twice before everybody was hit once."""

    def __init__(self, chance: random.Random, names: Sequence[str]) -> None:
        self.hit: Counter[str] = Counter()
        self._chance = chance
        self._names = names
        self._left: list[str] = []

    def draw(self) -> str:
        """One that is left of this turn."""
        if not self._left:
            self._left = self._chance.sample(self._names, len(self._names))
        return self._left.pop()

    def note(self, name: str, *, was_there: bool) -> None:
        """What became of it; one that was not there is drawn again, after the others."""
        if was_there:
            self.hit[name] += 1
        else:
            self._left.insert(0, name)

    def have_all_been_hit(self) -> bool:
        """Each once at least."""
        return self.hit.keys() >= set(self._names)


@contextlib.contextmanager
def _killed_after(cluster: EmbeddedCluster, seconds: float) -> Iterator[None]:
    """Kill the node that is started within, so many seconds after it has a process id."""
    done = threading.Event()

    def kill() -> None:
        while not cluster.pids and not done.is_set():
            done.wait(0.01)
        if not done.wait(seconds):
            for pid in cluster.pids.values():
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        done.set()
        killer.join()
