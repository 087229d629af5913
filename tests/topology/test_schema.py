"""`topologies/schema.json` and the tables in `ops/docs/topology.md` say what the loader reads."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mirrormaker.topology import model
from mirrormaker.topology.document import PlainLoader
from mirrormaker.topology.kinds.docs import field_docs
from ops.topology_tables import DOCUMENT, SCHEMA, render_document, render_schema
from tests.topology.files import load_route
from tests.topology.test_examples import EXAMPLES
from tests.topology.test_keys import EVERYTHING

NO_KEY_OF_THEIR_OWN = {
    (model.Topology, "folder"),
    (model.ClusterSpec, "name"),  # it is the key that the cluster stands under
    (model.EmbeddedSpec, "zookeeper_directory"),  # below `data_dir`
    (model.FilterSpec, "action"),  # `drop` or `keep`
    (model.FilterSpec, "condition"),
    (model.TransformSpec, "step"),
    (model.KeyPrefix, "prefix"),
    (model.KeyMatches, "pattern"),
    (model.Where, "expression"),
    (model.Not, "condition"),
    (model.AnyOf, "conditions"),
    (model.AllOf, "conditions"),
    (model.CallFunction, "module"),
    (model.CallFunction, "name"),
    (model.StartAtTime, "timestamp_ms"),
    (model.StartAtOffsets, "offsets"),
    (model.SinkSpec, "target"),
    (model.FileSink, "format"),
    (model.FileSink, "path"),
    (model.LakeSink, "format"),
    (model.LakeSink, "table"),
}
CLASSES = [kind for name in model.__all__ if dataclasses.is_dataclass(kind := getattr(model, name))]
FIELDS = [
    (kind, field.name)
    for kind in CLASSES
    for field in dataclasses.fields(kind)
    if (kind, field.name) not in NO_KEY_OF_THEIR_OWN
]  # fmt: skip


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def plain(text: str) -> Any:
    """The document as JSON would have it: keys are text."""
    return json.loads(json.dumps(yaml.load(text, Loader=PlainLoader)))


def descriptions(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["description"]} if isinstance(schema.get("description"), str) else set()
        return own.union(*(descriptions(part) for part in schema.values()))
    return set().union(*map(descriptions, schema)) if isinstance(schema, list) else set()


def test_the_schema_is_what_the_readers_declare() -> None:
    assert SCHEMA.read_text() == render_schema(), "run: python -m ops.topology_tables"


def test_the_tables_of_the_documentation_are_what_the_readers_declare() -> None:
    text = DOCUMENT.read_text()
    assert text == render_document(text), "run: python -m ops.topology_tables"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_fits_the_schema(example: Path) -> None:
    text = example.read_text()
    assert text.startswith("# yaml-language-server: $schema=schema.json\n")
    validator().validate(plain(text))


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_every_field_of_the_model_is_in_the_schema_by_its_docstring(kind: type, field: str) -> None:
    doc = field_docs(kind).get(field)
    assert doc, f"{kind.__name__}.{field} has no docstring"
    assert doc in descriptions(json.loads(SCHEMA.read_text()))


ENUMERATIONS = [
    kind
    for name in model.__all__
    if isinstance(kind := getattr(model, name), type) and issubclass(kind, Enum)
    if kind not in (model.FilterAction, model.FileFormat, model.LakeFormat)  # their values are keys
]


@pytest.mark.parametrize("kind", ENUMERATIONS)
def test_every_value_of_an_enumeration_is_in_the_schema(kind: type[Enum]) -> None:
    assert json.dumps([member.value for member in kind]) in json.dumps(json.loads(SCHEMA.read_text()))


def test_a_file_with_every_key_fits_the_schema() -> None:
    validator().validate(plain(EVERYTHING))


def test_what_the_schema_offers_for_a_failure_policy_is_taken(tmp_path: Path) -> None:
    """And nothing is offered that leaves out records which could be copied once something has passed."""
    route = json.loads(SCHEMA.read_text())["properties"]["routes"]["items"]["properties"]
    offered = {key: policy["enum"] for key, policy in route["on"]["properties"].items()}
    assert offered["unauthorized"] == offered["destination_full"] == ["fail", "pause_partition"]
    for key, actions in offered.items():
        for action in actions:
            taken = getattr(load_route(tmp_path, f"on: {{{key}: {action}}}").on, key)
            assert taken.value == action


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("generation: zero", "generation: 7"),
        ("compression: zstd2", "compression: zstd"),
        ("datacentre: x", "datacenter: new-york"),
        ("bytes: 512QB", "bytes: 512KiB"),
        ("from: 8h", "from: 08:00"),
    ],
)
def test_what_the_loader_refuses_does_not_fit_the_schema(wrong: str, right: str) -> None:
    assert right in EVERYTHING
    assert list(validator().iter_errors(plain(EVERYTHING.replace(right, wrong))))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("generation: 1_000", "generation: 7"),
        ("bytes: 50_000", "bytes: 512KiB"),
    ],
)
def test_numbers_with_underscores_fit_the_schema_as_the_text_that_editors_take_them_for(
    wrong: str, right: str
) -> None:
    assert right in EVERYTHING
    validator().validate(plain(EVERYTHING.replace(right, wrong.replace(": ", ": '") + "'")))


def test_lists_of_a_certain_size_have_it_in_the_schema() -> None:
    clusters = {"a": {"bootstrap": []}, "b": {"bootstrap": ["b:1"]}}
    route = {"from": "a", "to": "b", "topics": {"include": ["x"]}, "simulate": {"by_hour": [1]}}
    wrong = validator().iter_errors({"clusters": clusters, "routes": [route]})
    assert {".".join(map(str, each.absolute_path)) for each in wrong} == {
        "clusters.a.bootstrap",
        "routes.0.simulate.by_hour",
    }
