"""Where MirrorMaker 2 has stopped: the offsets of its source connectors, as Kafka Connect keeps them. Pure.

Either the records of the topic that they are kept in, key and value in a line, of which the last for a key
counts (`["NAME",{"cluster":"a","partition":0,"topic":"t"}]` and `{"offset":41}`), or what Connect's REST
interface tells (`GET /connectors/NAME/offsets`). Each offset is that of the last record that was copied.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from broker.errors import ConfigurationError
from mirrormaker.importing.connectors import SOURCE
from mirrormaker.importing.mirrors import Mirrors
from mirrormaker.importing.routes import Document, selection_of
from mirrormaker.topology.document import read_text
from mirrormaker.topology.naming import compile_naming, name_problem
from mirrormaker.topology.validate import CLUSTER_NAME_SIZE_MAX

_BLANKS = re.compile(r"\s*")
TopicOffsets = dict[str, dict[int, int]]
"""Topic -> partition -> the offset to go on at."""


@dataclass(frozen=True, slots=True)
class OffsetsFile:
    """A file of positions, and the target that has them, where that is told."""

    path: Path
    target: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`PATH` or `TARGET=PATH`."""
        target, separator, path = text.partition("=")
        if separator and name_problem(target, CLUSTER_NAME_SIZE_MAX) is None:
            return cls(Path(path), target)
        return cls(Path(text))


@dataclass(slots=True)
class Positions:
    """All that files tell: by target, None where it is not told, and source."""

    by_ends: dict[tuple[str | None, str], TopicOffsets] = field(default_factory=dict)
    sources: dict[OffsetsFile, set[str]] = field(default_factory=dict)
    """Clusters that a file tells of."""

    def of(self, source: str, target: str) -> TopicOffsets:
        """Those of the flows between two clusters."""
        return self.by_ends.get((None, source), {}) | self.by_ends.get((target, source), {})


def read_positions(files: Sequence[OffsetsFile]) -> Positions:
    """Raises ConfigurationError."""
    positions = Positions()
    for file in files:
        sources = positions.sources[file] = set()
        for key, value in _pairs(read_text(file.path), file.path):
            match key:
                case {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)}:
                    sources.add(cluster)
                    of_cluster = positions.by_ends.setdefault((file.target, cluster), {})
                    of_topic = of_cluster.setdefault(topic, {})
                    of_topic.pop(partition, None)
                    if isinstance(value, dict) and isinstance(value.get("offset"), int):
                        of_topic[partition] = max(value["offset"] + 1, 0)
        if not sources:
            raise ConfigurationError([f"{file.path}: there is no position of a {SOURCE} in it"])
    return positions


def start_at_positions(mirrors: Mirrors, routes: Sequence[Document], positions: Positions) -> None:
    """Have each route start where MirrorMaker 2 has stopped, and write on behind what that has copied."""
    ends = {flow.ends for flow in mirrors.flows}
    for file, sources in positions.sources.items():
        if not any(source in sources and file.target in (None, target) for source, target in ends):
            told = f"tells of {', '.join(sorted(sources))}"
            mirrors.remarks.report_file(file.path, f"{told}: no flow leads from there to where it was kept")
    several = {source for source, count in Counter(source for source, _ in ends).items() if count > 1}
    for flow, route in zip(mirrors.flows, routes, strict=True):
        if flow.source in several and (None, flow.source) in positions.by_ends:
            message = f"several flows leave {flow.source!r}: say whose positions they are, TARGET=OFFSETS"
            mirrors.remarks.report(flow.named_by, message)
            continue
        naming = compile_naming(flow.source, selection_of(route))
        offsets = {
            topic: dict(sorted(partitions.items()))
            for topic, partitions in sorted(positions.of(flow.source, flow.target).items())
            if partitions and naming.selects(topic)
        }
        if offsets:
            route["start"] = {"offsets": offsets}
            topics = route["topics"]
            assert isinstance(topics, dict)
            topics["existing"] = "append"
        else:
            mirrors.remarks.note(flow.named_by, "no positions of its topics are told: its route starts anew")


def _pairs(text: str, file: Path) -> Iterator[tuple[Any, Any]]:
    """What positions are of, and each position; None where it was taken back."""
    waiting: Any = None
    for value in _values(text, file):
        if isinstance(value, dict) and isinstance(value.get("offsets"), list):
            told = [each for each in value["offsets"] if isinstance(each, dict)]
            yield from ((each.get("partition"), each.get("offset")) for each in told)
        elif isinstance(value, list):
            if waiting is not None:  # its record has no value
                yield waiting, None
            waiting = value[-1] if value else {}
        else:
            yield waiting, value
            waiting = None
    if waiting is not None:
        yield waiting, None


def _values(text: str, file: Path) -> Iterator[Any]:
    """The values of JSON that stand there one after the other."""
    decoder, at = json.JSONDecoder(), _behind_blanks(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            line = text.count("\n", 0, at) + 1
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise ConfigurationError([f"{file}:{line}: not JSON, and no position: {reason}"]) from error
        yield value
        at = _behind_blanks(text, end)


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()
