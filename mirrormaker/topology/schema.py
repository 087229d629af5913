"""The JSON Schema of topology files, out of what their readers declare: `topologies/schema.json`."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.topology.kinds.kind import JsonSchema
from mirrormaker.topology.readers.document import document
from mirrormaker.topology.readers.steps import CONDITION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def topology_schema() -> JsonSchema:
    """The whole schema. What it cannot say, references between parts above all, only the loader checks."""
    return {
        "$schema": DIALECT,
        "title": "A topology of mirrormaker",
        **document(Path()).schema(),
        "$defs": {"condition": CONDITION.schema()},
    }
