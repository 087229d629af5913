"""What several workers say is wrong, as one text. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def told_once(problems: Iterable[str | None]) -> str | None:
    """Each of them once; None where nobody has any."""
    return "; ".join(dict.fromkeys(filter(None, problems))) or None
