"""Rates of building and reading record batches, beside kafka-python's and aiokafka's own.

    python ops/bench/records.py [--seconds 0.3]

Each figure is the best of repeated runs over one batch of 1 MB of uncompressed records, in thousands of
records a second. Every implementation does the same work: build = records to a finished batch, read = CRC,
decompression and every field of every record taken out. `columns` is our reader for columnar sinks. Levels
are each library's defaults: aiokafka's lz4 (9) and gzip (9) are slower and smaller than ours.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import aiokafka.record.default_records

from broker.records.batch import Codec, read_header, verify_crc
from broker.records.builder import BatchBuilder
from broker.records.reader import read_columns, read_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it loads its schemas
    import kafka.record.default_records

Values = list[bytes]

BATCH_BYTES = 1_000_000
SIZE_MAX = 1 << 26
NOW_MS = 1_700_000_000_000
KAFKA_PYTHON_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)


def departures(size: int) -> Values:
    """JSON values of `size` bytes like those of the demo, from a fixed seed."""
    source = random.Random(2013)
    values = []
    for _ in range(BATCH_BYTES // size):
        text = b""
        while len(text) < size:
            row = {
                "carrier": source.choice(["UA", "B6", "EV", "DL", "AA"]),
                "flight": source.randrange(8000),
                "dest": source.choice(["IAH", "MIA", "BQN", "ATL", "ORD", "FLL"]),
                "dep_delay": source.randrange(-20, 200),
            }
            text += json.dumps(row).encode()
        values.append(text[:size])
    return values


def build_ours(values: Values, codec: Codec) -> bytes:
    builder = BatchBuilder(codec, size_max=SIZE_MAX)
    append = builder.append
    for index, value in enumerate(values):
        append(NOW_MS + index, b"N14228", value)
    return bytes(builder.build())


def build_with(library: Any, values: Values, codec: Codec) -> bytes:
    builder = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=SIZE_MAX,
    )
    for index, value in enumerate(values):
        builder.append(index, NOW_MS + index, b"N14228", value, [])
    return bytes(builder.build())


def read_ours(batch: bytes) -> int:
    header = read_header(batch)
    verify_crc(batch, 0, header)
    return len(read_records(batch, header, size_max=SIZE_MAX))


def read_our_columns(batch: bytes) -> int:
    header = read_header(batch)
    verify_crc(batch, 0, header)
    return len(read_columns(batch, header, size_max=SIZE_MAX).values)


def read_with(library: Any, batch: bytes) -> int:
    reader = library.DefaultRecordBatch(batch)
    if not reader.validate_crc():
        raise AssertionError("CRC")
    return len([(each.offset, each.timestamp, each.key, each.value, each.headers) for each in reader])


def rate(action: Callable[[], object], count: int, seconds: float) -> float:
    """Thousands of records a second, at best, of runs over about `seconds`."""
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return count / best / 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure")
    seconds = parser.parse_args().seconds
    libraries = {"aiokafka": aiokafka.record.default_records, "kafka-python": kafka.record.default_records}
    columns = ["build ours", *(f"build {name}" for name in libraries), "read ours", "columns"]
    columns += [f"read {name}" for name in libraries]
    print(f"{'1,000 records/s':16s}" + "".join(f"{column:>20s}" for column in columns))
    for size in (100, 1000):
        values = departures(size)
        for codec in Codec:
            batch = build_ours(values, codec)
            able = {
                name: library
                for name, library in libraries.items()
                if name != "kafka-python" or codec in KAFKA_PYTHON_CODECS
            }
            actions: dict[str, Callable[[], object]] = {
                "build ours": partial(build_ours, values, codec),
                "read ours": partial(read_ours, batch),
                "columns": partial(read_our_columns, batch),
            }
            for name, library in able.items():
                actions[f"build {name}"] = partial(build_with, library, values, codec)
                actions[f"read {name}"] = partial(read_with, library, batch)
            figures = {name: rate(action, len(values), seconds) for name, action in actions.items()}
            row = "".join(
                f"{figures[column]:20,.0f}" if column in figures else f"{'-':>20s}" for column in columns
            )
            ratio = sum(map(len, values)) / len(batch)
            print(f"{size:5d} B {codec.name.lower():8s}{row}   ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
