"""The whole of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mirrormaker.topology.model.clusters import ClusterSpec
from mirrormaker.topology.model.links import LinkSpec
from mirrormaker.topology.model.names import ClusterName
from mirrormaker.topology.model.pipelines import PipelineSpec
from mirrormaker.topology.model.routes import RouteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Everything that one file declares."""

    clusters: Mapping[ClusterName, ClusterSpec]
    """Clusters by name: letters, digits, `.`, `_` and `-`."""
    routes: tuple[RouteSpec, ...]
    """The mirrors."""
    data_dir: Path
    """Where embedded clusters and the daemon keep state; relative to the file's folder."""
    links: tuple[LinkSpec, ...] = ()
    """Limits that all routes between two clusters share."""
    pipelines: tuple[PipelineSpec, ...] = ()
    """What Spark does with the topics."""
    pipelines_at_once: int = 4
    """Runs of pipelines that the daemon has side by side, each with a JVM of its own; others wait."""
    folder: Path = Path()
    """The file's own: relative paths that a job gets as arguments are below it."""
    generation: int = 1
    """Raise it with every edit, and when another daemon is to take over: where a higher one is in force, the
    file is refused.
    """
