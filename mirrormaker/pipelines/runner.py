"""One run of a pipeline, from its lock to its record.

A run checks everything before it writes anything, waits for its window where the pipeline asks that it be
complete, loads, and says in its record what it did. Of one that was cut off the next keeps that it failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from mirrormaker.audit.completeness import coming_topics, read_completeness
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.folder_lock import at_once
from mirrormaker.pipelines.alerting import command_problem
from mirrormaker.pipelines.checks import Preparation, Prepared, check_job, missing_functions
from mirrormaker.pipelines.job_run import JobRun
from mirrormaker.pipelines.loading import Load, LoadError, describe_failure, is_without_room
from mirrormaker.pipelines.reloading import reload_windows
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import BY_HAND, CUT_OFF, RunKind, RunRecord, RunState, kept_figures
from mirrormaker.pipelines.session import OWN_SETTINGS, cancel_jobs, opened_session, why_spark_is_gone
from mirrormaker.pipelines.source import find_topics, topic_naming
from mirrormaker.pipelines.transforming import called, takes
from mirrormaker.pipelines.windows import Span
from mirrormaker.steps.outside import find_function
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import CallFunction, Completeness, PipelineSpec, RecordFormat, Topology

WAIT_SECONDS = 1
"""How often a run looks how far it is."""
RUN_SECONDS = 86_400.0
"""How long a run goes on that has no end: its record must not grow for ever. The next begins at once."""
COMPLETENESS_INTERVAL_SECONDS = 5.0
TURN_SECONDS = 3600.0
"""How long a run of the daemon's waits for what somebody else does to the pipeline, such as a compaction."""
ROOM_SECONDS = 60.0
"""How long one by hand waits for one that has no end, which makes room for it."""
CANCEL_SECONDS = 0.5
BATCH_SECONDS = 20.0
"""How long the batch may take after which one makes room; else it is cut off, and comes again."""

_log = logger("pipelines")


class RunFailedError(BrokerError):
    """The run failed; `record` says it too."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__(f"pipeline {record.pipeline!r}: {record.problem}")
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is for."""

    trigger: str = BY_HAND
    attempt: int = 1
    due_ms: int | None = None
    reload: Span | None = None
    """Instead of loading what is new: the time whose windows are to be written anew."""


_LOGS_OF_INTERRUPTS = (None, "asyncio")
"""Py4J, and event loops, tell of an interrupt with a traceback there, which is of no use to anybody."""


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], KeyboardInterrupt)


class _BrokenOff(KeyboardInterrupt):
    """A signal ends what would not look whether it is to end. Others take an `Exception`, and event loops
    all but interrupts.
    """


