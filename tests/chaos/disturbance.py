"""When things break, by chance, until the time of a scenario is over; and the ways to break a process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator

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
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
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
