"""Which consumer groups a route carries over. Pure."""

from __future__ import annotations

import re

from mirrormaker.topology.model import GroupSync

OWN_PREFIX = "mirror/"
"""Groups of routes: their positions mean nothing elsewhere."""


class GroupSelection:
    """What `sync.groups` selects; nothing where it was left out."""

    def __init__(self, sync: GroupSync | None) -> None:
        """Patterns must be legal."""
        self._include = [re.compile(pattern) for pattern in (sync.include if sync is not None else ())]
        self._exclude = [re.compile(pattern) for pattern in (sync.exclude if sync is not None else ())]

    def selects(self, group: str) -> bool:
        """Whether the group is carried over."""
        if group.startswith(OWN_PREFIX) or not any(pattern.fullmatch(group) for pattern in self._include):
            return False
        return not any(pattern.fullmatch(group) for pattern in self._exclude)
