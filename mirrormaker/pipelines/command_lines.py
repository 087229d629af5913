"""`mirrormaker pipeline list|check|run|reload|report`. Exit 1: the run failed, was stopped, or could not
begin.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker.pipelines.hold import HeldElsewhereError, end_at_once, held
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunRecord, RunState, encode_record
from mirrormaker.pipelines.windows import END_MS, Span, parse_moment
from mirrormaker.topology.document import suggestion
from mirrormaker.topology.loader import lines_of, load_topology
from mirrormaker.topology.model import PipelineSpec, ScheduleSpec, Topology

if TYPE_CHECKING:
    from mirrormaker.pipelines.runner import Runner, RunRequest

AddVerb = Callable[[Any, str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
_FIRST_MS = -62_135_596_800_000
"""The first day of the year 1: no window is earlier."""


def add_pipeline_verbs(verbs: Any, add_verb: AddVerb) -> None:
    """Have the command line know them."""
    purpose = "what Spark does with the topics of a cluster"
    pipeline = verbs.add_parser("pipeline", help=purpose, description=purpose)
    actions = pipeline.add_subparsers(required=True, metavar="ACTION")
    listed = add_verb(actions, "list", _list, "show every pipeline of the file and its last run")
    check = add_verb(actions, "check", _check, "find everything that would keep a pipeline from running")
    run = add_verb(actions, "run", _run, "load what is new, once")
    reload = add_verb(actions, "reload", _reload, "write windows anew that have been loaded")
    report = add_verb(actions, "report", _report, "write what runs have done as a page of HTML")
    for parser in (check, run, reload, report):
        parser.add_argument("name", metavar="NAME", help="a pipeline's name")
    for parser in (listed, run, reload):
        parser.add_argument("--output", choices=["text", "json"], default="text")
    moment = "such as 2026-01-31T12:00:00Z; without a time zone it is UTC"
    reload.add_argument("--from", type=_moment, required=True, dest="start_ms", metavar="TIME", help=moment)
    reload.add_argument("--to", type=_moment, dest="end_ms", metavar="TIME", help="not beyond this time")
    report.add_argument("--to", type=Path, required=True, dest="to", metavar="PAGE.html", help="the page")


def _moment(text: str) -> int:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def find_pipeline(topology: Topology, name: str) -> PipelineSpec:
    """The pipeline of that name. Raises ConfigurationError."""
    for pipeline in topology.pipelines:
        if pipeline.name == name:
            return pipeline
    names = [pipeline.name for pipeline in topology.pipelines]
    there = f"there are {', '.join(names)}" if names else "there are none"
    raise ConfigurationError([f"there is no pipeline {name!r}{suggestion(name, names)}: {there}"])


def with_lines(problems: list[str], file: Path) -> list[str]:
    """Problems that begin with a path of the file, by their lines."""
    lines = lines_of(file)
    found = []
    for problem in problems:
        path, colon, _ = problem.partition(": ")
        line = lines.line_of(path) if colon and path.startswith("pipelines[") else 0
        found.append(f"{file}:{line}: {problem}" if line else problem)
    return found


def _list(options: argparse.Namespace) -> int:
    topology = load_topology(options.file)
    told = [_describe(topology, pipeline) for pipeline in topology.pipelines]
    if options.output == "json":
        print(json.dumps(told, indent=2))
        return 0
    for each in told:
        print("\t".join((each["name"], each["schedule"], each["state"], each["told"])))
    return 0


def _describe(topology: Topology, pipeline: PipelineSpec) -> dict[str, Any]:
    folder = PipelineFolder(topology.data_dir, pipeline.name)
    last = folder.last_run()
    state = "new" if last is None else last.state.value
    if last is not None and not last.state.is_over and not folder.is_locked():
        state = "cut off"
    return {
        "name": pipeline.name,
        "owner": pipeline.owner,
        "enabled": pipeline.enabled,
        "schedule": describe_schedule(pipeline.schedule),
        "state": state,
        "last_run": None if last is None else json.loads(encode_record(last)),
        "told": "" if last is None else describe_run(last),
    }


def describe_schedule(schedule: ScheduleSpec | None) -> str:
    """In words."""
    if schedule is None:
        return "by hand"
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.zone})"
    if schedule.every_ms is not None:
        return f"every {schedule.every_ms / 1000:g} s"
    return "continuous"


def describe_run(record: RunRecord) -> str:
    """What a run did, in a line."""
    began = datetime.fromtimestamp(record.started_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = [began, f"{record.kind.value} {record.state.value}"]
    if record.rows_read or record.batches:
        parts.append(f"{record.rows_read} rows read in {record.batches} batches")
    parts += [f"{name}: {rows} rows" for name, rows in record.rows_written.items()]
    if record.rows_quarantined:
        parts.append(f"{record.rows_quarantined} in quarantine")
    if record.windows:
        parts.append(f"{len(record.windows)} windows written anew")
    if record.incomplete:
        parts.append(f"incomplete: {record.incomplete[0]}")
    parts += [f"{name}: {value}" for name, value in record.figures.items()]
    if record.problem is not None:
        parts.append(record.problem)
    return ", ".join(parts)


def _runner(options: argparse.Namespace) -> Runner:
    from mirrormaker.pipelines.runner import Runner  # needs Spark, which mirrors do not

    topology = load_topology(options.file)
    return Runner(topology, find_pipeline(topology, options.name), SystemClock())


def _check(options: argparse.Namespace) -> int:
    runner = _runner(options)
    try:
        with redirect_stdout(sys.stderr):  # what functions print is no data of a command
            problems = runner.check()
    except ConfigurationError as error:
        problems = list(error.problems)
    for problem in with_lines(problems, options.file):
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{options.name}: no problems")
    return 1 if problems else 0


def _run(options: argparse.Namespace) -> int:
    from mirrormaker.pipelines.runner import RunRequest

    now_ms = SystemClock().now_ms()
    return _carry_out(options, RunRequest(due_ms=now_ms))


def _reload(options: argparse.Namespace) -> int:
    from mirrormaker.pipelines.runner import RunRequest

    end_ms = END_MS if options.end_ms is None else options.end_ms
    if end_ms <= options.start_ms:
        raise ConfigurationError(["--to: is not after --from"])
    span = Span(start_ms=max(options.start_ms, _FIRST_MS), end_ms=min(end_ms, END_MS))
    if span.end_ms <= span.start_ms:
        raise ConfigurationError(["--from, --to: there are no windows of that time"])
    return _carry_out(options, RunRequest(reload=span))


def _carry_out(options: argparse.Namespace, request: RunRequest) -> int:
    from mirrormaker.pipelines.runner import RunFailedError

    topology = load_topology(options.file)
    pipeline = find_pipeline(topology, options.name)
    if request.reload is not None and pipeline.job is not None:
        raise ConfigurationError([f"{options.name!r} is a job, which has no windows: 'pipeline run' runs it"])
    try:
        with held(topology, pipeline, SystemClock(), end_at_once):
            runner = _runner(options)
            runner.heed_signals()
            with redirect_stdout(sys.stderr):
                record = runner.run(request)
    except HeldElsewhereError as error:
        print("\n".join(with_lines(list(error.problems), options.file)), file=sys.stderr)
        return 1
    except RunFailedError as error:
        problems = (error.record.problem or "").splitlines()
        print("\n".join(with_lines(problems, options.file)), file=sys.stderr)
        if options.output == "json":
            print(encode_record(error.record))
        return 1
    print(encode_record(record) if options.output == "json" else describe_run(record))
    for window in record.windows if options.output == "text" else ():
        print(window)
    return 0 if record.state is RunState.SUCCEEDED else 1


def _report(options: argparse.Namespace) -> int:
    from mirrormaker.pipelines.report import render_report

    topology = load_topology(options.file)
    pipeline = find_pipeline(topology, options.name)
    runs = PipelineFolder(topology.data_dir, pipeline.name).runs()
    try:
        page = render_report(pipeline, runs, SystemClock().now_ms())
        options.to.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError([f"{options.to}: cannot be written: {error.strerror}"]) from error
    print(options.to)
    return 0
