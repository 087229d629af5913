"""What `alter` commands are asked to change: what `--add` gives values to, and what `--delete` takes away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from broker.errors import ConfigurationError

V = TypeVar("V", str, float)


def changes_of(added: Sequence[Mapping[str, V]], deleted: Sequence[str]) -> dict[str, V | None]:
    """The new value of each name, None to take it away; each of `deleted` holds names parted by commas.

    Raises ConfigurationError when nothing is to be changed, or a name more than once.
    """
    pairs: list[tuple[str, V | None]] = [pair for each in added for pair in each.items()]
    pairs += [(name.strip(), None) for each in deleted for name in each.split(",") if name.strip()]
    if not pairs:
        raise ConfigurationError(["nothing to change: neither --add nor --delete names anything"])
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ConfigurationError([f"{name} is to be changed more than once" for name in twice])
    return dict(pairs)
