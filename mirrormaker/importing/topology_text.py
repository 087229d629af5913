"""A topology as the text of its file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from mirrormaker.importing.routes import Document
from mirrormaker.topology.readers.document import DEFAULT_DATA_DIR
from mirrormaker.topology.readers.routes import NOT_IN_DEFAULTS

_WIDTH = 1 << 20
"""Nothing is folded: expressions are hard enough to read."""
_OF_ONE_ROUTE = (*NOT_IN_DEFAULTS, "start")
_PLAIN = re.compile(r"(\.?/)?[a-zA-Z][a-zA-Z0-9_./-]*")
"""Text that needs no quotes, unless it is a word that YAML knows."""


class _Dumper(yaml.SafeDumper):
    """Quotes whatever could be read as anything but text, and has no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.SequenceNode:
    flow_style = not any(isinstance(item, dict) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flow_style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def render_topology(
    clusters: Mapping[str, Document], routes: Sequence[Document], files: Sequence[Path]
) -> str:
    """The file; what all of several routes say alike stands in `defaults`."""
    shared = [{key: value for key, value in route.items() if key not in _OF_ONE_ROUTE} for route in routes]
    defaults = _common(shared[0], shared[1:]) if len(routes) > 1 else {}
    document: Document = {"clusters": dict(clusters)}
    if defaults:
        document["defaults"] = defaults
    document["routes"] = [_without(route, defaults) for route in routes]
    document["data_dir"] = DEFAULT_DATA_DIR
    names = ", ".join(dict.fromkeys(file.name for file in files))
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return f"# Made by `mirrormaker import` of {names!r}.\n{body}"


def _common(first: Document, others: Sequence[Document]) -> Document:
    """What all say, key by key."""
    found: Document = {}
    for key, value in first.items():
        values = [other.get(key) for other in others]
        if all(each == value for each in values):
            found[key] = value
        elif isinstance(value, dict) and all(isinstance(each, dict) for each in values):
            inside = _common(value, [each for each in values if isinstance(each, dict)])
            found |= {key: inside} if inside else {}
    return found


def _without(document: Document, common: Document) -> Document:
    """What it says beside what is said already."""
    found: Document = {}
    for key, value in document.items():
        known = common.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            inside = _without(value, known)
            found |= {key: inside} if inside else {}
        elif key not in common:
            found[key] = value
    return found
