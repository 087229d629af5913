"""Options of clients by their names as people write them: Kafka's present names, and the former ones as
aliases. Pure.

A table of `Option`s says which names there are. `read_options` turns names and texts into values; what it
does not know it refuses, and says what may have been meant. All that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.errors import ConfigurationError
from broker.settings import Kind, SettingType, suggestion
from broker.types import HostPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its present name, the former ones that mean just the same, and its kind."""

    name: str
    kind: Kind[Any]
    aliases: tuple[str, ...] = ()


def read_options(given: Mapping[str, object], options: Iterable[Option]) -> dict[str, Any]:
    """Values by the present names of the options that are given.

    Raises ConfigurationError for names that are unknown or given twice under different names, and for values
    that are not of their kind.
    """
    by_name = {name: option for option in options for name in (option.name, *option.aliases)}
    values: dict[str, Any] = {}
    used: dict[str, str] = {}
    problems = []
    for name, value in given.items():
        option = by_name.get(name)
        if option is None:
            problems.append(f"{name}: unknown option{suggestion(name, by_name)}")
            continue
        if (other := used.setdefault(option.name, name)) != name:
            problems.append(f"{name}: the same option as {other}, which is given too")
            continue
        try:
            values[option.name] = option.kind.parse(_text_of(value))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ConfigurationError(problems)
    return values


def broker_list() -> Kind[tuple[HostPort, ...]]:
    """`host:port`, or `id:host:port` as it was before 0.8, comma-separated."""

    def parse(text: str) -> tuple[HostPort, ...]:
        addresses = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
        if not addresses:
            raise ValueError("expected host:port[,host:port...], not nothing")
        return addresses

    return Kind(type=SettingType.LIST, parse=parse, render=lambda value: ",".join(map(str, value)))


def numbered(choices: Mapping[str, int]) -> Kind[int]:
    """One of some names, or its number."""

    def parse(text: str) -> int:
        name = text.strip().lower()
        if name in choices:
            return choices[name]
        try:
            number = int(name)
        except ValueError:
            number = None
        if number not in choices.values():
            raise ValueError(f"expected one of {', '.join(choices)}, not {text!r}")
        assert number is not None, "None is no choice"
        return number

    return Kind(type=SettingType.STRING, parse=parse)


def one_of(*choices: str) -> Kind[str]:
    """One of some lower-case names, however it is written."""

    def parse(text: str) -> str:
        name = text.strip().lower()
        if name not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, not {text!r}")
        return name

    return Kind(type=SettingType.STRING, parse=parse)


def _address(text: str) -> HostPort:
    number, separator, rest = text.partition(":")
    if separator and number.isdecimal() and ":" in rest:
        text = rest
    return HostPort.parse(text)


def _text_of(value: object) -> str:
    """Programs may give numbers, truth values, lists and None in place of texts."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
