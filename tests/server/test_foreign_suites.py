"""The document that tells which tests of other projects a node does not pass."""

from __future__ import annotations

from ops.foreign_suites import DOCUMENT, load, render


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == render(load()), "run: python -m ops.foreign_suites"


def test_every_test_left_out_has_a_reason() -> None:
    for suite in load().values():
        assert all(reason.strip() for reason in {**suite.fails, **suite.skips}.values())
