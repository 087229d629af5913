"""Properties that hold for every message in every version."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.errors import WireError
from broker.wire.message import Versioned
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.wire.samples import MESSAGES, every_message_and_version, sample, samples, versions_of

each_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@each_message
@few
@given(data=st.data())
def test_every_message_comes_back_from_its_bytes_in_every_version(
    message: type[Versioned], data: st.DataObject
) -> None:
    for version in versions_of(message):
        original = data.draw(samples(message, version))
        encoded = original.encode(version)
        assert message.decode(encoded, version) == original
        assert message.decode(bytearray(encoded), version) == original
        assert message.decode(memoryview(b"head" + encoded)[4:], version) == original
        assert message.decode(b"head" + encoded, version, 4) == original
        assert b"".join(original.encode_parts(version)) == encoded


@each_message
def test_every_truncation_is_refused(message: type[Versioned]) -> None:
    for version in versions_of(message):
        encoded = sample(message, version, Random(version)).encode(version)
        for size in _some_positions(len(encoded)):
            with pytest.raises(WireError):
                message.decode(encoded[:size], version)


@each_message
def test_bytes_after_the_message_are_refused(message: type[Versioned]) -> None:
    for version in versions_of(message):
        encoded = sample(message, version, Random(version)).encode(version)
        with pytest.raises(WireError):
            message.decode(encoded + b"\0", version)
        value, end = message.decode_prefix(encoded + b"\0", version)
        assert end == len(encoded)
        assert value == message.decode(encoded, version)


@pytest.mark.parametrize("seed", range(40))
def test_garbage_is_either_read_or_refused_with_a_wire_error(seed: int) -> None:
    random = Random(seed)
    for message, version in every_message_and_version():
        garbage = random.choice((_noise, _zeros, _small_numbers))(random)
        _read_or_refuse(message, garbage, version)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_message_is_either_read_or_refused_with_a_wire_error(seed: int) -> None:
    random = Random(seed)
    for message, version in every_message_and_version():
        damaged = bytearray(sample(message, version, random).encode(version))
        for _ in range(min(3, len(damaged))):
            damaged[random.randrange(len(damaged))] = random.choice((0, 1, 127, 128, 255))
        _read_or_refuse(message, bytes(damaged), version)


@each_message
def test_versions_outside_the_range_are_refused(message: type[Versioned]) -> None:
    for version in (message.min_version - 1, message.max_version + 1, -1):
        with pytest.raises(WireError, match="versions"):
            message().encode(version)
        with pytest.raises(WireError, match="versions"):
            message.decode(b"", version)


def _read_or_refuse(message: type[Versioned], data: bytes, version: int) -> None:
    try:
        value = message.decode(data, version)
    except WireError:
        return
    encoded = value.encode(version)  # compared as bytes: a float may be NaN
    assert message.decode(encoded, version).encode(version) == encoded


def _some_positions(size: int) -> range:
    """All positions of a short message, and about 100 of a long one."""
    return range(0, size, max(1, size // 100))


def _noise(random: Random) -> bytes:
    return random.randbytes(random.choice((1, 8, 40, 200)))


def _zeros(random: Random) -> bytes:
    return bytes(random.randrange(200))


def _small_numbers(random: Random) -> bytes:
    return bytes(random.choices((0, 0, 0, 1, 2, 3, 255), k=random.randrange(200)))


@pytest.mark.parametrize("length", [125, 126, 127, 128, 200])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_arrays_in_runs_may_have_any_length(length: int, count: int) -> None:
    """From 127 elements on their length takes two bytes."""
    many = list(range(length))
    for isr, replicas in ((many, [1]), ([1], many), (many, many)):
        states = [
            LeaderAndIsrPartitionState(
                partition_index=number, isr=isr, replicas=replicas, adding_replicas=[], removing_replicas=[]
            )
            for number in range(count)
        ]
        topic = LeaderAndIsrTopicState(topic_name="t", partition_states=states)
        original = LeaderAndIsrRequest(topic_states=[topic])
        decoded = LeaderAndIsrRequest.decode(original.encode(5), 5)
        found = decoded.topic_states[0].partition_states
        assert [(list(state.isr), list(state.replicas)) for state in found] == [(isr, replicas)] * count
