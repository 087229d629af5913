"""From a topology file to a checked `Topology`: every complaint at once, each with file, line and path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.topology.document import Problem, Problems, read_document, read_text
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.kinds.records import Given
from mirrormaker.topology.loops import with_provenance
from mirrormaker.topology.model import ClusterSpec, RouteSpec, Topology
from mirrormaker.topology.readers.document import document
from mirrormaker.topology.readers.routes import ROUTE
from mirrormaker.topology.validate import check

ZOOKEEPER_FOLDER = "zookeeper"
"""In `data_dir`: where the ZooKeeper of embedded clusters keeps its state."""

PLAN_KEYS = frozenset({"checksum", "steps"})
"""What tells a saved plan from a topology."""


def load_topology(file: Path) -> Topology:
    """Read and check `file`; a relative `data_dir` is taken from the file's own folder.

    Raises ConfigurationError with every problem, each as `FILE:LINE: PATH: MESSAGE`.
    """
    return parse_topology(read_text(file), file)


def parse_topology(text: str, file: Path, *, pipelines: bool = True) -> Topology:
    """Check what `file` holds, or is to hold. As `load_topology`. Without `pipelines` as if it had none: no
    file is read that these alone read.
    """
    problems = Problems()
    topology = _read_topology(text, file, problems, pipelines=pipelines)
    for finding in check(topology):
        if not problems.covers(finding.path):
            problems.report(finding.path, finding.message, _line_of(finding.path, problems))
    problems.raise_if_any(str(file))
    return topology


def locate(findings: Iterable[Finding], text: str, file: Path) -> list[Problem]:
    """Findings in what `file` holds, where they are said, by their lines; several of one line that say the
    same, as of defaults, are one.
    """
    problems = Problems()
    _read_topology(text, file, problems)
    found: dict[tuple[int, str], Problem] = {}
    for finding in findings:
        line = _line_of(finding.path, problems)
        found.setdefault(
            (line, finding.message), Problem(line=line, path=finding.path, message=finding.message)
        )
    return sorted(found.values(), key=lambda problem: problem.line)


def lines_of(file: Path) -> Problems:
    """Which line says what: `line_of` a path. Raises ConfigurationError when the file is not YAML."""
    problems = Problems()
    document(file.resolve().parent).read(read_document(read_text(file), file, problems))
    return problems


def _read_topology(text: str, file: Path, problems: Problems, *, pipelines: bool = True) -> Topology:
    folder, place = file.resolve().parent, read_document(text, file, problems)
    if place.holds(PLAN_KEYS):
        raise ConfigurationError([f"{file}: is a saved plan: mirrormaker apply TOPOLOGY --plan {file}"])
    read = document(folder).read(place if pipelines else place.without("pipelines"))
    routes = tuple(_build_route(route, read.defaults) for route in read.routes)
    data_dir = (folder / read.data_dir).resolve()
    return Topology(
        clusters={name: _placed(cluster, data_dir) for name, cluster in read.clusters.items()},
        links=read.links,
        routes=with_provenance(routes),
        pipelines=read.pipelines,
        pipelines_at_once=read.pipelines_at_once,
        data_dir=data_dir,
        folder=folder,
        generation=read.generation,
    )


def _placed(cluster: ClusterSpec, data_dir: Path) -> ClusterSpec:
    if cluster.embedded is None:
        return cluster
    embedded = replace(cluster.embedded, zookeeper_directory=data_dir / ZOOKEEPER_FOLDER)
    return replace(cluster, embedded=embedded)


def _build_route(given: Given | None, defaults: Given | None) -> RouteSpec:
    if given is None:
        return ROUTE.stand_in
    return ROUTE.build(given if defaults is None else given.merged(defaults))


def _line_of(path: str, problems: Problems) -> int:
    """Where a route says it, or else the defaults, or else the line of the route."""
    route, _, key = path.partition("].")
    default = f"defaults.{key}"
    if path not in problems.lines and route.startswith("routes[") and default in problems.lines:
        return problems.lines[default]
    return problems.line_of(path)
