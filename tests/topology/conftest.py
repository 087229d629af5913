"""What tests of topology files share."""

from __future__ import annotations

import pytest


@pytest.fixture
def all_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys whose effect does not exist yet are read as if it did."""
    monkeypatch.setattr("mirrormaker.topology.loader.find_not_built", lambda topology: ())
