"""Flight delays by origin and carrier, and the count that shows whether every flight arrived exactly once."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrormaker.delays import Arrival, Delay

FLIGHT_SCHEMA = "row int, origin string, carrier string, dep_delay double, arr_delay double"


def parse_flights(records: DataFrame) -> DataFrame:
    """Topic and flight of each record; `records` has the columns of the data source."""
    parsed = f.from_json(f.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    return records.select("topic", parsed).select("topic", "flight.*")


def delays_by_origin_and_carrier(flights: DataFrame) -> dict[tuple[str, str], Delay]:
    """Delays keyed by (origin, carrier)."""
    rows = flights.groupBy("origin", "carrier").agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).cast("long").alias("departure_delay_sum"),
        f.count("arr_delay").alias("arrived"),
        f.coalesce(f.sum("arr_delay"), f.lit(0)).cast("long").alias("arrival_delay_sum"),
    )
    return {
        (row.origin, row.carrier): Delay(
            flights=row.flights,
            departed=row.departed,
            departure_delay_sum=row.departure_delay_sum,
            arrived=row.arrived,
            arrival_delay_sum=row.arrival_delay_sum,
        )
        for row in rows.collect()
    }


def arrivals_by_topic(flights: DataFrame) -> dict[str, Arrival]:
    """Records and different rows of every topic."""
    rows = flights.groupBy("topic").agg(f.count("*").alias("records"), f.countDistinct("row").alias("rows"))
    return {row.topic: Arrival(records=row.records, rows=row.rows) for row in rows.collect()}
