"""`mirrormaker plan` and `mirrormaker apply`. Exit codes: 0 nothing to do (apply: all is done), 2 something
is to be done (plan --simulate: something goes wrong), 1 an error, which a cluster that does not answer is,
too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker.doubts import doubt_notices
from mirrormaker.plan.diff import make_plan
from mirrormaker.plan.document import differences, plan_document, read_plan
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.plan import Plan
from mirrormaker.plan.render import describe_emptiness, describe_step, render_plan
from mirrormaker.plan.simulation.forecast import simulate
from mirrormaker.plan.simulation.report import forecast_document, is_well, render_forecast
from mirrormaker.plan.steps import ChangeRoute, RestartRoute, StartRoute, StopRoute
from mirrormaker.reconcile.active_sides import ActiveSide, as_switched, find_active_sides
from mirrormaker.reconcile.apply import apply_steps
from mirrormaker.reconcile.observe import observe
from mirrormaker.reconcile.running import await_in_force, find_daemon, plan_routes
from mirrormaker.reconcile.switches import Stage
from mirrormaker.reconcile.topology_file import TopologyFile
from mirrormaker.reconcile.wish_notices import outdated_notices, wish_notices
from mirrormaker.topology.document import read_text
from mirrormaker.topology.kinds.numbers import amount
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Topology

DAY_MS = 86_400_000
SPAN_MS_MAX = 366 * DAY_MS
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS}
NOTHING_TO_DO, FAILED, TO_DO = 0, 1, 2
AddVerb = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_plan_verbs(add_verb: AddVerb) -> None:
    """Have the command line know both."""
    plan = add_verb("plan", _plan, "show what is to be done so that the clusters are as the file asks")
    plan.add_argument("--output", choices=["text", "json"], default="text")
    plan.add_argument(
        "--simulate",
        nargs="?",
        type=_span,
        const=DAY_MS,
        metavar="SPAN",
        help="ask no cluster: what comes of the file's `simulate` keys in a span such as 7d (a day)",
    )
    plan.add_argument("--out", type=Path, metavar="FILE", help="save the plan there, for `apply --plan`")
    apply = add_verb("apply", _apply, "do what `plan` shows")
    apply.add_argument("--plan", type=Path, metavar="FILE", help="do what this plan says, or nothing")
    apply.add_argument("--force", action="store_true", help="also what may lose data, or is a lot at once")


def _plan(options: argparse.Namespace) -> int:
    if options.simulate is not None:
        return _simulate(options)
    _, plan = asyncio.run(_make_plan(options.file))
    document = plan_document(plan)
    if options.out is not None:
        _save(options.out, document)
    if options.output == "json":
        _tell(json.dumps(document, indent=2))
    else:
        for line in render_plan(plan):
            _tell(line)
    if not plan.is_whole:
        return FAILED
    return TO_DO if plan.steps else NOTHING_TO_DO


def _simulate(options: argparse.Namespace) -> int:
    forecast = simulate(load_topology(options.file), options.simulate)
    document = forecast_document(forecast)
    if options.out is not None:
        _save(options.out, document)
    lines = [json.dumps(document, indent=2)] if options.output == "json" else render_forecast(forecast)
    for line in lines:
        _tell(line)
    return NOTHING_TO_DO if is_well(forecast) else TO_DO


def _span(text: str) -> int:
    span_ms = amount(text, _UNITS_MS)
    if span_ms is None or not 1 <= span_ms <= SPAN_MS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span such as 90m, 12h or 7d, up to a year")
    return span_ms


def _apply(options: argparse.Namespace) -> int:
    return asyncio.run(_apply_now(options))


async def _apply_now(options: argparse.Namespace) -> int:
    saved = None if options.plan is None else read_plan(read_text(options.plan), str(options.plan))
    topology, plan = await _make_plan(options.file)
    if saved is not None and (changed := differences(saved, plan)):
        raise ConfigurationError([f"{options.plan}: {line}" for line in changed])
    if plan.dangers and not options.force:
        raise ConfigurationError([*plan.dangers, "nothing was done: --force does it all the same"])
    failures = 0
    async for result in apply_steps(topology, plan.steps, SystemClock()):
        failures += result.error is not None
        _tell(f"{describe_step(result.step)}: {result.error or 'done'}")
    failures += await _follow_routes(options.file.resolve(), topology, plan)
    for notice in plan.notices:
        _tell(f"! {notice.line}")
    done = f"{len(plan.steps) - failures} of {len(plan.steps)} done"
    _tell(done if plan.steps else describe_emptiness(plan))
    return FAILED if failures or not plan.is_whole else NOTHING_TO_DO


async def _follow_routes(file: Path, topology: Topology, plan: Plan) -> int:
    """Wait until the daemon has done its part; how many steps it has not."""
    steps = [
        step for step in plan.steps if isinstance(step, StartRoute | ChangeRoute | RestartRoute | StopRoute)
    ]
    error = await await_in_force(topology, file, plan.digest) if steps else None
    for step in steps:
        _tell(f"{describe_step(step)}: {error or 'done'}")
    return len(steps) if error is not None else 0


async def _make_plan(file: Path) -> tuple[Topology, Plan]:
    source = TopologyFile(file).read()
    written = source.parse()
    groups = await find_active_sides(written)
    topology = as_switched(written, groups)
    world = await observe(topology, SystemClock())
    running = find_daemon(written)
    plan = make_plan(topology, world, source.digest, plan_routes(written, running))
    told = wish_notices(written, world, running.daemon_id if running is not None else None)
    doubted = doubt_notices(written, source.text, file, world)
    outdated = () if running is None else outdated_notices(written, running.topology)
    notices = (*plan.notices, *outdated, *told, *map(_notice_of, groups.values()), *doubted)
    return topology, replace(plan, notices=notices)


def _notice_of(where: ActiveSide) -> Notice:
    """Which side of a failover group is at work."""
    now = where.switch
    told = f"is at work at {where.cluster}"
    if now.epoch:
        told += f", epoch {now.epoch}, by {now.by}"
    if now.stage is not Stage.SETTLED:
        told += f"; its switch is not settled: {now.stage.value}"
    told += "".join(f"; {name} did not tell" for name in where.problems)
    return Notice(kind=NoticeKind.FAILOVER, about=f"failover group {where.group.name}", message=told)


def _save(file: Path, document: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"{file}: cannot be written: {error.strerror}"]) from error


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
