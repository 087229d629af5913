"""Where MirrorMaker 2 has stopped: the offsets of its source connectors, as Kafka Connect keeps them. Pure.

Either the records of the topic that they are kept in, key and value in a line, of which the last for a key
counts (`["NAME",{"cluster":"a","partition":0,"topic":"t"}]` and `{"offset":41}`), or what Connect's REST
interface tells (`GET /connectors/NAME/offsets`). Each offset is that of the last record that was copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from broker.errors import ConfigurationError
from mirrormaker.importing.connectors import SOURCE
from mirrormaker.importing.mirrors import Mirrors
from mirrormaker.importing.routes import Document, selection_of
from mirrormaker.topology.document import read_text
from mirrormaker.topology.naming import compile_naming

_BLANKS = re.compile(r"\s*")
Positions = dict[str, dict[str, dict[int, int]]]
"""Source cluster -> topic -> partition -> the offset to go on at."""


def read_positions(files: Sequence[Path]) -> Positions:
    """All that the files tell. Raises ConfigurationError."""
    positions: Positions = {}
    for file in files:
        found = 0
        for key, value in _pairs(read_text(file), file):
            match key:
                case {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)}:
                    found += 1
                    of_topic = positions.setdefault(cluster, {}).setdefault(topic, {})
                    of_topic.pop(partition, None)
                    if isinstance(value, dict) and isinstance(value.get("offset"), int):
                        of_topic[partition] = max(value["offset"] + 1, 0)
        if not found:
            raise ConfigurationError([f"{file}: there is no position of a {SOURCE} in it"])
    return positions


def start_at_positions(mirrors: Mirrors, routes: Sequence[Document], positions: Positions) -> None:
    """Have each route start where MirrorMaker 2 has stopped, and write on behind what that has copied."""
    targets = {name: {flow.target for flow in mirrors.flows if flow.source == name} for name in positions}
    for flow, route in zip(mirrors.flows, routes, strict=True):
        if len(targets.get(flow.source, ())) > 1:
            message = f"several flows leave {flow.source!r}, and positions do not say whose they are"
            mirrors.remarks.report(flow.named_by, message)
            continue
        naming = compile_naming(flow.source, selection_of(route))
        offsets = {
            topic: dict(sorted(partitions.items()))
            for topic, partitions in sorted(positions.get(flow.source, {}).items())
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
