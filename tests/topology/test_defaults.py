"""What `defaults` say for all routes."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.topology.model import CopyMode, Resources, Start, StartAtOffsets
from tests.topology.files import CLUSTERS, load_route, problems_of


def test_a_routes_own_value_wins_key_by_key(tmp_path: Path) -> None:
    defaults = "defaults: {copy: deep, buckets: 4, resources: {fetch_bytes: 2MiB, produce_bytes: 2MiB}}\n"
    route = load_route(tmp_path, "buckets: 8, resources: {produce_bytes: 3MiB}", before=defaults)
    assert (route.copy, route.buckets) == (CopyMode.DEEP, 8)
    assert route.resources == Resources(fetch_bytes=2 << 20, produce_bytes=3 << 20)


def test_lists_and_values_of_another_shape_are_replaced_and_not_merged(tmp_path: Path) -> None:
    defaults = (
        "defaults: {start: {offsets: {x: {0: 1}}}, sync: {config: [a, b], groups: {include: [g]}}, "
        "resources: {bytes_per_second: 5}}\n"
    )
    inherited = load_route(tmp_path, "buckets: 1", before=defaults)
    assert inherited.start == StartAtOffsets(offsets={"x": {0: 1}})
    assert inherited.sync.groups is not None
    own = load_route(
        tmp_path,
        "start: latest, sync: {config: [c], groups: null}, resources: {bytes_per_second: null}",
        before=defaults,
    )
    assert own.start is Start.LATEST
    assert own.sync.config == ("c",)
    assert own.sync.groups is None
    assert own.resources.bytes_per_second is None


def test_null_takes_back_lists_and_stands_for_none(tmp_path: Path) -> None:
    defaults = "defaults: {filters: [{keep: {key_prefix: a}}], transforms: [{drop: {fields: [x]}}]}\n"
    assert load_route(tmp_path, "buckets: 1", before=defaults).filters
    own = load_route(tmp_path, "filters: null, transforms: null", before=f"{defaults}links:\n")
    assert (own.filters, own.transforms) == ((), ())


def test_what_is_wrong_in_the_defaults_is_told_once_and_there(tmp_path: Path) -> None:
    route = "  - {from: a, to: b, topics: {include: [x]}}\n"
    other = "  - {from: a, to: c, topics: {include: [x]}}\n"
    text = CLUSTERS + "defaults:\n  bukets: 3\n  copy: dep\n  topics: {include: [x]}\n  <<: {buckets: 1}\n"
    assert problems_of(tmp_path, f"{text}routes:\n{route}{other}") == [
        "3: defaults.bukets: unknown key; did you mean 'buckets'?",
        "4: defaults.copy: 'dep' is not one of auto, shallow, deep; did you mean 'deep'?",
        "5: defaults.topics: every route says this itself",
        "6: defaults.<<: merge keys are not read: say under 'defaults' what routes have in common",
    ]


def test_what_does_not_fit_together_is_told_by_the_line_that_says_it(tmp_path: Path) -> None:
    text = (
        CLUSTERS
        + "defaults:\n  resources:\n    partition_buffer_bytes: 64MiB\nroutes:\n"
        + "  - {from: a, to: b, topics: {include: [x]}}\n"
    )
    assert problems_of(tmp_path, text) == [
        "4: routes[0].resources.partition_buffer_bytes: exceeds buffer_bytes, which is 50331648"
    ]
