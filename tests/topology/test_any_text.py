"""Whatever stands in a topology file, the loader says what is wrong, and says it of lines that are there."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from mirrormaker.topology.loader import parse_topology
from tests.topology.test_keys import EVERYTHING

STEPS = """\
    filters:
      - {topics: [orders], drop: {any: [{key_prefix: test-}, {not: {header: {name: h, in: [a, b]}}}]}}
      - {keep: {json: {field: a.b, equals: 5}}}
    transforms:
      - {mask: {fields: [name], with: "?"}}
      - {route: {to: "{topic}-eu", when: {key_prefix: eu}}}
      - {function: package.module:clean}
"""
FILE = EVERYTHING.replace("    buckets: 8\n", f"{STEPS}    buckets: 8\n")
TOKENS = [found.span() for found in re.finditer(r"[\w.*@+/\-]+|\"[^\"]*\"", FILE)]
ODD = [
    *("null", "~", "true", "0", "-1", "1.5", "9" * 400, "010", "1:30", "2026-01-01", ".nan", "1e400"),
    *("''", "' '", "'{'", "'('", "x y", "[]", "{}", "[[]]", "[null]", "{a: 1}", "{1: 2}", "{a: {b: [c]}}"),
    *("!!binary aGk=", "!secret x", "!!int x", "!!float x", "!!bool x", "!!map []", "!!str [a]", "&x [*x]"),
    *("9" * 400 + "s", "9" * 400 + "MB", "9" * 300 + "TB", "{? " + "9" * 5000 + " : 5}", "0x" + "f" * 5000),
    *('"\\UFFFFFFFF"', '"\\ud800"', "&x {any: [*x, *x]}", "'(?:){400000000}'"),
    *("jfk", "aggregate", "'\\0'", '"\\0"', "\\ud800", "{<<: {a: 1}}", "? [a]", "'a' * 3", "%", "@"),
]


def load(text: str) -> None:
    """Raises ConfigurationError alone."""
    file = Path(tempfile.gettempdir()) / "topology.yaml"
    try:
        parse_topology(text, file)
    except ConfigurationError as error:
        lines = text.count("\n") + 1
        for problem in error.problems:
            place = re.match(rf"{re.escape(str(file))}(?::(\d+))?: ", problem)
            assert place, problem
            assert place[1] is None or 1 <= int(place[1]) <= lines + 1, problem


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(changes=st.lists(st.tuples(st.sampled_from(TOKENS), st.sampled_from(ODD)), min_size=1, max_size=3))
def test_any_word_may_be_any_other_thing(changes: list[tuple[tuple[int, int], str]]) -> None:
    text = FILE
    for (start, end), odd in sorted(changes, reverse=True):
        text = text[:start] + odd + text[end:]
    load(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(lines=st.data())
def test_any_line_may_be_missing_or_elsewhere(lines: st.DataObject) -> None:
    kept = FILE.splitlines(keepends=True)
    for _ in range(lines.draw(st.integers(1, 4))):
        line = kept.pop(lines.draw(st.integers(0, len(kept) - 1)))
        if lines.draw(st.booleans()):
            kept.insert(lines.draw(st.integers(0, len(kept))), line)
    load("".join(kept))
