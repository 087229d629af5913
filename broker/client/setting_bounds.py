"""Settings of clients that are numbers: the least that each may be."""

from __future__ import annotations

from collections.abc import Mapping


def find_too_small(settings: object, least: Mapping[str, int]) -> list[str]:
    """What is wrong with those of `settings`, named by attribute, that are below their `least`."""
    found = ((name, getattr(settings, name), bound) for name, bound in least.items())
    return [f"{name} is {value}, not at least {bound}" for name, value, bound in found if value < bound]
