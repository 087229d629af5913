"""Files of MirrorMaker 2 as one topology: read, put together, and checked as any topology is.

What is wrong with the files is told all at once. What they say and a topology does not, or has otherwise, are
notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from broker.config_file import read_properties
from broker.errors import ConfigurationError
from broker.settings import names
from broker.types import HostPort
from mirrormaker.importing.connectors import join_connectors, read_connectors
from mirrormaker.importing.dedicated import read_dedicated
from mirrormaker.importing.left_out import why_left_out
from mirrormaker.importing.mirrors import BOOTSTRAP, SECURITY_PREFIXES, Flow, Mirrors, Settings
from mirrormaker.importing.positions import OffsetsFile, read_positions, start_at_positions
from mirrormaker.importing.remarks import Remarks
from mirrormaker.importing.routes import Document, read_route, selection_of
from mirrormaker.importing.security import Variables, read_security
from mirrormaker.importing.topology_text import render_topology
from mirrormaker.topology.clashes import check_clashes
from mirrormaker.topology.document import read_text
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec
from mirrormaker.topology.naming import name_problem
from mirrormaker.topology.validate import ROUTE_NAME_SIZE_MAX

_MAY_DOUBLE = (
    "its route adds to topics that are there, and starts at the first records: what has been copied comes "
    "again unless `start`, or --positions, says where to go on"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A topology, and what is to be known about it."""

    text: str
    notes: tuple[str, ...]
    """Each as `FILE:LINE: SETTING: WHAT`."""


def import_files(files: Sequence[Path], to: Path, positions: Sequence[OffsetsFile] = ()) -> Imported:
    """One topology out of all files, as it would stand in the file `to`; its routes start where the files
    `positions` say that MirrorMaker 2 has stopped.

    Raises ConfigurationError with every problem.
    """
    stopped_at = read_positions(positions)
    mirrors = Mirrors(remarks=Remarks(files))
    for file in files:
        _read_file(file, mirrors)
    join_connectors(mirrors)
    mirrors.settle_clients()
    variables = Variables()
    clusters = {
        name: _read_cluster(name, Settings(entries, mirrors.remarks), variables)
        for name, entries in mirrors.clusters.items()
    }
    routes = list(_read_routes(mirrors.flows, mirrors.clusters))
    for entry, name in mirrors.all.items():
        if not mirrors.remarks.is_used(entry):
            mirrors.remarks.note(entry, why_left_out(name))
    if not routes and not mirrors.remarks.problems:
        mirrors.remarks.report_file(files[0], "nothing is copied from one cluster to another")
    _raise_problems(mirrors)
    _merge_clashing(mirrors.flows, routes)
    if stopped_at.offsets:
        start_at_positions(mirrors, routes, stopped_at)
        _raise_problems(mirrors)
    return _render(mirrors, clusters, routes, files, to)


def _raise_problems(mirrors: Mirrors) -> None:
    if mirrors.remarks.problems:
        raise ConfigurationError(mirrors.remarks.problems)


def _read_file(file: Path, mirrors: Mirrors) -> None:
    """Properties, or JSON of connectors; only the latter begins with a bracket."""
    text = read_text(file)
    if text.lstrip().startswith(("{", "[")):
        read_connectors(text, file, mirrors)
        return
    problems: list[str] = []
    entries = list(read_properties(file, text, problems))
    mirrors.remarks.report_lines(file, problems)
    read_dedicated(file, entries, mirrors)


def _read_cluster(name: str, settings: Settings, variables: Variables) -> Document:
    cluster: Document = {"bootstrap": _addresses(settings)}
    options = {
        option: entry for option, entry in settings.entries.items() if option.startswith(SECURITY_PREFIXES)
    }
    if security := read_security(name, options, variables, settings.remarks):
        cluster["security"] = security
    return cluster


def _addresses(settings: Settings) -> list[str]:
    """Nodes as `host:port`; Java's clients take a protocol before each, and pass over it."""
    text = settings.text(BOOTSTRAP)
    if text is None:
        return []
    found = []
    parts = names().parse(text)
    for part in parts:
        try:
            found.append(str(HostPort.parse(part.rpartition("://")[2])))
        except ValueError as error:
            settings.remarks.report(settings.entries[BOOTSTRAP], str(error))
    if not parts:
        settings.remarks.report(settings.entries[BOOTSTRAP], "names no node")
    return found


def _read_routes(flows: Sequence[Flow], aliases: Collection[str]) -> Iterator[Document]:
    """Routes between the same clusters are called as their connectors are."""
    alike = Counter(flow.ends for flow in flows)
    for flow in flows:
        route = read_route(flow, aliases)
        if alike[flow.ends] == 1:
            yield route
        else:
            if flow.name is None or name_problem(flow.name, ROUTE_NAME_SIZE_MAX):
                message = f"of the flows from {flow.source} to {flow.target} each needs a name, as of a route"
                flow.settings.remarks.report(flow.named_by, message)
            yield {"name": flow.name, **route}


def _merge_clashing(flows: Sequence[Flow], routes: Sequence[Document]) -> None:
    """Routes from several clusters that write the same topics say so; groups cannot be carried into these."""
    specs = [
        RouteSpec(
            name=RouteName(""),
            source=ClusterName(flow.source),
            destination=ClusterName(flow.target),
            topics=selection_of(route),
        )
        for flow, route in zip(flows, routes, strict=True)
    ]
    clashing: set[int] = set()
    for one, other in combinations(range(len(routes)), 2):
        if specs[one].source != specs[other].source and any(check_clashes([specs[one], specs[other]])):
            clashing |= {one, other}
    for index in clashing:
        topics, sync = routes[index]["topics"], routes[index]["sync"]
        assert isinstance(topics, dict)
        assert isinstance(sync, dict)
        topics["merge"] = True
        if sync.pop("groups", None) is not None:
            message = "left out: positions cannot be carried into topics that several routes write"
            flows[index].settings.note("sync.group.offsets.enabled", message)


def _render(
    mirrors: Mirrors,
    clusters: dict[str, Document],
    routes: Sequence[Document],
    files: Sequence[Path],
    to: Path,
) -> Imported:
    text = render_topology(clusters, routes, files)
    try:
        topology = parse_topology(text, to)
    except ConfigurationError as error:
        named = ", ".join(map(str, files))
        problems = [problem.partition(": ")[2] for problem in error.problems]  # their lines are nowhere yet
        raise ConfigurationError(
            [f"{named}: makes no topology: {problem}" for problem in problems]
        ) from error
    for flow, route, spec in zip(mirrors.flows, routes, topology.routes, strict=True):
        if spec.provenance:
            route["provenance"] = True
        if (spec.provenance or spec.topics.merge) and "start" not in route:
            mirrors.remarks.note(flow.named_by, _MAY_DOUBLE)
    return Imported(text=render_topology(clusters, routes, files), notes=tuple(mirrors.remarks.notes))
