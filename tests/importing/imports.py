"""Files of MirrorMaker 2 made in tests, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.errors import ConfigurationError
from mirrormaker.importing.importer import import_files
from mirrormaker.importing.positions import OffsetsFile
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import RouteSpec, Topology

TWO = """\
clusters = a, b
a.bootstrap.servers = a1:9092
b.bootstrap.servers = b1:9092
"""
ONE_WAY = f"{TWO}a->b.enabled = true\n"


CLASSES = "org.apache.kafka.connect.mirror"


@dataclass(frozen=True)
class Outcome:
    """What was made of some files, as it is read again."""

    topology: Topology
    text: str
    notes: list[str]
    """Without the folder."""

    @property
    def route(self) -> RouteSpec:
        """The only one."""
        (route,) = self.topology.routes
        return route


def connector(kind: str, source: str, target: str, **settings: object) -> dict[str, object]:
    """As it is posted; `__` in a name is a dot."""
    return {
        "name": f"{source}-{kind}-{target}".lower(),
        "config": {
            "connector.class": f"{CLASSES}.Mirror{kind}Connector",
            "source.cluster.alias": source,
            "source.cluster.bootstrap.servers": f"{source}:9092",
            "target.cluster.alias": target,
            "target.cluster.bootstrap.servers": f"{target}:9092",
            **{name.replace("__", "."): value for name, value in settings.items()},
        },
    }


def write(folder: Path, text: str, name: str = "mm2.properties") -> Path:
    """A file with this text."""
    file = folder / name
    file.write_text(text)
    return file


def imported(folder: Path, *texts: str, positions: Mapping[str, str] | None = None) -> Outcome:
    """The topology of files with these texts."""
    files = [write(folder, text, f"mm2-{number}.conf") for number, text in enumerate(texts, 1)]
    told = []
    for name, text in (positions or {}).items():
        target, separator, file = name.rpartition("=")
        told.append(OffsetsFile.parse(f"{target}{separator}{write(folder, text, file)}"))
    to = folder / "topology.yaml"
    made = import_files(files, to, told)
    to.write_text(made.text)
    notes = [note.removeprefix(f"{folder}/mm2-1.conf:") for note in made.notes]
    return Outcome(load_topology(to), made.text, notes)


def problems_of(folder: Path, *texts: str, positions: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with files of these texts; `LINE: SETTING: MESSAGE` of the first."""
    with pytest.raises(ConfigurationError) as refused:
        imported(folder, *texts, positions=positions)
    return [
        problem.removeprefix(f"{folder}/").removeprefix("mm2-1.conf:") for problem in refused.value.problems
    ]