class Runner:
    """Runs one pipeline once. `stop` may be called from any thread."""

    def __init__(
        self,
        topology: Topology,
        pipeline: PipelineSpec,
        clock: Clock,
        *,
        session: AbstractContextManager[SparkSession] | None = None,
    ) -> None:
        """`session`: Spark, where there is one already."""
        self._topology = topology
        self._pipeline = pipeline
        self._clock = clock
        self._folder = PipelineFolder(topology.data_dir, pipeline.name)
        self._session = session
        self._stopping = threading.Event()
        self._may_break_off = False
        """What is under way does not look whether it is to end, and may be cut off anywhere."""
        self._is_broken_off = False
        self._is_over = threading.Event()
        self._noting = threading.Lock()
        self._last_said: RunRecord | None = None

    def stop(self) -> None:
        """Have it end early; what is not finished comes with the next run."""
        self._stopping.set()

    def heed_signals(self) -> None:
        """Have SIGTERM and SIGINT end it early; by the main thread, which is then to run it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._end_by_signal())
        for name in _LOGS_OF_INTERRUPTS:
            logging.getLogger(name).addFilter(_is_no_interrupt)

    def _end_by_signal(self) -> None:
        self.stop()
        if self._may_break_off:
            self._may_break_off = False
            self._is_broken_off = True
            threading.Thread(target=self._cancel_jobs, daemon=True).start()
            raise _BrokenOff

    def _cancel_jobs(self) -> None:
        """Those of Spark, for which what tidies up waits, also one that was only about to begin."""
        while not self._is_over.is_set():
            cancel_jobs()
            self._is_over.wait(CANCEL_SECONDS)

    @contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """Signals end what is done in the block at once. Raises _BrokenOff, also for what it fails on as it
        tidies up: answers of the JVM are mistaken for others once a question to it was cut off.
        """
        self._may_break_off = True
        try:
            if self._stopping.is_set():
                raise _BrokenOff
            yield
        except Exception as error:
            if self._is_broken_off:
                raise _BrokenOff from error
            raise
        finally:
            self._may_break_off = False

    def check(self) -> list[str]:
        """Everything that is wrong, before anything is written: `PATH: MESSAGE`."""
        missing = missing_functions(self._pipeline)
        with self._opened() as spark:
            problems = self._problems(self._prepare(spark, missing)[0])
        if (problem := command_problem(self._pipeline.alert)) is not None:
            problems.append(f"{self._path}.alert.command: {problem}")
        return problems

    def run(self, request: RunRequest) -> RunRecord:
        """Run it. Raises PipelineBusyError, ConfigurationError when it cannot begin, RunFailedError."""
        may_wait = self._patience_of(request)
        if may_wait() and self._folder.is_locked():
            _log.info("pipeline_run_waits_for_another", pipeline=self._pipeline.name)
        with self._folder.locked(may_wait):
            record = self._first_record(request)
            _log.info("pipeline_run_began", pipeline=record.pipeline, run=record.run, kind=record.kind.value)
            try:
                for cut_off in self._folder.end_cut_off(CUT_OFF):
                    _log.warning("pipeline_run_was_cut_off", pipeline=cut_off.pipeline, run=cut_off.run)
                record = self._note(record)
                record = self._run(record, request)
            except _BrokenOff:
                record = self._end(self._last_said or record, RunState.STOPPED)
            except (BrokerError, PySparkException, Py4JError, OSError) as error:
                if not (self._stopping.is_set() and _is_of_spark(error)):
                    raise RunFailedError(self._failed(record, error)) from error
                record = self._end(self._last_said or record, RunState.STOPPED)  # Spark was told so, too
            finally:
                self._is_over.set()
            _log.info(
                "pipeline_run_ended",
                pipeline=record.pipeline,
                run=record.run,
                state=record.state.value,
                rows_read=record.rows_read,
                rows_written=dict(record.rows_written),
            )
            return record

    def _failed(self, record: RunRecord, error: Exception) -> RunRecord:
        """The record of a run that `error` has ended; where that cannot be kept, it is in the log alone."""
        problem = why_spark_is_gone() or _describe(error)
        record = replace(self._last_said or record, problem=problem)
        _log.error("pipeline_run_failed", pipeline=record.pipeline, run=record.run, problem=problem)
        try:
            return self._end(record, RunState.FAILED)
        except OSError as failure:
            _log.error("pipeline_run_not_noted", pipeline=record.pipeline, run=record.run, error=str(failure))
            return replace(record, state=RunState.FAILED, ended_ms=self._clock.now_ms())

    def _run(self, record: RunRecord, request: RunRequest) -> RunRecord:
        record = self._await_window(record)
        with self._opened() as spark:
            if self._pipeline.job is not None:
                with self._breaking_off():
                    figures = self._run_job(spark, record)
                return self._end(replace(record, figures=figures), RunState.SUCCEEDED)
            with self._breaking_off():
                findings, prepared = self._prepare(spark)
            if prepared is None:
                raise ConfigurationError(self._problems(findings))
            self._keep_schema(prepared)
            if request.reload is not None:
                return self._reload(spark, prepared, record, request.reload)
            return self._load(spark, prepared, record, self._interval_ms(request))

    # ---- the three kinds

    def _interval_ms(self, request: RunRequest) -> int | None:
        """How often a run loads that has no end; None for one that loads once, as commands do."""
        return None if request.trigger == BY_HAND else self._continuous_ms

    @property
    def _continuous_ms(self) -> int | None:
        schedule = self._pipeline.schedule
        return None if schedule is None else schedule.continuous_ms

    def _patience_of(self, request: RunRequest) -> Callable[[], bool]:
        """Whether to wait on for whoever runs the pipeline."""
        is_by_hand = request.trigger == BY_HAND
        if is_by_hand and self._continuous_ms is None:
            return at_once
        until = time.monotonic() + (ROOM_SECONDS if is_by_hand else TURN_SECONDS)
        return lambda: time.monotonic() < until and not self._stopping.is_set()

    def _load(
        self, spark: SparkSession, prepared: Prepared, record: RunRecord, interval_ms: int | None
    ) -> RunRecord:
        load = Load(
            spark,
            self._topology,
            self._pipeline,
            self._folder,
            prepared,
            on_batch=lambda: self._note_batch(record, load),
            interval_ms=interval_ms,
        )
        state = RunState.SUCCEEDED
        ends_at = time.monotonic() + RUN_SECONDS
        try:
            load.start()
            while not load.wait(WAIT_SECONDS):
                if self._stopping.is_set():
                    state = RunState.STOPPED
                    break
                if interval_ms is None:
                    continue
                if self._folder.is_wanted() and load.has_begun():
                    ends_at = min(ends_at, time.monotonic() + BATCH_SECONDS)
                    if load.is_between_batches():
                        break
                if time.monotonic() >= ends_at:
                    break
        except LoadError:
            with contextlib.suppress(OSError):  # there may be no room for it
                self._note(self._with_figures(record, load))
            raise
        finally:
            load.stop()
        return self._end(self._with_figures(record, load), state)

    def _note_batch(self, record: RunRecord, load: Load) -> None:
        """Keep what a load has done by now; by the threads of its batches."""
        with self._noting:
            if self._last_said is None or not self._last_said.state.is_over:
                self._say(self._with_figures(record, load))

    def _with_figures(self, record: RunRecord, load: Load) -> RunRecord:
        figures = load.figures
        return replace(
            record,
            batches=figures.batches,
            offsets=figures.offsets,
            rows_read=figures.rows_read,
            rows_quarantined=figures.rows_quarantined,
            rows_late=figures.rows_late,
            rows_written=dict(figures.rows_written),
            hours=figures.hours,
            counted=dict(figures.counted),
        )

    def _reload(self, spark: SparkSession, prepared: Prepared, record: RunRecord, asked: Span) -> RunRecord:
        with self._breaking_off():
            done = reload_windows(spark, self._topology, self._pipeline, self._folder, prepared, asked)
        record = replace(
            record,
            windows=done.windows,
            rows_written=done.rows,
            rows_quarantined=done.rows_quarantined,
            offsets=done.offsets,
        )
        return self._end(record, RunState.SUCCEEDED)

    def _run_job(self, spark: SparkSession, record: RunRecord) -> Mapping[str, Any]:
        problems = check_job(self._pipeline, self._path)
        if problems:
            raise ConfigurationError(self._problems(problems))
        assert self._pipeline.job is not None
        function = find_function(self._pipeline.job)
        named = {}
        if takes(function, "run"):
            named["run"] = JobRun(pipeline=self._pipeline, folder=self._folder, record=record)
        figures = called(function, spark, self._topology, dict(self._pipeline.arguments), **named)
        return kept_figures(figures) if isinstance(figures, Mapping) else {}

    # ---- before it

    def _prepare(
        self, spark: SparkSession, missing: Mapping[CallFunction, str] = MappingProxyType({})
    ) -> tuple[list[Any], Prepared | None]:
        """`missing`: as `Preparation` has it."""
        job = self._pipeline.job
        if job is not None and job in missing:
            return [Finding(path=f"{self._path}.job", message=missing[job])], None
        if job is not None:
            return list(check_job(self._pipeline, self._path)), None
        preparation = Preparation(spark, self._topology, self._pipeline, self._folder, missing)
        prepared = preparation.prepare()
        return preparation.findings, prepared

    def _problems(self, findings: list[Any]) -> list[str]:
        return [f"{finding.path}: {finding.message}" for finding in findings]

    def _keep_schema(self, prepared: Prepared) -> None:
        inferred = self._pipeline.format is RecordFormat.JSON and self._pipeline.schema is None
        if inferred and prepared.schema is not None and self._folder.kept_schema() is None:
            self._folder.keep_schema(prepared.schema.json())

    def _await_window(self, record: RunRecord) -> RunRecord:
        """Until everything up to the time that it is due has arrived. Raises LoadError."""
        if self._pipeline.require is Completeness.NOTHING or record.kind is not RunKind.LOAD:
            return record
        deadline_ms = self._clock.now_ms() + self._pipeline.patience_ms
        end_ms = record.due_ms if record.due_ms is not None else record.started_ms
        while True:
            missing = self._missing(end_ms)
            if not missing:
                return replace(record, incomplete=(), state=RunState.RUNNING, complete_until_ms=end_ms)
            if self._pipeline.require is Completeness.MARK:
                return replace(record, incomplete=tuple(missing))
            if self._clock.now_ms() >= deadline_ms:
                told = "; ".join(missing[:5])
                raise LoadError(f"not complete after {self._pipeline.patience_ms} ms: {told}")
            if record.state is not RunState.WAITING or record.incomplete != tuple(missing):
                record = self._note(replace(record, state=RunState.WAITING, incomplete=tuple(missing)))
            if self._stopping.wait(COMPLETENESS_INTERVAL_SECONDS):
                return record

    def _missing(self, end_ms: int) -> list[str]:
        """What has not arrived of all that is due by then; lines for people."""
        assert self._pipeline.cluster is not None
        begin_ms, known = self._completed()
        if begin_ms is not None and begin_ms >= end_ms:
            return []  # a run by hand was quicker, or this one comes again
        name, cluster = self._pipeline.cluster, self._topology.clusters[self._pipeline.cluster]
        wanted = topic_naming(cluster, self._pipeline)
        coming = asyncio.run(coming_topics(self._topology, name, wanted))
        topics = set(coming.known)
        try:
            topics.update(find_topics(cluster, self._pipeline))
        except ConfigurationError:
            if not topics and not coming.problems:
                raise
        except BrokerError as error:
            return [f"{name}: {error}"]
        missing = list(coming.problems)
        for asked, from_ms in ((topics & known, begin_ms), (topics - known, None)):
            if asked:
                window = TimeWindow(from_ms=from_ms, to_ms=end_ms)
                found = asyncio.run(
                    read_completeness(self._topology, name, sorted(asked), window, clock=self._clock)
                )
                missing += () if found.is_complete else found.missing_lines()
        return missing

    def _completed(self) -> tuple[int | None, set[str]]:
        """Until when earlier runs have seen that all was there, and topics that they read: of others nobody
        has asked yet.
        """
        runs = [run for run in self._folder.runs() if run.state is RunState.SUCCEEDED]
        seen = [(run.complete_until_ms, run.hours) for run in runs if run.complete_until_ms is not None]
        return max((at_ms for at_ms, _ in seen), default=None), {
            topic for _, hours in seen for topic in hours
        }

    # ---- the record

    def _first_record(self, request: RunRequest) -> RunRecord:
        now_ms = self._clock.now_ms()
        if self._pipeline.job is not None:
            kind = RunKind.JOB
        else:
            kind = RunKind.LOAD if request.reload is None else RunKind.RELOAD
        started = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
        return RunRecord(
            run=f"{started}-{uuid.uuid4().hex[:6]}",
            pipeline=self._pipeline.name,
            kind=kind,
            state=RunState.RUNNING,
            trigger=request.trigger,
            attempt=request.attempt,
            due_ms=request.due_ms,
            started_ms=now_ms,
            at_ms=now_ms,
        )

    def _note(self, record: RunRecord) -> RunRecord:
        with self._noting:
            return self._say(record)

    def _say(self, record: RunRecord) -> RunRecord:
        record = replace(record, at_ms=self._clock.now_ms())
        self._folder.note(record)
        self._last_said = record
        return record

    def _end(self, record: RunRecord, state: RunState) -> RunRecord:
        return self._note(replace(record, state=state, ended_ms=self._clock.now_ms()))

    @property
    def _path(self) -> str:
        """Of the pipeline, in the file."""
        return f"pipelines[{self._topology.pipelines.index(self._pipeline)}]"

    @contextmanager
    def _opened(self) -> Iterator[SparkSession]:
        with ExitStack() as opened:
            with self._breaking_off():
                spark = opened.enter_context(self._session or opened_session(self._pipeline, self._path))
                for name, value in OWN_SETTINGS.items():
                    spark.conf.set(name, value)
            yield spark


def _describe(error: Exception) -> str:
    if isinstance(error, LoadError) or (isinstance(error, ConfigurationError) and not is_without_room(error)):
        return str(error)  # of several lines, maybe
    return describe_failure(error)


def _is_of_spark(error: Exception) -> bool:
    """Whether Spark may have failed by being ended."""
    return isinstance(error, PySparkException | Py4JError | LoadError)
