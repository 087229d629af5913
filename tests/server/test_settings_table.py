"""The document that tells which settings there are."""

from __future__ import annotations

from broker.config import SETTINGS
from ops.settings_table import DOCUMENT, render


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == render(), "run: python -m ops.settings_table"


def test_every_setting_has_its_line() -> None:
    names = [row.split("`")[1] for row in render().splitlines() if row.startswith("| `")]
    assert names[: len(SETTINGS)] == list(SETTINGS)
