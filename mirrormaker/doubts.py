"""What a topology says that is not wrong by itself, and most probably not meant: `validate` and `plan` warn
of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from broker.errors import ErrorCode
from mirrormaker.missing_secrets import missing_secrets
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import World
from mirrormaker.steps.trial import find_missing
from mirrormaker.topology.document import Problem
from mirrormaker.topology.failover_groups import one_way_routes
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loader import locate
from mirrormaker.topology.model import CallFunction, ClusterName, Topology
from mirrormaker.topology.setting_names import unknown_settings
from mirrormaker.topology.step_topics import unmatched_topics
from mirrormaker.topology.step_ways import diverging_steps


def doubts(topology: Topology, text: str, file: Path) -> list[Problem]:
    """All of what `text` says, which `file` holds, that can be told without asking a cluster. Functions that
    it names are imported, and secrets read.
    """
    found = (
        *unknown_settings(topology),
        *diverging_steps(topology.routes),
        *one_way_routes(topology.routes),
        *missing_functions(topology),
        *missing_secrets(topology),
    )
    return locate(found, text, file)


def doubt_notices(topology: Topology, text: str, file: Path, world: World) -> Iterator[Notice]:
    """The same for a plan: settings that topics of a cluster have are known, whatever they are, and so is
    which topics there are.
    """

    def names_at(name: ClusterName) -> Collection[str]:
        cluster = world.reached(name)
        return () if cluster is None else {name for topic in cluster.topics.values() for name in topic.config}

    def topics_at(name: ClusterName) -> Collection[str] | None:
        cluster = world.reached(name)
        if cluster is None:
            return None
        return {
            topic.name
            for topic in cluster.topics.values()
            if topic.error is ErrorCode.NONE and not topic.internal
        }

    found = {
        NoticeKind.SETTING: unknown_settings(topology, names_at),
        NoticeKind.WAYS: diverging_steps(topology.routes),
        NoticeKind.FAILOVER: one_way_routes(topology.routes),
        NoticeKind.FUNCTION: missing_functions(topology),
        NoticeKind.SECRET: missing_secrets(topology),
        NoticeKind.TOPICS: unmatched_topics(topology.routes, topics_at),
    }
    for kind, findings in found.items():
        for problem in locate(findings, text, file):
            yield Notice(kind=kind, about=f"{file}:{problem.line}: {problem.path}", message=problem.message)


def missing_functions(topology: Topology) -> Iterator[Finding]:
    """Functions of routes that cannot be had here; a daemon on another host may find them."""
    named = {
        f"routes[{index}].transforms[{place}].function": transform.step
        for index, route in enumerate(topology.routes)
        for place, transform in enumerate(route.transforms)
        if isinstance(transform.step, CallFunction)
    }
    missing = find_missing(named.values())
    for path, function in named.items():
        if function in missing:
            where = "it must be where Python finds it, wherever a daemon runs the route"
            message = f"{missing[function]} ({where})"
            yield Finding(path=path, message=message)
