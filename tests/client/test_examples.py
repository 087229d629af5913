from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "ops" / "docs" / "clients.md"


def test_the_page_names_every_option_of_secured_connections() -> None:
    from broker.client.security.given_options import OPTION_NAMES

    page = PAGE.read_text()
    assert [name for name in OPTION_NAMES if f"`{name}" not in page] == []
