"""Connectors of MirrorMaker 2 as Kafka Connect has them: JSON with a `connector.class` somewhere in it, as
posted, or as its REST interface tells it. Pure.

A flow is what a MirrorSourceConnector copies. What is said of groups and heartbeats stands in connectors of
their own, for all flows between the same two clusters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from broker.config_file import Entry
from broker.errors import ConfigurationError
from broker.settings import boolean
from mirrormaker.importing.left_out import is_known
from mirrormaker.importing.mirrors import ENABLED, Flow, Mirrors, Settings, is_of_cluster
from mirrormaker.topology.document import NULL, Problems, line_of, read_document

CLASS = "connector.class"
NAME = "name"
SOURCE, CHECKPOINT, HEARTBEAT = (
    "MirrorSourceConnector",
    "MirrorCheckpointConnector",
    "MirrorHeartbeatConnector",
)
_ALIASES = {"source": "source.cluster.alias", "target": "target.cluster.alias"}
_SPOKEN_FOR: Mapping[str, tuple[str, ...]] = {
    CHECKPOINT: ("groups", "group.", "refresh.groups.", "sync.group.", "emit.checkpoints.", "checkpoints."),
    HEARTBEAT: ("emit.heartbeats.", "heartbeats.topic."),
}
"""How the settings begin that a connector has of its own."""
_SHORTER = {
    "source.cluster.": "",
    "target.cluster.": "",
    "source.consumer.": "consumer.",
    "target.producer.": "producer.",
    "producer.override.": "producer.",
}


def read_connectors(text: str, file: Path, mirrors: Mirrors) -> None:
    """Add what the connectors in the file are told to `mirrors`. Raises ConfigurationError for what is no
    JSON.
    """
    root = _parse(text, file)
    configurations = [Settings(each, mirrors.remarks) for each in _configurations(root, file)]
    if not configurations:
        raise ConfigurationError([f"{file}: there is no connector in it: nothing has a {CLASS!r}"])
    for settings in configurations:
        kind = (settings.text(CLASS) or "").rpartition(".")[2]
        if kind != SOURCE and kind not in _SPOKEN_FOR:
            settings.note(CLASS, "is no connector of MirrorMaker 2: left out")
        elif settings.read(ENABLED, boolean()) is False:
            settings.note(ENABLED, "the connector is not enabled: left out")
        else:
            _add_connector(settings, kind, mirrors)


def join_connectors(mirrors: Mirrors) -> None:
    """Have flows know what the connectors beside them are told, once all files are read."""
    for beside in mirrors.beside:
        flows = [flow for flow in mirrors.flows if flow.ends == beside.ends]
        for flow in flows:
            flow.settings.entries = beside.settings.entries | flow.settings.entries
        if not flows:
            for entry in beside.settings.entries.values():
                mirrors.remarks.use(entry)
            message = f"nothing copies from {beside.source} to {beside.target}: left out"
            mirrors.remarks.note(beside.named_by, f"no {SOURCE} is there, {message}")


def _add_connector(settings: Settings, kind: str, mirrors: Mirrors) -> None:
    mirrors.all |= {entry: _shorter(name) for name, entry in settings.entries.items()}
    flow = _read_connector(settings, mirrors)
    if kind == SOURCE:
        mirrors.flows.append(flow)
    else:
        mirrors.beside.append(_only(flow, _SPOKEN_FOR[kind]))


def _shorter(name: str) -> str:
    """The name of a setting where it is for."""
    prefix = next(filter(name.startswith, _SHORTER), "")
    return _SHORTER.get(prefix, "") + name.removeprefix(prefix)


def _only(flow: Flow, prefixes: tuple[str, ...]) -> Flow:
    """With the settings that begin so; of others that are known its source connector speaks."""
    settings = flow.settings
    for name, entry in settings.entries.items():
        if not name.startswith(prefixes) and is_known(name):
            settings.remarks.use(entry)
    kept = {name: entry for name, entry in settings.entries.items() if name.startswith(prefixes)}
    return replace(flow, settings=Settings(kept, settings.remarks))


def _parse(text: str, file: Path) -> yaml.Node:
    """As YAML, which JSON is but for tabs between values, so that lines are known."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError([f"{file}:{error.lineno}: not JSON: {error.msg}"]) from error
    except RecursionError as error:
        raise ConfigurationError([f"{file}: not JSON of connectors: nested too deeply"]) from error
    return read_document(f'{{"all": {text}}}'.replace("\t", " "), file, Problems()).node


def _configurations(node: yaml.Node, file: Path, name: yaml.Node | None = None) -> Iterator[dict[str, Entry]]:
    """`name`: what stands beside it, as that of a connector does that is posted."""
    match node:
        case yaml.MappingNode():
            values = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            if CLASS in values:
                yield _entries(values if name is None else {NAME: name, **values}, file)
                return
            for value in values.values():
                yield from _configurations(value, file, values.get(NAME))
        case yaml.SequenceNode():
            for value in node.value:
                yield from _configurations(value, file)


def _entries(values: Mapping[str, yaml.Node], file: Path) -> dict[str, Entry]:
    """Settings; what is told of them names the connector, as all of it may stand in one line."""
    texts = {
        key: node.value.strip()
        for key, node in values.items()
        if isinstance(node, yaml.ScalarNode) and node.tag != NULL
    }
    prefix = f"{texts[NAME]}: " if NAME in texts else ""
    return {
        key: Entry(f"{prefix}{key}", text, f"{file}:{line_of(values[key])}") for key, text in texts.items()
    }


def _read_connector(settings: Settings, mirrors: Mirrors) -> Flow:
    named_by = settings.entries[CLASS]
    ends, of_flow = {}, {}
    for end, name in _ALIASES.items():
        prefix = f"{end}.cluster."
        ends[end] = settings.text(name) or end
        of_cluster = {
            option.removeprefix(prefix): entry
            for option, entry in settings.entries.items()
            if option.startswith(prefix) and is_of_cluster(option.removeprefix(prefix))
        }
        mirrors.add_cluster(ends[end], of_cluster, named_by)
    for name, entry in settings.entries.items():
        if not name.startswith(("source.cluster.", "target.cluster.")):
            of_flow[_shorter(name)] = entry
    if ends["source"] == ends["target"]:
        mirrors.remarks.report(named_by, "leads to the cluster that it comes from")
    return Flow(
        source=ends["source"],
        target=ends["target"],
        settings=Settings(of_flow, mirrors.remarks),
        named_by=named_by,
        name=settings.text(NAME),
    )
