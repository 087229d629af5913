"""A topology file as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from mirrormaker.topology.document import Place
from mirrormaker.topology.kinds.collections import ListOf
from mirrormaker.topology.kinds.kind import Checked, JsonSchema, Kind, UnreadableError, unexpected
from mirrormaker.topology.kinds.numbers import Integer
from mirrormaker.topology.kinds.records import Given, Record, Taken
from mirrormaker.topology.kinds.scalars import Text
from mirrormaker.topology.model import ClusterName, ClusterSpec, LinkSpec
from mirrormaker.topology.readers.clusters import clusters
from mirrormaker.topology.readers.links import LINKS
from mirrormaker.topology.readers.routes import NOT_IN_DEFAULTS, ROUTE

DEFAULT_DATA_DIR = "./data"
GENERATION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What stands in a file, before the routes have their defaults."""

    clusters: Mapping[ClusterName, ClusterSpec]
    """Clusters by name: letters, digits, `.`, `_` and `-`."""
    defaults: Given | None = None
    """What every route says that does not say otherwise: any key of a route but `name`, `from`, `to` and
    `topics`. Mappings are merged key by key, lists are not; `null` in a route takes back what may be left
    out.
    """
    links: tuple[LinkSpec, ...] = ()
    """Limits that all routes between two clusters share."""
    routes: tuple[Given | None, ...] = ()
    """The mirrors."""
    pipelines: tuple[str, ...] = ()
    """May be left out; must be empty, as there are none yet."""
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
            "pipelines": _NoPipelines(),
            "data_dir": Checked(Text("path"), _check_path),
            "generation": Integer(1, GENERATION_MAX),
        },
    )


class _NoPipelines(Kind[tuple[str, ...]]):
    """A list that must be empty."""

    @property
    def words(self) -> str:
        return "empty list"

    @property
    def stand_in(self) -> tuple[str, ...]:
        return ()

    def read(self, place: Place) -> tuple[str, ...]:
        if not isinstance(place.node, yaml.SequenceNode):
            raise unexpected("a list", place)
        if place.node.value:
            raise UnreadableError("pipelines are not supported: the list must be empty")
        return ()

    def schema(self) -> JsonSchema:
        return {"type": "array", "maxItems": 0}


def _check_path(path: str) -> str:
    if "\0" in path:
        raise UnreadableError(f"{path!r} is not a path")
    return path
