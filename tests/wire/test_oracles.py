"""Our tables against those of kio and kafka-python, byte for byte in both directions."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import Any

import pytest
from kio.index import KioIndexError, load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from broker.wire.message import Versioned
from broker.wire.registry import APIS, Api
from broker.wire.schema import NO_UUID, Struct
from tests.wire.samples import STORED_VALUES, is_our_own, sample, versions_of

SAMPLES_PER_VERSION = 4
KIO_DATA_PACKAGES = {
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "DefaultPrincipalData": "default_principal_data",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
KAFKA_PYTHON_PACKAGES = ("admin", "consumer", "metadata", "producer", "sasl")


def kio_messages() -> Iterator[tuple[type[Versioned], int, type[Any]]]:
    """Our class, the version, and kio's class, for everything that both sides have."""
    for api in APIS.values():
        for ours, side in ((api.request, EntityType.request), (api.response, EntityType.response)):
            for version in versions_of(ours):
                try:
                    module = load_payload_module(api.key, version, side)
                except KioIndexError:
                    continue
                yield ours, version, getattr(module, ours.__name__)
    for ours in STORED_VALUES:
        if package := KIO_DATA_PACKAGES.get(ours.__name__):
            for version in versions_of(ours):
                module = importlib.import_module(f"kio.schema.{package}.v{version}.data")
                yield ours, version, getattr(module, ours.__name__)


KIO_MESSAGES = list(kio_messages())


@pytest.mark.parametrize(
    ("ours", "version", "theirs"),
    KIO_MESSAGES,
    ids=[f"{ours.__name__}-{version}" for ours, version, _ in KIO_MESSAGES],
)
def test_kio_reads_what_we_write_and_writes_the_same_bytes(
    ours: type[Versioned], version: int, theirs: type[Any]
) -> None:
    for seed in range(SAMPLES_PER_VERSION):
        message = sample(ours, version, Random(seed), tame=True)
        encoded = message.encode(version)
        read, size = entity_reader(theirs)(encoded, 0)
        assert size == len(encoded)
        assert_same_values(message, read, version)
        written = BytesIO()
        entity_writer(theirs)(written, read)
        assert written.getvalue() == encoded
        assert ours.decode(written.getvalue(), version) == message


def test_kio_covers_most_of_our_messages() -> None:
    assert len(KIO_MESSAGES) >= 470
    assert len({ours for ours, _, _ in KIO_MESSAGES}) >= 117


def assert_same_values(ours: Struct, theirs: Any, version: int) -> None:
    """Compare field by field, in order; kio names a duration without its unit."""
    carried = [field for field in ours.__fields__ if version in field.versions and not is_our_own(field)]
    for field, their_field in zip(carried, fields(theirs), strict=True):
        assert field.name in (their_field.name.rstrip("_"), f"{their_field.name}_ms")
        compare_value(getattr(ours, field.name), getattr(theirs, their_field.name), version)


def compare_value(ours: Any, theirs: Any, version: int) -> None:
    if is_dataclass(theirs):
        assert_same_values(ours, theirs, version)
    elif isinstance(theirs, tuple):
        for our_item, their_item in zip(ours, theirs, strict=True):
            compare_value(our_item, their_item, version)
    elif isinstance(theirs, timedelta):
        assert ours == theirs / MILLISECOND
    elif isinstance(theirs, datetime):
        assert ours == (theirs - EPOCH) / MILLISECOND
    elif ours == NO_UUID:
        assert theirs in (None, NO_UUID)
    else:
        assert ours == theirs


def kafka_python_class(name: str) -> type[Any] | None:
    """kafka-python's class for a message; its import calls a deprecated function of the standard library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for package in KAFKA_PYTHON_PACKAGES:
            module = importlib.import_module(f"kafka.protocol.{package}")
            if found := getattr(module, name, None):
                return found
    return None


KAFKA_PYTHON_GUESSES = {"ApiVersionsResponse"}
"""Messages whose version kafka-python finds out by trial, so that it cannot be told one."""
KAFKA_PYTHON_APIS = [api for api in APIS.values() if kafka_python_class(api.request.__name__) is not None]


@pytest.mark.parametrize("api", KAFKA_PYTHON_APIS, ids=lambda api: api.name)
def test_kafka_python_reads_what_we_write_and_writes_the_same_bytes(api: Api[Any]) -> None:
    for ours in (api.request, api.response):
        theirs = kafka_python_class(ours.__name__)
        assert theirs is not None
        if ours.__name__ in KAFKA_PYTHON_GUESSES:
            continue
        for version in versions_of(ours):
            if theirs.min_version <= version <= theirs.max_version:
                for seed in range(SAMPLES_PER_VERSION):
                    encoded = sample(ours, version, Random(seed), tame=True).encode(version)
                    read = theirs.decode(encoded, version=version)
                    values = {name: getattr(read, name) for name in read.fields}
                    assert theirs(version=version, **values).encode(version=version) == encoded


def test_kafka_python_covers_the_apis_of_clients() -> None:
    assert len(KAFKA_PYTHON_APIS) >= 45
