"""The document that tells which APIs a node serves."""

from __future__ import annotations

from broker.server.routes import ROUTES
from broker.wire.registry import APIS, api_of
from ops.protocol_table import DOCUMENT, NOTES, render


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == render(ROUTES, APIS.values()), "run: python -m ops.protocol_table"


def test_every_api_has_its_line() -> None:
    rows = {row.split("|")[2].strip() for row in render(ROUTES, APIS.values()).splitlines() if "|" in row}
    assert {api.name for api in APIS.values()} <= rows


def test_notes_are_about_apis_that_are_served() -> None:
    assert set(NOTES) <= {api_of(route.request).name for route in ROUTES}
