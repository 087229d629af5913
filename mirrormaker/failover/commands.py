"""`mirrormaker failover` and `mirrormaker failback`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from broker.clock import Clock, SystemClock
from mirrormaker.failover.hold import hold, lose_unwritable
from mirrormaker.failover.partitions import lose_unreadable
from mirrormaker.failover.rehearsal import Rehearsal, rehearse
from mirrormaker.failover.settling import Terms
from mirrormaker.failover.sides import FailoverError, find_group, open_sides
from mirrormaker.failover.switching import GroupSwitch, Switched
from mirrormaker.failover.tail import TailChoice
from mirrormaker.reconcile.switch_board import describe_switch
from mirrormaker.reconcile.switches import Side
from mirrormaker.status import load_for_status
from mirrormaker.topology.model import Topology

_AddVerb = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
TIMEOUT_SECONDS_MAX = 7 * 24 * 60 * 60


def parse_timeout_ms(text: str) -> int:
    """How long a switch may wait for everything to be copied, given in seconds. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.001 <= seconds <= TIMEOUT_SECONDS_MAX:
        raise ValueError(f"{text[:50]!r} is not a number of seconds, at most {TIMEOUT_SECONDS_MAX}")
    return round(seconds * 1000)


async def rehearse_switch(
    topology: Topology, name: str, target: Side, clock: Clock, terms: Terms | None = None
) -> Rehearsal:
    """What a switch would mean now. Raises ConfigurationError, BrokerError."""
    async with open_sides(topology, find_group(topology, name), clock) as sides:
        sides.cluster(target)
        await lose_unwritable(sides, target)
        if not sides.calls_off(target):
            await lose_unreadable(sides, target.other)
        return await rehearse(sides, target, terms or Terms())


async def switch_group(
    topology: Topology, name: str, target: Side, terms: Terms, clock: Clock, tell: Callable[[str], None]
) -> Switched:
    """Switch the group, or go on with that. Raises ConfigurationError, FailoverError, BrokerError."""
    async with open_sides(topology, find_group(topology, name), clock) as sides:
        if target not in sides.clusters:
            raise FailoverError(f"{sides.problems[target]}: the group cannot be switched there")
        async with hold(sides, target, tell):
            return await GroupSwitch(sides, terms, tell).run(target)


def describe_switched(topology: Topology, name: str, done: Switched) -> dict[str, Any]:
    """Plain data."""
    return {
        **describe_switch(find_group(topology, name), done.switch),
        "rehearsal": done.rehearsal.describe(),
        "groups": [place.describe() for place in done.groups],
        "found_tail": [tail.describe() for tail in done.tail],
    }


def add_failover_verbs(add_verb: _AddVerb) -> None:
    """`failover` and `failback`."""
    for name, side, purpose in (
        ("failover", Side.STANDBY, "switch the routes of a failover group to its standby"),
        ("failback", Side.HOME, "switch the routes of a failover group back to its home"),
    ):
        verb = add_verb(name, _switch, purpose)
        verb.add_argument("group", metavar="GROUP", help="a failover group, or a route of it")
        verb.add_argument(
            "--dry-run", action="store_true", help="say what would be lost and where groups would go on"
        )
        verb.add_argument(
            "--force",
            action="store_true",
            help="also when the cluster that is left does not answer, or not all of it can be copied in time",
        )
        verb.add_argument(
            "--tail",
            type=TailChoice,
            choices=list(TailChoice),
            metavar="copy|report",
            help="what to do about records that only the side has which was not at work",
        )
        verb.add_argument(
            "--timeout",
            dest="timeout_ms",
            type=_timeout_ms,
            default=Terms().timeout_ms,
            metavar="SECONDS",
            help="for everything to be copied",
        )
        verb.add_argument("--output", choices=["text", "json"], default="text")
        verb.set_defaults(side=side)


def _timeout_ms(text: str) -> int:
    try:
        return parse_timeout_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _switch(options: argparse.Namespace) -> int:
    topology, clock = load_for_status(options.file), SystemClock()
    terms = Terms(timeout_ms=options.timeout_ms, force=options.force, tail=options.tail)
    if options.dry_run:
        rehearsal = asyncio.run(rehearse_switch(topology, options.group, options.side, clock, terms))
        _print(options, rehearsal.describe(), rehearsal.lines())
        return 1 if rehearsal.refusals else 0

    def tell(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    done = asyncio.run(switch_group(topology, options.group, options.side, terms, clock, tell))
    _print(options, describe_switched(topology, options.group, done), done.lines())
    return 0


def _print(options: argparse.Namespace, document: dict[str, Any], lines: list[str]) -> None:
    text = json.dumps(document, indent=2) if options.output == "json" else "\n".join(lines)
    sys.stdout.write(text + "\n")
