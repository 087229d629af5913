"""How a daemon keeps pipelines to their schedules; the processes of runs are stood in for."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from broker.clock import Clock, SystemClock
from mirrormaker.pipelines import alerting, keeper
from mirrormaker.pipelines.keeper import PipelineKeeper
from mirrormaker.pipelines.orders import RunEnd, RunOrder, decode_end
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_marks import RunMark
from mirrormaker.pipelines.run_record import CUT_OFF, RunRecord, RunState
from mirrormaker.pipelines.share import OwnPipeline, PipelineShare
from mirrormaker.pipelines.turns import Turns
from mirrormaker.pipelines.windows import HOUR_MS, parse_moment
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.topology.model import AlertSpec, PipelineName, PipelineSpec, RetrySpec, ScheduleSpec
from tests.conftest import until
from tests.pipelines.test_run_log import RUN

SOURCE = TopologyText(text="", file=Path("topology.yaml"))
HOURLY, DUE_MS = ScheduleSpec(cron="5 * * * *"), parse_moment("2026-01-01T10:05:00Z")


class Run:
    """A run that ends at once, or when it is told to."""

    pid = 1

    def __init__(self, code: int, *, lasts: bool = False) -> None:
        self._code = code
        self._over = asyncio.Event()
        if not lasts:
            self._over.set()

    async def ended(self) -> RunEnd:
        await self._over.wait()
        if self._code < 0:
            return RunEnd(code=self._code, record={})
        record = {"run": "r", "state": "succeeded"}
        if self._code:
            record |= {"state": "failed", "problem": "no luck"}
        return RunEnd(code=self._code, record=record)

    def terminate(self) -> None:
        self._over.set()

    def kill(self) -> None:
        self._over.set()

    def extend(self, until_ms: float | None) -> None:
        assert until_ms is None, "nobody else can get it"


class Stage:
    """A keeper and the codes that its runs end with, one after the other; the last run lasts."""

    def __init__(
        self,
        folder: Path,
        codes: list[int],
        alert: AlertSpec,
        clock: Clock | None = None,
        share: PipelineShare | None = None,
    ) -> None:
        self.folder = folder
        self.orders: list[RunOrder] = []
        self.pipeline = PipelineSpec(
            name=PipelineName("p"),
            schedule=ScheduleSpec(every_ms=1),
            retry=RetrySpec(attempts=2, backoff_ms=1),
            alert=alert,
        )
        self.on_last = asyncio.Event()
        self._codes = codes
        self.keeper = PipelineKeeper(
            self.pipeline,
            SOURCE,
            PipelineFolder(folder, self.pipeline.name),
            clock or SystemClock(),
            "info",
            turns=Turns(1),
            share=share,
            start=self._start,  # type: ignore[arg-type]
        )

    async def _start(self, order: RunOrder) -> Run:
        self.orders.append(order)
        if not self._codes:
            self.on_last.set()
        return Run(self._codes.pop(0)) if self._codes else Run(0, lasts=True)

    async def play(self) -> None:
        """Until the last run is under way; then to the end."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.keeper.run())
            async with asyncio.timeout(60):
                await self.on_last.wait()
            self.keeper.end()
            await running


def test_a_failed_run_is_tried_again_and_then_people_are_told(tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    writing = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + '\\n')"
    alert = AlertSpec(command=(sys.executable, "-S", "-c", writing))

    async def play() -> Stage:
        stage = Stage(tmp_path, [1, 1, 0], alert)
        await stage.play()
        return stage

    stage = asyncio.run(play())
    attempts = [(order.attempt, order.trigger) for order in stage.orders]
    assert attempts == [(1, "schedule"), (2, "retry"), (1, "schedule"), (1, "schedule")]
    assert stage.orders[0].due_ms == stage.orders[1].due_ms != stage.orders[2].due_ms
    occasions = [json.loads(line) for line in told.read_text().splitlines()]
    assert [each["occasion"] for each in occasions] == ["failed", "recovered"]
    assert occasions[0]["problem"] == "no luck"
    described = stage.keeper.describe()
    assert (described["runs"], described["failures"], described["problem"]) == (1, 2, None)


