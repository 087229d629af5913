"""Batches and message sets against kafka-python and aiokafka: each reads what the other builds.

kafka-python has lz4 and zstd only with further libraries, so that aiokafka alone answers for these; neither
has the lz4 of magic 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import pytest

from broker.records.batch import Codec, read_header, rebase, verify_crc
from broker.records.builder import BatchBuilder
from broker.records.legacy import read_message_set
from broker.records.message_set import build_message_set
from broker.records.reader import read_all
from broker.records.record import Record
from tests.records.samples import NOW_MS, SIZE_MAX, Sample, as_samples, build, read

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it loads its schemas
    import kafka.record.default_records
    import kafka.record.legacy_records
    import kafka.record.memory_records

SAMPLES = [
    Sample(NOW_MS, b"key", b"value", []),
    Sample(NOW_MS - 5, None, b"value " * 20_000, [("one", b"1"), ("two", None), ("Zürich", b"")]),
    Sample(NOW_MS + 70_000, b"tombstone", None, []),
    Sample(0, b"", b"", [("one", b"1"), ("one", b"2")]),
]
BASE_OFFSET = 1 << 40

aio: Any = aiokafka.record
kafka_python: Any = kafka.record
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY]
PAIRS = [(aio, codec) for codec in Codec] + [(kafka_python, codec) for codec in KAFKA_PYTHON_CODECS]


def named(pairs: list[tuple[Any, Codec]]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize(
        ("library", "codec"), pairs, ids=[f"{library.__name__}-{codec.name}" for library, codec in pairs]
    )


OLD_FORMATS = pytest.mark.parametrize(
    ("library", "codec", "magic"),
    [
        pytest.param(library, codec, magic, id=f"{library.__name__}-{codec.name}-{magic}")
        for library, codec in PAIRS
        for magic in (0, 1)
        if codec is not Codec.ZSTD and (magic, codec) != (0, Codec.LZ4)
    ],
)


def read_by(library: Any, buffer: bytes) -> list[Sample]:
    records = library.memory_records.MemoryRecords(buffer)
    samples = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        samples += [
            (each.offset, Sample(each.timestamp, each.key, each.value, list(each.headers))) for each in batch
        ]
    return samples


@named(PAIRS)
def test_others_read_what_we_build(library: Any, codec: Codec) -> None:
    batch = build(SAMPLES, codec)
    rebase(batch, 0, BASE_OFFSET, 3)
    assert read_by(library, bytes(batch)) == [
        (BASE_OFFSET + index, sample) for index, sample in enumerate(SAMPLES)
    ]


@named(PAIRS)
def test_we_read_what_others_build(library: Any, codec: Codec) -> None:
    builder = library.default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=8,
        base_sequence=7,
        batch_size=SIZE_MAX,
    )
    for index, sample in enumerate(SAMPLES):
        builder.append(index, *sample)
    batch = bytes(builder.build())
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 8, 7)
    assert (header.codec, header.is_transactional) == (codec, True)
    assert as_samples(read(batch)) == SAMPLES


@named([(aio, Codec.NONE), (kafka_python, Codec.NONE)])
def test_uncompressed_batches_are_the_same_bytes(library: Any, codec: Codec) -> None:
    builder = library.default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=SIZE_MAX,
    )
    ours = BatchBuilder(size_max=SIZE_MAX)
    for index, sample in enumerate(SAMPLES):
        builder.append(index, *sample)
        ours.append(*sample)
    assert ours.size == builder.size()
    theirs = builder.build()
    rebase(theirs, 0, 0, -1)
    assert ours.build() == theirs


@OLD_FORMATS
def test_others_read_our_message_sets(library: Any, codec: Codec, magic: int) -> None:
    records = [
        Record(BASE_OFFSET + index, sample.timestamp, 0, sample.key, sample.value, ())
        for index, sample in enumerate(SAMPLES)
    ]
    expected = [
        (record.offset, Sample(record.timestamp if magic else None, record.key, record.value, []))
        for record in records
    ]
    assert read_by(library, build_message_set(records, magic, codec)) == expected


@OLD_FORMATS
def test_we_read_the_message_sets_of_others(library: Any, codec: Codec, magic: int) -> None:
    builder = library.legacy_records.LegacyRecordBatchBuilder(
        magic=magic, compression_type=codec, batch_size=SIZE_MAX
    )
    for index, sample in enumerate(SAMPLES):
        builder.append(index, *sample[:3])
    message_set = bytearray(builder.build())
    expected = [Sample(sample.timestamp if magic else -1, sample.key, sample.value, []) for sample in SAMPLES]
    assert as_samples(list(read_message_set(message_set, size_max=SIZE_MAX))) == expected
    if codec is not Codec.NONE:
        message_set[:8] = (len(SAMPLES) - 1).to_bytes(
            8, "big"
        )  # as a broker does: the wrapper has the last offset
    records = list(read_all(message_set, size_max=SIZE_MAX))
    assert as_samples(records) == expected
    assert [record.offset for record in records] == [0, 1, 2, 3]


def test_the_compiled_builder_and_parser_are_in_use() -> None:
    for compiled in (
        aiokafka.record.default_records.DefaultRecordBatch,
        aiokafka.record.default_records.DefaultRecordBatchBuilder,
    ):
        assert compiled.__module__ == "aiokafka.record._crecords.default_records"
