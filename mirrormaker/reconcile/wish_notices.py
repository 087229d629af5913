"""What a plan has to tell of its routes beside what they are to do: that a daemon runs them by another file,
that somebody has them pause, that partitions stand. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.reconcile.control import (
    Claim,
    Pause,
    RouteWishes,
    Standing,
    describe_superseding,
    read_wishes,
    standing_of,
)
from mirrormaker.reconcile.routes import RouteWork, work_of
from mirrormaker.topology.model import Topology


def wish_notices(topology: Topology, world: World, daemon_id: str | None) -> Iterator[Notice]:
    """By the control topics of destinations. `daemon_id`: of the daemon that runs here; None: none does."""
    for work in work_of(topology).values():
        destination = world.reached(work.route.destination)
        if destination is None:
            continue
        wishes = read_wishes(destination.control).get(work.name, RouteWishes())
        yield from _claim_notices(work, topology.generation, daemon_id, wishes.claim)
        yield from _pause_notices(work, wishes)
        yield from _halt_notices(work, wishes)


def outdated_notices(topology: Topology, in_force: Topology) -> Iterator[Notice]:
    """By what the daemon that runs here has in force."""
    if topology.generation < in_force.generation:
        message = f"is {topology.generation}, older than {in_force.generation}, which is in force here"
        yield Notice(kind=NoticeKind.OUTDATED, about="generation", message=message)


def _claim_notices(
    work: RouteWork, generation: int, daemon_id: str | None, found: Claim | None
) -> Iterator[Notice]:
    """Where no daemon runs here, another one by a file of the same generation may well be meant to. A file
    of a lower one is outdated, whoever runs: it is applied with `--force` alone.
    """
    if found is None or (daemon_id is None and found.generation == generation):
        return
    own = Claim(generation=generation, digest=work.digest, daemon=daemon_id or "", host="", at_ms=0)
    if standing_of(own, found) is Standing.SUPERSEDED:
        kind = NoticeKind.OUTDATED if found.generation > generation else NoticeKind.DAEMON
        yield Notice(kind=kind, about=work.name, message=describe_superseding(own, found))


def _pause_notices(work: RouteWork, wishes: RouteWishes) -> Iterator[Notice]:
    if wishes.pause is not None:
        yield Notice(kind=NoticeKind.PAUSED, about=work.name, message=_describe_pause(wishes.pause))
    for topic, pause in wishes.topics.items():
        about = f"{work.name}: {topic}"
        yield Notice(kind=NoticeKind.PAUSED, about=about, message=_describe_pause(pause))


def _describe_pause(pause: Pause) -> str:
    return f"is paused by {pause.by}" + (f": {pause.reason}" if pause.reason else "")


def _halt_notices(work: RouteWork, wishes: RouteWishes) -> Iterator[Notice]:
    for source, halt in wishes.halts.items():
        if halt.released is None:
            where = source.topic if source.partition < 0 else str(source)
            message = f"stands: {halt.trouble.kind.value}: {halt.trouble.problem}"
            yield Notice(kind=NoticeKind.HALTED, about=f"{work.name}: {where}", message=message)
