"""Keeps one pipeline to its schedule: a process for every run, further attempts after failures, alerts.

A run that takes longer than its interval is followed by one for all that was missed meanwhile. A changed
pipeline lets the run under way end as it began, but for a continuous one, which starts anew. A pipeline that
several daemons have is run by the one that holds it (`share`), which begins with a run that another was cut
short in. Owned by the daemon's event loop; `run` it as a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from mirrormaker.pipelines.alerting import alert
from mirrormaker.pipelines.orders import RunEnd, RunOrder
from mirrormaker.pipelines.run_log import PipelineBusyError, PipelineFolder
from mirrormaker.pipelines.run_process import RunProcess
from mirrormaker.pipelines.run_record import CUT_OFF, RunRecord, encode_record
from mirrormaker.pipelines.schedule import (
    due_run,
    last_due_ms,
    left_due,
    next_due,
    retry_delay_ms,
    was_given_up,
)
from mirrormaker.pipelines.share import OwnPipeline, PipelineShare
from mirrormaker.pipelines.turns import Turns
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.topology.model import AlertOccasion, PipelineSpec

STOP_TIMEOUT_SECONDS = 20.0
TELL_SECONDS = 3.0
"""How long others and people are told of a run while the daemon ends."""
RETRY_SECONDS = 1.0
"""How long a run waits that other daemons cannot be told of."""
WATCH_SECONDS = 5.0
"""How often a run without an end is looked at whether it loads again, after a failure."""
LOOK_SECONDS_MAX = 60.0
"""The longest wait before the clock is looked at again: it may have been set."""


class PipelineKeeper:
    """See the module."""

    def __init__(
        self,
        pipeline: PipelineSpec,
        source: TopologyText,
        folder: PipelineFolder,
        clock: Clock,
        log_level: str,
        *,
        turns: Turns,
        share: PipelineShare | None = None,
        start: Callable[[RunOrder], Awaitable[RunProcess]] = RunProcess.start,
    ) -> None:
        self.pipeline = pipeline
        self.state = "scheduled"
        """`scheduled`, `waiting`, `running`, `retrying` or `failed`; told as `standing_by` while the pipeline
        is another's.
        """
        self.problem: str | None = None
        self.runs = self.failures = 0
        """Processes that ended well, and that did not, since the daemon's start."""
        self.next_due_ms: int | None = None
        self.last: dict[str, Any] = {}
        self._source = source
        self._folder = folder
        self._clock = clock
        self._log_level = log_level
        self._turns = turns
        self._share = share if share is not None else OwnPipeline()
        self._start = start
        self._process: RunProcess | None = None
        self._held_until_ms: float | None = None
        self._at_work = asyncio.Lock()
        """Held while a process is started, runs, or ends."""
        self._last_due_ms: int | None = None
        self._scheduled_ms = clock.now_ms()
        """Since when this schedule is kept to."""
        self._left_due_ms: int | None = None
        """Of a run that ended with the daemon before this one, where other daemons know of no mark of it."""
        self._was_told_failed = False
        """Whether people take the pipeline for failed."""
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._telling: asyncio.Timeout | None = None
        """Of what others or people are told just now."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs, None while there is none."""
        return self._process.pid if self._process is not None else None

    def change(self, pipeline: PipelineSpec, source: TopologyText) -> None:
        """Have it be this from the next run on."""
        self._source = source
        if pipeline == self.pipeline:
            return
        was_continuous = self._is_continuous
        if pipeline.schedule != self.pipeline.schedule:
            self._scheduled_ms = self._clock.now_ms()
        self.pipeline = pipeline
        if was_continuous and self._process is not None:
            self._process.terminate()
        self._changed.set()

    def end(self) -> None:
        """Have the run under way end early, and start none any more."""
        self._ending.set()
        self._changed.set()
        if self._telling is not None and self._telling.when() is None:
            self._telling.reschedule(asyncio.get_running_loop().time() + TELL_SECONDS)
        if self._process is not None:
            _end_soon(self._process)

    def look_again(self) -> None:
        """Who holds the pipeline has changed."""
        self._changed.set()

    def extend(self, until_ms: float | None) -> None:
        """The pipeline is held until then, whatever happens; see `tenure`."""
        if until_ms == self._held_until_ms:
            return
        was_held, self._held_until_ms = self._is_held, until_ms
        if self._process is not None:
            self._process.extend(until_ms)
        if not was_held:
            self._changed.set()

    async def drop(self, *, gently: bool) -> None:
        """End the run under way, at once or as `end` does; return when it has ended."""
        if self._process is not None:
            if gently:
                _end_soon(self._process)
            else:
                self._process.kill()
        async with self._at_work:
            return

    async def run(self) -> None:
        """Keep to the schedule until `end`."""
        await self._end_cut_off(CUT_OFF)
        runs = await asyncio.to_thread(self._folder.runs)
        self._last_due_ms = last_due_ms(runs)
        self._left_due_ms = left_due(runs, self.pipeline.retry)
        self._was_told_failed = was_given_up(runs, self.pipeline.retry)
        while not self._ending.is_set():
            due_ms = await self._await_due()
            if due_ms is not None:
                await self._run_until_done(due_ms)

    def _may_run(self) -> bool:
        return self._is_held and not self._ending.is_set()

    @property
    def _is_held(self) -> bool:
        """Also after this process stood still, when nobody has looked yet what has become of it meanwhile."""
        until_ms = self._held_until_ms
        return self._share.is_held and (until_ms is None or self._clock.monotonic_ms() < until_ms)

    @property
    def _is_continuous(self) -> bool:
        schedule = self.pipeline.schedule
        return schedule is not None and schedule.continuous_ms is not None

    async def _await_due(self) -> int | None:
        """When the next run is due, once that has come; None when something has changed meanwhile."""
        if not self._is_held:
            self.next_due_ms = None
            await self._rest(LOOK_SECONDS_MAX)
            return None
        if (mark := self._share.mark) is not None:
            self._last_due_ms = max(mark.due_ms, self._last_due_ms or 0)
            if not mark.is_over:
                return mark.due_ms
        schedule = self.pipeline.schedule
        assert schedule is not None
        now_ms = self._clock.now_ms()
        if self._is_continuous:
            self.next_due_ms = now_ms
            return now_ms
        last_ms = self._last_due_ms
        if last_ms is None and schedule.cron is not None:
            last_ms = self._scheduled_ms
        due_ms = due_run(schedule, last_ms, now_ms)
        if due_ms is None and mark is None:
            due_ms = self._left_due_ms
        if due_ms is not None:
            return due_ms
        self.next_due_ms = next_due(schedule, last_ms, now_ms)
        wait_seconds = min((self.next_due_ms - now_ms) / 1000, LOOK_SECONDS_MAX)
        await self._rest(wait_seconds)
        return None

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _run_until_done(self, due_ms: int) -> None:
        """All attempts of one run, unless it is cut short: then whoever holds the pipeline next goes on."""
        attempt = 1
        if not await self._note(due_ms, is_over=False):
            await self._rest(RETRY_SECONDS)
            return
        while self._may_run():
            self.state = "waiting"
            async with self._turns, self._at_work:
                if not self._may_run():
                    break
                end = await self._run_once(attempt, due_ms)
            if not self._may_run():
                break
            await self._tell(end)
            if end.problem is None:
                await self._note(due_ms, is_over=True)
                return
            if self._is_continuous and await asyncio.to_thread(self._has_loaded):
                attempt = 1  # it ran, for a while
            delay_ms = retry_delay_ms(self.pipeline.retry, attempt)
            if delay_ms is None:
                await self._note(due_ms, is_over=True)
                await self._give_up(end)
                return
            self.state = "retrying"
            self.next_due_ms = self._clock.now_ms() + delay_ms
            await self._rest(delay_ms / 1000)
            attempt += 1
        self.state = "scheduled"

    async def _note(self, due_ms: int, *, is_over: bool) -> bool:
        """Tell the other daemons of the run; whether they know. An end that they are not told of has the run
        be done again, as one that was cut short.
        """
        self._last_due_ms, self._left_due_ms = due_ms, None
        try:
            async with self._telling_time():
                await self._share.note(due_ms, is_over=is_over)
        except (BrokerError, TimeoutError) as error:
            name = self.pipeline.name
            logger("pipelines").warning("pipeline_run_not_told", pipeline=name, error=str(error))
            return False
        return True

    def _has_loaded(self) -> bool:
        """Whether the last run has come to do anything, as far as it said so before it ended."""
        last = self._folder.last_run()
        return last is not None and last.batches > 0

    async def _run_once(self, attempt: int, due_ms: int) -> RunEnd:
        order = RunOrder(
            source=self._source,
            pipeline=self.pipeline.name,
            trigger="schedule" if attempt == 1 else "retry",
            attempt=attempt,
            due_ms=due_ms,
            log_level=self._log_level,
            held_until_ms=self._held_until_ms,
        )
        self.state = "running"
        await self._end_cut_off(self.problem or CUT_OFF)  # for whose record there was no room
        try:
            self._process = await self._start(order)
        except OSError as error:
            return RunEnd(code=1, record={"problem": f"cannot be started: {error}"})
        self._process.extend(self._held_until_ms)  # which was put off meanwhile
        if not self._may_run():
            self._process.kill()  # what befell the pipeline meanwhile found no process
        try:
            end = await self._ended(self._process)
        finally:
            self._process.kill()
            self._process = None
        problem = str(end.problem) if self._may_run() else CUT_OFF
        if end.is_cut_off and (cut_off := await self._end_cut_off(problem, self._clock.now_ms())):
            return replace(end, record=json.loads(encode_record(cut_off[-1])))
        return end

    async def _ended(self, process: RunProcess) -> RunEnd:
        """How it ends. A run without an end need not be over for the pipeline to have recovered."""
        ending = asyncio.create_task(process.ended())
        try:
            while self._was_told_failed and self._is_continuous and not ending.done():
                await asyncio.wait([ending], timeout=WATCH_SECONDS)
                loading = await asyncio.to_thread(self._folder.last_run)
                if not ending.done() and loading and loading.batches and not loading.state.is_over:
                    self.problem = None
                    await self._tell_recovered(loading.run)
            return await ending
        finally:
            ending.cancel()

    async def _end_cut_off(self, problem: str, ended_ms: int | None = None) -> list[RunRecord]:
        """Keep that runs which have not said their end failed for `problem`; returns them."""

        def keep() -> list[RunRecord]:
            if all(run.state.is_over for run in self._folder.runs()):
                return []
            with self._folder.locked():
                return self._folder.end_cut_off(problem, ended_ms)

        try:
            return await asyncio.to_thread(keep)
        except PipelineBusyError:
            return []  # somebody runs it by hand, and keeps that
        except (ConfigurationError, OSError) as error:
            name = self.pipeline.name
            logger("pipelines").warning("pipeline_run_not_noted", pipeline=name, error=str(error))
            return []

    async def _tell(self, end: RunEnd) -> None:
        """Keep what a run has come to, and tell whom it concerns."""
        self.problem, self.last = end.problem, end.record
        if end.problem is not None:
            self.failures += 1
            logger("pipelines").error("pipeline_failed", pipeline=self.pipeline.name, problem=end.problem)
            return
        self.runs += 1
        self.state = "scheduled"
        await self._tell_recovered(end.record.get("run"))
        if end.record.get("incomplete"):
            await self._alert(AlertOccasion.INCOMPLETE, {"missing": end.record["incomplete"]})

    async def _tell_recovered(self, run: str | None) -> None:
        """Whom it was told that the pipeline had failed."""
        was_failed, self._was_told_failed = self._was_told_failed, False
        if was_failed:
            await self._alert(AlertOccasion.RECOVERED, {"run": run})

    async def _alert(self, occasion: AlertOccasion, told: dict[str, Any]) -> None:
        """Tell people; what takes its time is cut short while the daemon ends."""
        try:
            async with self._telling_time():
                await alert(self.pipeline, occasion, told)
        except TimeoutError:
            name = self.pipeline.name
            logger("pipelines").error("pipeline_alert_not_told", pipeline=name, error="the daemon ends")

    @contextlib.asynccontextmanager
    async def _telling_time(self) -> AsyncIterator[None]:
        """Raises TimeoutError once the daemon has been ending for too long."""
        try:
            async with asyncio.timeout(TELL_SECONDS if self._ending.is_set() else None) as self._telling:
                yield
        finally:
            self._telling = None

    async def _give_up(self, end: RunEnd) -> None:
        self.state, self._was_told_failed = "failed", True
        await self._alert(AlertOccasion.FAILED, {"problem": end.problem, "run": end.record.get("run")})
        self._share.give_way()
        if self._is_continuous:
            await self._rest_after_failure()

    async def _rest_after_failure(self) -> None:
        """Before a continuous pipeline begins anew; one that is changed does so at once."""
        pipeline = self.pipeline
        until_ms = self._clock.monotonic_ms() + pipeline.retry.backoff_max_ms
        while self.pipeline is pipeline and not self._ending.is_set():
            left_ms = until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            await self._rest(left_ms / 1000)

    def describe(self) -> dict[str, Any]:
        """As plain data; times in milliseconds since the epoch."""
        stands_by = not self._share.is_held and self._process is None
        keys = ("run", "state", "started_ms", "ended_ms", "rows_read", "rows_quarantined", "rows_late")
        return {
            "state": "standing_by" if stands_by else self.state,
            "standing_by": self._share.reason if stands_by else None,
            "pid": self.pid,
            "problem": self.problem,
            "owner": self.pipeline.owner,
            "next_due_ms": self.next_due_ms,
            "runs": self.runs,
            "failures": self.failures,
            "last": {key: self.last[key] for key in keys if key in self.last},
            "incomplete": len(self.last.get("incomplete", ())),
        }


def _end_soon(process: RunProcess) -> None:
    """It ends its run early, or is ended."""
    process.terminate()
    asyncio.get_running_loop().call_later(STOP_TIMEOUT_SECONDS, process.kill)
