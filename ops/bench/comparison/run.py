"""Loads one cluster with case after case, each from a child process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

import psutil

from ops.bench.comparison.cases import Case, Figure, Latency, Node, Outcome, Plan
from ops.bench.comparison.processor_time import cpu_seconds
from ops.bench.comparison.servers import Server

CHILD_TIMEOUT_SECONDS = 180
RECORDS_PER_SECOND = 5_000

T = TypeVar("T")


class Run:
    """The load of a cluster; clients are on a core of their own if one is given."""

    def __init__(self, servers: Sequence[Server], name: str, *, client_core: int | None = None) -> None:
        self._nodes = [Node(server.address.port, server.pid) for server in servers]
        self._name = name
        self._cores = None if client_core is None else {client_core}
        self._numbers = count()
        self._started = time.monotonic()
        self._busy_before = _busy_seconds()
        self._measured_before = self._measured_seconds()

    def outcome(self, case: Case, seconds: float) -> Outcome | None:
        """What a case gave; None, with its reason on stderr, when it failed."""
        return self._try("throughput", case, seconds, Outcome.from_json)

    def produce(self, case: Case, seconds: float) -> Figure | None:
        """As `outcome`, of producing alone."""
        return self._try("produce", case, seconds, Figure.from_json)

    def latency(self, case: Case, seconds: float, *, records_per_second: int = RECORDS_PER_SECOND) -> Latency:
        """Of records of 1 KB at this rate. Raises CalledProcessError, TimeoutExpired."""
        print(f"{self._name}: latency", file=sys.stderr, flush=True)
        return Latency.from_json(self._child("latency", case, seconds, records_per_second))

    def others_share(self) -> float:
        """Share of all cores that was used by processes that have no part in this."""
        busy = _busy_seconds() - self._busy_before
        others = busy - (self._measured_seconds() - self._measured_before)
        return others / (time.monotonic() - self._started) / (os.cpu_count() or 1)

    def _try(self, kind: str, case: Case, seconds: float, from_json: Callable[[str], T]) -> T | None:
        print(f"{self._name}: {case.client} {case.title}", file=sys.stderr, flush=True)
        try:
            return from_json(self._child(kind, case, seconds))
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{self._name}: {case.title} failed: {error}", file=sys.stderr, flush=True)
            return None

    def _child(
        self, kind: str, case: Case, seconds: float, records_per_second: int = RECORDS_PER_SECOND
    ) -> str:
        plan = Plan(
            nodes=self._nodes,
            topic=f"bench-{next(self._numbers)}",
            seconds=seconds,
            case=case,
            records_per_second=records_per_second,
        )
        finished = subprocess.run(
            [sys.executable, "-m", "ops.bench.comparison.load", kind, plan.to_json()],
            stdout=subprocess.PIPE,
            text=True,
            timeout=CHILD_TIMEOUT_SECONDS,
            check=True,
            preexec_fn=self._take_place,
        )
        return finished.stdout

    def _take_place(self) -> None:
        if self._cores is not None:
            os.sched_setaffinity(0, self._cores)

    def _measured_seconds(self) -> float:
        """Processor time of the nodes and of the clients that have ended."""
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(cpu_seconds(node.pid) for node in self._nodes) + clients.ru_utime + clients.ru_stime


def _busy_seconds() -> float:
    """Processor time that the whole machine has used."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)
