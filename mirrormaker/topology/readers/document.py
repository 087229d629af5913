"""A topology file as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.topology.document import full_path
from mirrormaker.topology.kinds.collections import ListOf
from mirrormaker.topology.kinds.kind import Checked, UnreadableError
from mirrormaker.topology.kinds.numbers import Integer
from mirrormaker.topology.kinds.records import Given, Record, Taken
from mirrormaker.topology.kinds.scalars import Text
from mirrormaker.topology.model import ClusterName, ClusterSpec, LinkSpec, PipelineSpec
from mirrormaker.topology.readers.clusters import clusters
from mirrormaker.topology.readers.links import LINKS
from mirrormaker.topology.readers.pipelines import pipelines
from mirrormaker.topology.readers.routes import NOT_IN_DEFAULTS, ROUTE

DEFAULT_DATA_DIR = "./data"
PIPELINES_AT_ONCE_MAX = 1000
GENERATION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What stands in a file, before the routes have their defaults."""

    clusters: Mapping[ClusterName, ClusterSpec]
    """Clusters by name: letters, digits, `.`, `_` and `-`."""
    defaults: Given | None = None
    """What every route says that does not say otherwise: any key of a route but `name`, `from`, `to` and
    `topics`. Mappings are merged key by key, lists are not; `null` in a route takes back what is none
    where nobody says it.
    """
    links: tuple[LinkSpec, ...] = ()
    """Limits that all routes between two clusters share."""
    routes: tuple[Given | None, ...] = ()
    """The mirrors."""
    pipelines: tuple[PipelineSpec, ...] = ()
    """What Spark does with the topics."""
    pipelines_at_once: int = 4
    """Runs of pipelines that the daemon has side by side, each with a JVM of its own; others wait."""
    data_dir: str = DEFAULT_DATA_DIR
    """Where embedded clusters and the daemon keep state; relative to the file's folder."""
    generation: int = 1
    """Raise it with every edit, and when another daemon is to take over: where a higher one is in force, the
    file is refused.
    """


def document(folder: Path) -> Record[Document]:
    """The keys of a file; relative paths in it are below `folder`."""
    return Record(
        Document,
        {
            "clusters": clusters(folder),
            "defaults": Taken(ROUTE, without=NOT_IN_DEFAULTS),
            "links": LINKS,
            "routes": ListOf(Taken(ROUTE), keeps_numbers=True),
            "pipelines": pipelines(folder),
            "pipelines_at_once": Integer(1, PIPELINES_AT_ONCE_MAX),
            "data_dir": Checked(Text("path"), lambda path: _check_path(folder, path)),
            "generation": Integer(1, GENERATION_MAX),
        },
    )


def _check_path(folder: Path, path: str) -> str:
    try:
        full_path(folder, path)
    except ConfigurationError as error:
        raise UnreadableError(str(error)) from error
    return path
