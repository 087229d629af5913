"""kcat (librdkafka as Debian ships it) against a node."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back_as_they_went_in(kcat: Callable[..., str], topic: str, codec: str) -> None:
    lines = [f"key-{index},value {index} {'x' * 50}" for index in range(1000)]
    kcat("-P", "-t", topic, "-K,", "-z", codec, stdin="\n".join(lines) + "\n")
    consumed = kcat("-C", "-t", topic, "-K,", "-e", "-q")
    assert consumed.splitlines() == lines


def test_headers_keys_and_offsets_are_kept(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, "-k", "the key", "-H", "colour=blue", "-H", "empty", stdin="hello")
    (message,) = map(json.loads, kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines())
    assert (message["key"], message["payload"], message["offset"]) == ("the key", "hello", 0)
    assert message["headers"] == ["colour", "blue", "empty", None]
    assert message["tstype"] == "create"


def test_the_last_messages_are_found_by_negative_offset(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, stdin="\n".join(map(str, range(10))) + "\n")
    assert kcat("-C", "-t", topic, "-o", "-3", "-e", "-q").split() == ["7", "8", "9"]


def test_offsets_are_found_by_timestamp(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, stdin="only\n")
    (message,) = map(json.loads, kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines())
    assert f"{topic} [0] offset 0" in kcat("-Q", "-t", f"{topic}:0:{message['ts']}")
    assert f"{topic} [0] offset -1" in kcat("-Q", "-t", f"{topic}:0:{message['ts'] + 1}")


def test_a_group_resumes_where_it_committed(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, stdin="a\nb\nc\n")
    options = ("-X", "auto.offset.reset=earliest", "-q")
    assert kcat("-G", f"group-{topic}", topic, "-c", "2", *options).split() == ["a", "b"]
    assert kcat("-G", f"group-{topic}", topic, "-c", "1", *options).split() == ["c"]


def test_metadata_lists_the_broker_and_its_topics(
    kcat: Callable[..., str], topic: str, bootstrap: str
) -> None:
    kcat("-P", "-t", topic, stdin="x\n")
    metadata = json.loads(kcat("-L", "-J"))
    assert [broker["name"] for broker in metadata["brokers"]] == [bootstrap]
    assert topic in {entry["topic"] for entry in metadata["topics"]}


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_every_kind_of_acknowledgement_works(kcat: Callable[..., str], topic: str, acks: str) -> None:
    kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin="a\nb\n")
    assert kcat("-C", "-t", topic, "-c", "2", "-o", "beginning", "-q").split() == ["a", "b"]


def test_an_idempotent_producer_is_served(kcat: Callable[..., str], topic: str) -> None:
    lines = [str(index) for index in range(500)]
    kcat(
        "-P",
        "-t",
        topic,
        "-X",
        "enable.idempotence=true",
        "-X",
        "batch.num.messages=10",
        stdin="\n".join(lines) + "\n",
    )
    assert kcat("-C", "-t", topic, "-e", "-q").split() == lines
