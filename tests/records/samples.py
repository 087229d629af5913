"""Records to build batches of: strategies, and shorthands for building and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from broker.records.batch import Codec, read_header
from broker.records.builder import BatchBuilder
from broker.records.reader import read_records
from broker.records.record import Record

SIZE_MAX = 1 << 24
NOW_MS = 1_700_000_000_000


class Sample(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


SAMPLE = st.builds(
    Sample,
    st.one_of(st.just(-1), st.integers(0, 1 << 48)),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
)
SAMPLES = st.lists(SAMPLE, min_size=1, max_size=12)
CODECS = st.sampled_from(Codec)

PLAIN_SAMPLES = [
    Sample(
        NOW_MS + index, b"key-%d" % index, b"value %d " % index * 10, [("source", b"jfk"), ("empty", None)]
    )
    for index in range(5)
]


def build(samples: Sequence[Sample], codec: Codec = Codec.NONE, **settings: object) -> bytearray:
    builder = BatchBuilder(codec, **({"size_max": SIZE_MAX} | settings))
    for sample in samples:
        assert builder.append(*sample)
    return builder.build()


def read(batch: bytes | bytearray | memoryview, size_max: int = SIZE_MAX) -> list[Record]:
    return read_records(batch, read_header(batch), size_max=size_max)


def as_samples(records: Sequence[Record]) -> list[Sample]:
    return [Sample(record.timestamp, record.key, record.value, list(record.headers)) for record in records]
