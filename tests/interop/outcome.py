"""What became of the tests of another project's suite."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """The tests by their names."""

    passed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    """With what each said."""
    skipped: set[str] = field(default_factory=set)
