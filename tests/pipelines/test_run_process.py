"""The process of a run, a real one, as its daemon sees it end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from mirrormaker.pipelines.orders import RunOrder
from mirrormaker.pipelines.run_process import RunProcess
from mirrormaker.reconcile.topology_file import TopologyText

ORDER = RunOrder(
    source=TopologyText(text="", file=Path("topology.yaml")),
    pipeline="p",
    trigger="schedule",
    attempt=1,
    due_ms=None,
    log_level="info",
    held_until_ms=None,
)
RUN = """\
import json, subprocess, sys
sys.stdin.readline()
waiting = [sys.executable, "-S", "-c", "import sys, time\\nsys.stdin.read()\\nwhile True: time.sleep(1)"]
other = subprocess.Popen(waiting, stdin=subprocess.PIPE, start_new_session=sys.argv[1] == "apart")
print(other.pid, flush=True)
sys.stdin.read()
"""
"""Starts a process that has its output, as the JVM of a run has it."""


@pytest.mark.parametrize("group", ["together", "apart"])
def test_a_run_ends_though_what_it_has_started_goes_on(group: str) -> None:
    async def play() -> tuple[int, int]:
        run = await RunProcess.start(ORDER, command=[sys.executable, "-S", "-c", RUN, group], end_seconds=0.5)
        assert run._process.stdout is not None
        other = int(await run._process.stdout.readline())
        os.kill(other, signal.SIGSTOP)
        os.kill(run.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            end = await run.ended()
        assert end.problem == "the process of the run was ended by SIGKILL"
        return end.code, other

    code, other = asyncio.run(play())
    assert code == -signal.SIGKILL
    if group == "apart":
        os.kill(other, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(other)] if psutil.pid_exists(other) else [], timeout=60)
    assert not psutil.pid_exists(other) or psutil.Process(other).status() == psutil.STATUS_ZOMBIE
