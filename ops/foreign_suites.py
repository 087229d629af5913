"""Other projects' suites that nodes are held to, out of `foreign_suites.yaml`, and the document about them.

`python -m ops.foreign_suites` writes `ops/docs/foreign-suites.md` anew; a test fails where the file is not
what this would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ops.markdown_table import table

SOURCE = Path(__file__).with_suffix(".yaml")
DOCUMENT = Path(__file__).parent / "docs" / "foreign-suites.md"

_INTRODUCTION = """\
# Suites of other projects

Tests that nobody wrote for this project, run against nodes by `make interop`. All of them pass but for those
below.

This file is written by `python -m ops.foreign_suites` out of `ops/foreign_suites.yaml`.
"""
_HEADINGS = ("Test", "Why not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One suite, and the tests of it that nodes do not pass, with the reason for each.

    Those of `fails` fail; those of `skips` the suite leaves out by itself.
    """

    name: str
    about: str
    fails: Mapping[str, str]
    skips: Mapping[str, str]


def load(source: Path = SOURCE) -> dict[str, Suite]:
    """Every suite by its name."""
    return {
        name: Suite(
            name=name, about=entry["about"], fails=_reasons(entry, "fails"), skips=_reasons(entry, "skips")
        )
        for name, entry in yaml.safe_load(source.read_text()).items()
    }


def _reasons(entry: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {test: group["reason"] for group in entry.get(kind, ()) for test in group["tests"]}


def render(suites: Mapping[str, Suite]) -> str:
    """The whole document."""
    return "\n".join([_INTRODUCTION, *(_section(suite) for suite in suites.values())])


def _section(suite: Suite) -> str:
    rows = [(f"`{test}`", reason) for test, reason in {**suite.fails, **suite.skips}.items()]
    return f"## {suite.name}\n\n{suite.about}\n\n{table(_HEADINGS, rows)}"


if __name__ == "__main__":
    DOCUMENT.write_text(render(load()))
