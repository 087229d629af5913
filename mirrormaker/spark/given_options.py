"""The options of one load or one query as Spark hands them over, read one by one, every problem collected.

Keys are matched without regard to case, as everywhere in Spark. Pure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from broker.client.security.connection_security import ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES as SECURITY_OPTIONS
from broker.client.security.given_options import STORE_PASSWORDS
from broker.client.security.options import read_options
from broker.errors import ConfigurationError
from broker.types import HostPort

T = TypeVar("T")

KAFKA = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
_SECURITY = {f"{KAFKA}{name}".lower(): name for name in (*SECURITY_OPTIONS, *STORE_PASSWORDS)}
"""Options of the connection by their names in lower case, as clients call them."""
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_INT_MAX = 2**31 - 1


class GivenOptions:
    """Reads one option after the other and collects what is wrong with them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in options.items()}
        self.problems: list[str] = []

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """What `parse` makes of the option's text; it raises ValueError for what cannot be."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"option {name}: {error}")
            return default

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def servers(self) -> tuple[HostPort, ...]:
        """Where the cluster is; nothing goes without it."""
        if not self.has(BOOTSTRAP):
            self.problems.append(f"option {BOOTSTRAP} is missing: a list of host:port")
        return self.read(BOOTSTRAP, parse_servers, ())

    def security(self) -> ConnectionSecurity:
        """How to connect, as the options with the names of Kafka's clients say."""
        given = {_SECURITY[key]: value for key, value in self._given.items() if key in _SECURITY}
        read = read_options(given)
        self.problems += [f"option {KAFKA}{name}: {message}" for name, message in read.problems]
        return ConnectionSecurity(tls=read.tls, credentials=read.credentials)

    def refuse(self, names: Mapping[str, str]) -> None:
        """Options that are known and cannot be had, with the reason of each."""
        for name, reason in names.items():
            if self.has(name):
                self.problems.append(f"option {name}: {reason}")

    def refuse_unknown(self, names: Iterable[str], elsewhere: Mapping[str, str]) -> None:
        """Every option beside `names` and those of the connection's security; what is said of those that have
        a meaning `elsewhere`.
        """
        others = {name.lower(): said for name, said in elsewhere.items()}
        known = {name.lower(): name for name in (BOOTSTRAP, *names, *map(KAFKA.__add__, _SECURITY.values()))}
        for key in self._given:
            if key in known:
                continue
            if key in others:
                self.problems.append(f"option {key} {others[key]}")
            else:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f", did you mean {known[close[0]]}?" if close else ""
                self.problems.append(f"option {key} is unknown{hint}")

    def raise_problems(self) -> None:
        """Raises ConfigurationError with every problem found."""
        if self.problems:
            raise ConfigurationError(self.problems)


def parse_servers(text: str) -> tuple[HostPort, ...]:
    return tuple(HostPort.parse(part) for part in parse_words(text))


def parse_words(text: str) -> list[str]:
    """The parts of a list with commas between them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ValueError("the list is empty")
    return words


def parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def parse_positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a positive number")
    return int(text)


def parse_size(text: str) -> int:
    """A number that fits the 31 bits that the protocol has for it, and is not zero."""
    return parse_size_or_zero(str(parse_positive(text)))


def parse_size_or_zero(text: str) -> int:
    """A number that fits the 31 bits that the protocol has for it."""
    number = parse_count(text)
    if number > _INT_MAX:
        raise ValueError(f"{text!r} is more than {_INT_MAX}")
    return number


def parse_count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def parse_boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_duration_ms(text: str) -> int:
    """A time span as Spark writes it, such as 15m or 500ms; a bare number is milliseconds."""
    found = _DURATION.fullmatch(text)
    if found is None or (found[2].lower() or "ms") not in _UNIT_MS:
        raise ValueError(f"{text!r} is not a time span like 500ms, 30s, 15m, 1h")
    return int(found[1]) * _UNIT_MS[found[2].lower() or "ms"]


def one_of(choices: Mapping[str, T]) -> Callable[[str], T]:
    """A parser of a word that stands for something, in any case."""

    def parse(text: str) -> T:
        found = choices.get(text.strip().lower())
        if found is None:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return found

    return parse


def parse_json_object(text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text!r} is not JSON like {example}: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{text!r} is not a JSON object like {example}")
    return value


def is_whole_number(value: object, smallest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= smallest