def test_nobody_is_told_of_a_recovery_who_was_not_told_of_a_failure(tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    alert = AlertSpec(command=(sys.executable, "-S", "-c", f"open({str(told)!r}, 'a')"))

    async def play() -> Stage:
        stage = Stage(tmp_path, [1, 0], alert)
        await stage.play()
        return stage

    stage = asyncio.run(play())
    assert [order.trigger for order in stage.orders] == ["schedule", "retry", "schedule"]
    assert not told.exists()


def test_a_run_under_way_ends_early_with_the_daemon(tmp_path: Path) -> None:
    async def play() -> Stage:
        stage = Stage(tmp_path, [], AlertSpec(command=("false",)))
        await stage.play()
        return stage

    stage = asyncio.run(play())
    assert len(stage.orders) == 1
    assert stage.keeper.pid is None


def test_a_run_that_ended_with_the_daemon_is_done_by_the_next_though_nothing_else_is_due(
    tmp_path: Path,
) -> None:
    folder = PipelineFolder(tmp_path, PipelineName("p"))
    due_ms = SystemClock().now_ms()
    with folder.locked():
        folder.note(replace(RUN, state=RunState.STOPPED, due_ms=due_ms))

    async def play() -> Stage:
        stage = Stage(tmp_path, [], AlertSpec(command=("false",)))
        stage.keeper.pipeline = replace(stage.pipeline, schedule=ScheduleSpec(every_ms=86_400_000))
        await stage.play()
        return stage

    (order,) = asyncio.run(play()).orders
    assert (order.due_ms, order.attempt, order.trigger) == (due_ms, 1, "schedule")


def test_who_was_told_of_a_failure_is_told_of_the_recovery_by_the_next_daemon(tmp_path: Path) -> None:
    """What a run needs may want a restart, as another environment does."""
    folder, told = PipelineFolder(tmp_path, PipelineName("p")), tmp_path / "told"
    with folder.locked():
        folder.note(replace(RUN, state=RunState.FAILED, problem="no luck", attempt=2, due_ms=5))
    alert = AlertSpec(command=(sys.executable, "-S", "-c", f"open({str(told)!r}, 'w')"))
    asyncio.run(Stage(tmp_path, [0], alert).play())
    assert told.exists()


class SetClock(SystemClock):
    """It shows what it is set to."""

    def __init__(self) -> None:
        self.shown_ms = DUE_MS - 60_000

    def now_ms(self) -> int:
        return self.shown_ms


class HeldByOther(OwnPipeline):
    """Another daemon has it, until it does not any more."""

    is_held = False

    def __init__(self, last_ms: int | None) -> None:
        if last_ms is not None:
            self.mark = RunMark(due_ms=last_ms, is_over=True, daemon="other", host="other", at_ms=last_ms)


def test_a_pipeline_by_the_clock_that_has_never_run_is_run_when_it_is_due(tmp_path: Path) -> None:
    clock = SetClock()

    async def play() -> Stage:
        stage = Stage(tmp_path, [], AlertSpec(command=("false",)), clock)
        stage.keeper.change(replace(stage.pipeline, schedule=HOURLY), SOURCE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stage.play())
            await asyncio.to_thread(until, lambda: stage.keeper.describe()["next_due_ms"] == DUE_MS)
            clock.shown_ms = DUE_MS
            stage.keeper.look_again()
        return stage

    assert [order.due_ms for order in asyncio.run(play()).orders] == [DUE_MS]


@pytest.mark.parametrize("last_ms", [None, DUE_MS - HOUR_MS, DUE_MS])
def test_a_daemon_that_stood_by_runs_what_was_due_meanwhile_and_was_not_run(
    last_ms: int | None, tmp_path: Path
) -> None:
    share, clock = HeldByOther(last_ms), SetClock()

    async def play() -> Stage:
        stage = Stage(tmp_path, [], AlertSpec(command=("false",)), clock, share)
        stage.keeper.change(replace(stage.pipeline, schedule=HOURLY), SOURCE)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(stage.keeper.run())
            clock.shown_ms = DUE_MS + 1
            share.is_held = True
            stage.keeper.look_again()
            await asyncio.to_thread(until, lambda: stage.on_last.is_set() or stage.keeper.next_due_ms)
            stage.keeper.end()
            await running
        return stage

    stage = asyncio.run(play())
    due_ms, next_ms = ([], DUE_MS + HOUR_MS) if last_ms == DUE_MS else ([DUE_MS], None)
    assert ([order.due_ms for order in stage.orders], stage.keeper.next_due_ms) == (due_ms, next_ms)


def test_a_webhook_gets_what_a_command_gets(tmp_path: Path) -> None:
    received: list[tuple[str, dict[str, object]]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(500 if len(received) == 1 else 204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Nowhere."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever).start()
        spec = AlertSpec(webhook=f"http://127.0.0.1:{server.server_port}/alerts")

        async def play() -> Stage:
            stage = Stage(tmp_path, [1, 1, 0], spec)
            await stage.play()
            return stage

        try:
            asyncio.run(play())
        finally:
            server.shutdown()
    assert [kind for kind, _ in received] == ["application/json"] * 2
    (_, failed), (_, recovered) = received
    assert (failed["pipeline"], failed["occasion"], failed["problem"]) == ("p", "failed", "no luck")
    assert recovered["occasion"] == "recovered", "told though the receiver had failed before"


@pytest.mark.parametrize("way", ["command", "webhook"])
def test_a_daemon_ends_though_nobody_takes_what_it_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(keeper, "TELL_SECONDS", 0.1)
    begun = tmp_path / "begun"

    async def play(listening: socket.socket) -> None:
        hang = ("sh", "-c", f"touch {begun}; exec sleep 1000")
        webhook = f"http://127.0.0.1:{listening.getsockname()[1]}/alerts"
        spec = AlertSpec(command=hang) if way == "command" else AlertSpec(webhook=webhook)
        stage = Stage(tmp_path, [1, 1], spec)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(stage.keeper.run())
            taken = await asyncio.to_thread(_taken, listening, begun, way)
            async with asyncio.timeout(alerting.TIMEOUT_SECONDS / 2):
                while not running.done():
                    stage.keeper.end()  # however often it is told so
                    await asyncio.wait([running], timeout=0.01)
            if taken is not None:
                taken.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(play(listening))


def _taken(listening: socket.socket, begun: Path, way: str) -> socket.socket | None:
    """Once somebody is being told."""
    if way == "webhook":
        return listening.accept()[0]
    until(begun.exists, "the command runs")
    return None


class Noting(Stage):
    """Runs that keep that they have begun, and nothing more."""

    async def _start(self, order: RunOrder) -> Run:
        run = await super()._start(order)
        folder = PipelineFolder(self.folder, self.pipeline.name)
        with folder.locked():
            folder.note(replace(RUN, run=f"r{len(self.orders)}", started_ms=len(self.orders)))
        return run


class Loading(Noting):
    """Runs without an end, of which the last loads."""

    async def _start(self, order: RunOrder) -> Run:
        is_last = not self._codes
        run = await super()._start(order)
        if is_last:
            folder = PipelineFolder(self.folder, self.pipeline.name)
            (begun,) = (run for run in folder.runs() if not run.state.is_over)
            folder.note(replace(begun, batches=1))
        return run


def test_a_pipeline_without_an_end_has_recovered_once_it_loads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "WATCH_SECONDS", 0.01)
    told = tmp_path / "told.jsonl"
    writing = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + '\\n')"

    async def play() -> None:
        stage = Loading(tmp_path, [1, 1], AlertSpec(command=(sys.executable, "-S", "-c", writing)))
        stage.keeper.pipeline = replace(
            stage.pipeline,
            schedule=ScheduleSpec(continuous_ms=100),
            retry=RetrySpec(attempts=2, backoff_ms=1, backoff_max_ms=1),
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(stage.keeper.run())
            await asyncio.to_thread(until, lambda: told.exists() and "recovered" in told.read_text())
            described = stage.keeper.describe()
            assert (described["state"], described["problem"]) == ("running", None)
            stage.keeper.end()
            await running

    asyncio.run(play())
    occasions = [json.loads(line) for line in told.read_text().splitlines()]
    assert [(each["occasion"], each["run"]) for each in occasions] == [("failed", "r"), ("recovered", "r3")]


def kept_of(folder: Path, code: int) -> list[RunRecord]:
    """What is kept of a run of a killed daemon, one whose process ends with `code`, and a last one."""

    async def play() -> None:
        known = PipelineFolder(folder, PipelineName("p"))
        with known.locked():
            known.note(replace(RUN, run="r0", started_ms=0))
        stage = Noting(folder, [code], AlertSpec(command=("false",)))
        await stage.play()
        assert [(order.attempt, order.trigger) for order in stage.orders] == [(1, "schedule"), (2, "retry")]

    asyncio.run(play())
    return PipelineFolder(folder, PipelineName("p")).runs()


def test_a_run_whose_process_is_killed_has_failed_and_is_tried_again(tmp_path: Path) -> None:
    before, killed, last = kept_of(tmp_path, -9)
    assert (before.state, before.problem) == (RunState.FAILED, CUT_OFF)
    assert (killed.state, killed.problem) == (
        RunState.FAILED,
        "the process of the run was ended by SIGKILL",
    )
    assert last.state is RunState.RUNNING, "which has ended well, and would have said so itself"


def test_why_a_run_failed_is_kept_later_where_there_was_no_room_for_it(tmp_path: Path) -> None:
    _, failed, _ = kept_of(tmp_path, 1)
    assert (failed.state, failed.problem) == (RunState.FAILED, "no luck")


def test_what_a_run_has_said_holds_however_its_process_ends() -> None:
    assert RunEnd(code=-9, record={"run": "r", "state": "succeeded"}).problem is None
    assert RunEnd(code=-9, record={"run": "r", "state": "failed", "problem": "x"}).problem == "x"
    assert RunEnd(code=-15, record={}).problem == "the process of the run was ended by SIGTERM"
    assert RunEnd(code=3, record={}).problem == "the process of the run ended with 3"


def test_a_process_that_ends_well_and_says_nothing_of_its_run_has_failed() -> None:
    end = decode_end(0, b"")
    assert (end.problem, end.is_cut_off) == (
        "the process of the run ended before it said what the run came to",
        True,
    )
    assert decode_end(0, b'{"run": "r", "state": "stopped"}\n').problem is None
