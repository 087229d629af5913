"""What a check finds in a topology, whether it was read from a file or built in code. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, by the path of where it is said."""

    path: str
    message: str
