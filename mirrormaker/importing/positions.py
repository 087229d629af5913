"""Where MirrorMaker 2 has stopped: the offsets of its source connectors, as Kafka Connect keeps them. Pure.

Either the records of the topic that they are kept in, key and value in a line, of which the last for a key
counts (`["NAME",{"cluster":"a","partition":0,"topic":"t"}]` and `{"offset":41}`), or what Connect's REST
interface tells (`GET /connectors/NAME/offsets`). Each offset is that of the last record that was copied. NAME
is the connector that copied it: a topic still holds what others had, as one that had another name before.
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
from mirrormaker.importing.mirrors import Flow, Mirrors
from mirrormaker.importing.remarks import Remarks
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


@dataclass(frozen=True, slots=True)
class _Told:
    """Positions that belong together."""

    file: OffsetsFile
    source: str
    connector: str | None
    """Who has them; None: it is not told."""


@dataclass(slots=True)
class Positions:
    """All that files tell."""

    offsets: dict[_Told, TopicOffsets] = field(default_factory=dict)
    """Files in their order; of several that tell of a topic the last one counts."""
    lines: dict[_Told, int] = field(default_factory=dict)
    """Where the first of them stands."""

    def between(self, source: str, target: str) -> list[_Told]:
        """Those of the flows between two clusters; those whose target is told behind all others."""
        found = [each for each in self.offsets if each.source == source]
        return [each for named in (None, target) for each in found if each.file.target == named]


def read_positions(files: Sequence[OffsetsFile]) -> Positions:
    """Raises ConfigurationError."""
    positions = Positions()
    for file in files:
        for line, connector, key, value in _entries(read_text(file.path), file.path):
            match key:
                case {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)}:
                    told = _Told(file, cluster, connector)
                    positions.lines.setdefault(told, line)
                    of_topic = positions.offsets.setdefault(told, {}).setdefault(topic, {})
                    of_topic.pop(partition, None)
                    if isinstance(value, dict) and isinstance(value.get("offset"), int):
                        of_topic[partition] = max(value["offset"] + 1, 0)
        if not any(told.file == file for told in positions.offsets):
            raise ConfigurationError([f"{file.path}: there is no position of a {SOURCE} in it"])
    return positions


def start_at_positions(mirrors: Mirrors, routes: Sequence[Document], positions: Positions) -> None:
    """Have each route start where MirrorMaker 2 has stopped, and write on behind what that has copied."""
    ends = {flow.ends for flow in mirrors.flows}
    _report_files_of_no_flow(mirrors, positions)
    several = {source for source, count in Counter(source for source, _ in ends).items() if count > 1}
    taken: set[_Told] = set()
    for flow, route in zip(mirrors.flows, routes, strict=True):
        told = positions.between(*flow.ends)
        if flow.source in several and any(each.file.target is None for each in told):
            message = f"several flows leave {flow.source!r}: say whose positions they are, TARGET=OFFSETS"
            mirrors.remarks.report(flow.named_by, message)
            continue
        own = _own(flow, told, mirrors.remarks)
        taken.update(own)
        naming = compile_naming(flow.source, selection_of(route))
        found = {topic: each for one in own for topic, each in positions.offsets[one].items()}
        offsets = {
            topic: dict(sorted(partitions.items()))
            for topic, partitions in sorted(found.items())
            if partitions and naming.selects(topic)
        }
        if offsets:
            route["start"] = {"offsets": offsets}
            topics = route["topics"]
            assert isinstance(topics, dict)
            topics["existing"] = "append"
        else:
            mirrors.remarks.note(flow.named_by, "no positions of its topics are told: its route starts anew")
    for source, target in ends:
        for each in positions.between(source, target):
            if each not in taken:
                message = f"left out: positions of {each.connector!r}, and no connector here is called so"
                mirrors.remarks.note_line(each.file.path, positions.lines[each], message)


def _report_files_of_no_flow(mirrors: Mirrors, positions: Positions) -> None:
    used = {each.file for flow in mirrors.flows for each in positions.between(*flow.ends)}
    sources: dict[OffsetsFile, set[str]] = {}
    for each in positions.offsets:
        if each.file not in used:
            sources.setdefault(each.file, set()).add(each.source)
    for file, names in sources.items():
        told = f"tells of {', '.join(sorted(names))}"
        mirrors.remarks.report_file(file.path, f"{told}: no flow leads from there to where it was kept")


def _own(flow: Flow, told: Sequence[_Told], remarks: Remarks) -> list[_Told]:
    """Those that are the flow's by its connector's name; without one it may be the only one that is told."""
    names = dict.fromkeys(each.connector for each in told if each.connector is not None)
    if flow.name is None and len(names) > 1:
        listed = " and ".join(map(repr, names))
        remarks.report(flow.named_by, f"positions of {listed} are told, and not which of them it is")
    name = next(iter(names), None) if flow.name is None else flow.name
    return [each for each in told if each.connector in (None, name)]


def _entries(text: str, file: Path) -> Iterator[tuple[int, str | None, Any, Any]]:
    """For each position the line, the connector that has it, where that is told, what it is of, and the
    position; None where it was taken back.
    """
    waiting: tuple[int, str | None, Any] | None = None
    for line, value in _values(text, file):
        if isinstance(value, dict) and isinstance(value.get("offsets"), list):
            told = [each for each in value["offsets"] if isinstance(each, dict)]
            yield from ((line, None, each.get("partition"), each.get("offset")) for each in told)
        elif isinstance(value, list):
            if waiting is not None:  # its record has no value
                yield *waiting, None
            name = value[0] if len(value) > 1 and isinstance(value[0], str) else None
            waiting = line, name, value[-1] if value else {}
        elif waiting is not None:
            yield *waiting, value
            waiting = None
    if waiting is not None:
        yield *waiting, None


def _values(text: str, file: Path) -> Iterator[tuple[int, Any]]:
    """The values of JSON that stand there one after the other, each with its line."""
    decoder, end = json.JSONDecoder(), 0
    line, at = 1, _behind_blanks(text, 0)
    while at < len(text):
        line, start = line + text.count("\n", end, at), at
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise ConfigurationError([f"{file}:{line}: not JSON, and no position: {reason}"]) from error
        yield line, value
        line += text.count("\n", start, end)
        at = _behind_blanks(text, end)


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()
