"""What is written out of the declarations of topology files: `topologies/schema.json`, and the tables in
`ops/docs/topology.md`.

`python -m ops.topology_tables` writes them anew; a test fails where a file is not what this would write. Text
around the tables is written by hand: a table stands between `<!-- keys of NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirrormaker.topology.kinds.docs import class_doc, field_docs
from mirrormaker.topology.kinds.records import Record, Taken
from mirrormaker.topology.kinds.unions import OneKey
from mirrormaker.topology.readers.clusters import TOPIC, cluster
from mirrormaker.topology.readers.document import document
from mirrormaker.topology.readers.links import LINKS
from mirrormaker.topology.readers.pipelines import STEP, pipeline, sink
from mirrormaker.topology.readers.pipelines import table as pipeline_table
from mirrormaker.topology.readers.routes import ROUTE
from mirrormaker.topology.readers.simulation import OUTAGES
from mirrormaker.topology.readers.steps import CONDITION, FILTERS, HEADER_TEST, JSON_TEST, TRANSFORMS
from mirrormaker.topology.readers.windows import WINDOWS
from mirrormaker.topology.schema import topology_schema
from ops.markdown_table import table

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "ops" / "docs" / "topology.md"
SCHEMA = ROOT / "topologies" / "schema.json"

_REGION = re.compile(r"(<!-- keys of (?P<name>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADINGS = ("key", "values", "default", "effect")
_PARTS: dict[str, Any] = {
    "a file": document(Path()),
    "a cluster": cluster(Path()),
    "a topic": TOPIC,
    "a link": LINKS.item,
    "a window": WINDOWS.item,
    "a route": ROUTE,
    "an outage": OUTAGES.item,
    "a filter": FILTERS.item,
    "a condition": CONDITION,
    "a header": HEADER_TEST,
    "a field": JSON_TEST,
    "a transform": TRANSFORMS.item,
    "a pipeline": pipeline(Path()),
    "a step": STEP,
    "a table": pipeline_table(Path()),
    "a sink": sink(Path()),
}
_START = "`earliest`, `latest`, `{timestamp: TIME}` or `{offsets: {TOPIC: {PARTITION: OFFSET}}}`"
_ELSEWHERE = {
    ("a file", "clusters"): "mapping: name -> [cluster](#a-cluster)",
    ("a file", "defaults"): "[defaults](#defaults)",
    ("a file", "links"): "list of [links](#a-link)",
    ("a file", "routes"): "list of [routes](#a-route)",
    ("a file", "pipelines"): "list of [pipelines](#a-pipeline)",
    ("a pipeline", "start"): _START,
    ("a pipeline", "tables"): "mapping: name -> [table](#tables-of-a-pipeline)",
    ("a pipeline", "steps"): "list of [steps](#steps-of-a-pipeline)",
    ("a pipeline", "sinks"): "list of [sinks](#sinks-of-a-pipeline)",
    ("a cluster", "topics"): "mapping: name -> [topic](#topics-of-a-cluster)",
    ("a cluster", "simulate.outages"): "list of [outages](#simulations)",
    ("a link", "simulate.outages"): "list of [outages](#simulations)",
    ("a link", "windows"): "list of [windows](#windows)",
    ("a route", "resources.windows"): "list of [windows](#windows)",
    ("a route", "filters"): "list of [filters](#filters)",
    ("a route", "transforms"): "list of [transforms](#transforms)",
    ("a route", "start"): _START,
    ("a condition", "header"): "[header](#conditions)",
    ("a condition", "json"): "[field](#conditions)",
}  # fmt: skip


def render_document(current: str) -> str:
    """The documentation with its tables written anew."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}{_table_of(found['name'])}{found[3]}"

    return _REGION.sub(replaced, current)


def render_schema() -> str:
    """The schema's file."""
    return json.dumps(topology_schema(), indent=2) + "\n"


def _table_of(name: str) -> str:
    part = _PARTS[name]
    rows = _rows_of_choice(part, name) if isinstance(part, OneKey) else _rows_of(part, name, "")
    return table(_HEADINGS, [[cell.replace("|", "\\|") for cell in row] for row in rows])


def _rows_of(record: Record[Any], part: str, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, key in record.keys.items():
        path = f"{prefix}{name}"
        inner = isinstance(key.kind, Record)
        if not inner or record.is_nullable(name):
            words = _ELSEWHERE.get((part, path), key.kind.words)
            yield f"`{path}`", words, _default_of(record, name), record.doc_of(name)
        if isinstance(key.kind, Record):
            yield from _rows_of(key.kind, part, f"{path}.")


def _rows_of_choice(choice: OneKey[Any], part: str) -> Iterator[tuple[str, str, str, str]]:
    for name, alternative in choice.alternatives.items():
        words = _ELSEWHERE.get((part, name), alternative.kind.words)
        if isinstance(alternative.kind, Record) and (part, name) not in _ELSEWHERE:
            keys = [f"`{key}`: {alternative.kind.doc_of(key)}" for key in alternative.kind.keys]
            words = "mapping. " + " ".join(keys)
        yield f"`{name}`", words, "one of these", class_doc(alternative.documented)
    for name, key in choice.beside.items():
        yield f"`{name}`", key.kind.words, "none", field_docs(choice.cls).get(key.field or name, "")


def _default_of(record: Record[Any], name: str) -> str:
    field = record.field_of(name)
    if field in record.derived:
        return record.derived[field].words
    if record.is_required(name):
        return "required"
    default = record.default_of(name)
    if default is None or default in ((), {}):
        return "none"
    kind = record.keys[name].kind
    return f"`{kind.render(default)}`" if not isinstance(kind, Taken) else "none"


if __name__ == "__main__":
    DOCUMENT.write_text(render_document(DOCUMENT.read_text()))
    SCHEMA.write_text(render_schema())
