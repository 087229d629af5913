"""Mirrors that change what they copy, between real clusters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch
from broker.client.partitioner import murmur2
from broker.embedded import EmbeddedCluster
from broker.records.batch import Codec, iterate_batches
from broker.types import TopicPartition
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import SteadyWriter, numbers_at
from tests.daemon.test_ledger import translated, wait_recorded
from tests.daemon.test_mirror import (
    address,
    assert_complete_and_in_order,
    consume,
    create,
    produce,
    producer,
)

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]


def batches(cluster: EmbeddedCluster, topic: str) -> list[tuple[Codec, int]]:
    """Codec and size of every batch of partition 0."""

    async def read() -> list[tuple[Codec, int]]:
        async with Cluster(cluster.bootstrap) as client:
            await client.ensure([topic])
            place = TopicPartition(topic, 0)
            positions = [PartitionPosition(topic_partition=place, offset=0, max_bytes=64 << 20)]
            terms = FetchTerms(max_wait_ms=100, min_bytes=1, max_bytes=64 << 20, read_committed=True)
            connection = await client.connection(client.leader(place) or 0, "look")
            response = await connection.request(build_fetch(positions, terms, client.metadata), 11)
            records = response.responses[0].partitions[0].records
            return [(header.codec, header.size) for _, header in iterate_batches(records)]

    return asyncio.run(read())


def counts_of(running: MirrorProcess, kind: str) -> dict[str, int]:
    """Counts of the route, once it has told of such and all is copied."""
    running.wait_copied()
    told = running.wait_for(lambda told: bool(told["counts"].get(kind)), kind)
    counted: dict[str, int] = told["counts"][kind]
    return counted


def has_event(told: Mapping[str, Any], name: str) -> bool:
    return any(event["name"] == name for event in told["events"])


def grow(cluster: EmbeddedCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for grown in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        grown.result(PATIENCE_SECONDS)


def headers_of(message: Message) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in message.headers() or []}


def test_another_codec_is_given_to_batches_that_have_not_it_yet(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    for index, codec in enumerate(["none", "gzip", "zstd"]):
        produce(source, "flights", range(index * 100, index * 100 + 100), 1, **{"compression.type": codec})
    running = mirror(source, destination, compression="zstd")
    running.start()
    running.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", 1), 300)
    kept = sum(codec is Codec.ZSTD for codec, _ in batches(source, "flights"))
    found = batches(destination, "jfk.flights")
    assert {codec for codec, _ in found} == {Codec.ZSTD}
    assert counts_of(running, "deep_batches") == {"codec": len(found) - kept}
    assert running.stop() == 0


def test_small_batches_become_big_ones(clusters: Clusters, mirror: MirrorFactory) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    for start in range(0, 400, 10):
        produce(source, "flights", range(start, start + 10), 1)
    running = mirror(source, destination, batch={"bytes": 4096, "linger_ms": 5})
    running.start()
    running.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", 1), 400)
    assert len(batches(destination, "jfk.flights")) * 4 < len(batches(source, "flights"))
    assert counts_of(running, "deep_batches")["gathered"] >= 30


FILTERED = {"filters": [{"drop": {"key_prefix": "none"}}]}


@pytest.mark.parametrize(
    ("size", "route"),
    [
        (2 << 20, {}),
        (16 << 10, FILTERED),
        (2 << 20, FILTERED),
        (16 << 10, {"topics": {"include": ["flights"], "partitions": "key"}}),
    ],
    ids=["gathered", "filtered", "filtered-large", "spread"],
)
def test_batches_come_in_the_size_that_the_file_says(
    clusters: Clusters, mirror: MirrorFactory, size: int, route: dict[str, Any]
) -> None:
    source, destination = clusters
    create(source, "flights", 1, **{"max.message.bytes": str(4 << 20)})
    writer = producer(source, **{"batch.size": 8_000})
    for _ in range(4_000):
        writer.produce("flights", os.urandom(1_000), partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, batch={"bytes": size}, **route)
    running.start()
    running.wait_copied()
    found = [each for _, each in batches(destination, "jfk.flights")]
    sizes = range(size * 3 // 4, size + 1)
    if size > 1 << 20 and route:
        sizes = range(500_000, 600_000)  # what is decoded in a turn
    assert sum(sizes[0] <= each for each in found) > len(found) // 2
    assert max(found) in sizes


def test_records_are_filtered_changed_parked_and_sent_elsewhere(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "orders", 2)
    writer = producer(source)
    for number in range(100):
        order = {"id": number, "region": ["eu", "us"][number % 2], "card": "4711", "note": {"text": "x"}}
        value = b"no JSON" if number == 50 else json.dumps(order).encode()
        kind = "test" if number % 10 == 9 else "real"
        headers = [("kind", kind.encode()), ("trace", b"1")]
        writer.produce("orders", value, b"order-%d" % number, partition=number % 2, headers=headers)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(
        source,
        destination,
        topics={"include": ["orders"]},
        filters=[{"drop": {"header": {"name": "kind", "equals": "test"}}}],
        transforms=[
            {"mask": {"fields": ["card"]}},
            {"drop": {"fields": ["note"], "headers": ["trace"]}},
            {"rename": {"fields": {"id": "number"}}},
            {"route": {"to": "{topic}.eu", "when": {"json": {"field": "region", "equals": "eu"}}}},
        ],
        on={"record_error": "park"},
    )
    running.start()
    running.wait_copied()
    wanted = [number for number in range(100) if number % 10 != 9 and number != 50]
    for topic, region in (("orders.eu", "eu"), ("jfk.orders", "us")):
        messages = consume(destination, topic, 2)
        documents = [json.loads(message.value() or b"") for message in messages]
        assert Counter(document["number"] for document in documents) == Counter(
            number for number in wanted if ["eu", "us"][number % 2] == region
        )
        assert {document["card"] for document in documents} == {"***"}
        assert not any("note" in document for document in documents)
        assert all(headers_of(message) == {"kind": "real"} for message in messages)
    (parked,) = consume(destination, "jfk.orders.dead-letters", 2)
    assert parked.value() == b"no JSON"
    letter = headers_of(parked)
    assert (letter["parked.topic"], letter["parked.partition"], letter["parked.offset"]) == (
        "orders",
        "0",
        "25",
    )
    assert "JSON" in letter["parked.error"]
    file = str(running.file)
    assert translated(file, "orders.eu", "0", "30", "--back") == ["orders", "0", "31", "copied", "exact"]
    assert translated(file, "orders.eu", "0", "49", "--back")[2:] == ["50", "end", "exact"]
    assert translated(file, "jfk.orders.dead-letters", "0", "0", "--back")[1:4] == ["0", "25", "copied"]
    assert counts_of(running, "left_out") == {"record_error": 1}
    running.wait_for(
        lambda told: "records_left_out" in {event["name"] for event in told["events"]},
        "what was left out is told",
    )
    assert running.stop() == 0


@pytest.mark.parametrize(
    "delivery",
    [
        pytest.param("at_least_once", marks=pytest.mark.long),
        "exactly_once",
        pytest.param("at_most_once", marks=pytest.mark.long),
    ],
)
def test_several_records_may_be_made_of_one(
    clusters: Clusters, mirror: MirrorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """Offsets are those of the first, and audits know the others."""
    source, destination = clusters
    (tmp_path / "doubling.py").write_text(
        "def change(record):\n"
        "    number = int(record.value)\n"
        "    return [record, record._replace(key=b'again')][: 2 - number % 2] * (number != 7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    create(source, "flights", 1)
    running = mirror(
        source, destination, delivery=delivery, transforms=[{"function": "doubling:change"}], buckets=1
    )
    running.start()
    wanted: list[bytes] = []
    for first in (0, 31):
        produce(source, "flights", range(first, first + 31), 1)
        wanted += [
            b"%d" % each for each in range(first, first + 31) for _ in range(2 - each % 2) if each != 7
        ]
        running.wait_copied()
        running.wait_for(
            lambda told: told["state"] == "running" and told["ledger"]["pages"] > 0, "in the ledger"
        )
    arrived = consume(destination, "jfk.flights", 1, len(wanted))
    assert [message.value() for message in arrived] == wanted
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        audit = mirrormaker("audit", str(running.file), "--output", "json", *options)
        assert (audit.returncode, audit.stderr) == (0, ""), audit.stdout
    file, route = str(running.file), "jfk-to-aggregate"
    places = {}
    for offset in (0, 1, 2, 31, 62):
        told = mirrormaker("translate", file, route, "flights", "0", str(offset)).stdout.split("\t")
        places[offset] = (int(told[5]), told[7].strip())
    positions = {message.offset(): message.value() for message in arrived}
    assert [positions[places[each][0]] for each in (0, 1, 2, 31)] == [b"0", b"1", b"2", b"31"]
    assert {exactness for _, exactness in places.values()} == {"exact"}
    both = [str(message.offset()) for message in arrived if message.value() == b"30"]
    back = [mirrormaker("translate", file, route, "jfk.flights", "0", at, "--back").stdout for at in both]
    assert [told.split()[5:] for told in back] == [["30", "copied", "exact"], ["30", "unrecorded", "careful"]]


def test_what_a_function_raises_ends_no_daemon_and_a_signal_does(
    clusters: Clusters, mirror: MirrorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = clusters
    (tmp_path / "raising.py").write_text(
        "class End(BaseException): pass\n"
        "RAISED = {2: KeyboardInterrupt, 3: SystemExit, 5: GeneratorExit, 7: End}\n"
        "def change(record):\n"
        "    if (raised := RAISED.get(int(record.value))) is not None:\n"
        "        raise raised('no')\n"
        "    return record\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    running = mirror(
        source, destination, transforms=[{"function": "raising:change"}], on={"record_error": "park"}
    )
    running.start()
    assert counts_of(running, "left_out") == {"record_error": 4}
    arrived = consume(destination, "jfk.flights", 1)
    assert [int(message.value() or b"") for message in arrived] == [0, 1, 4, 6, 8, 9]
    letters = [headers_of(message) for message in consume(destination, "jfk.flights.dead-letters", 1)]
    assert [letter["parked.error"] for letter in letters] == [
        f"raising:change: {name}: no" for name in ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "End")
    ]
    assert running.process is not None
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE_SECONDS) == 0


def test_what_a_function_prints_and_reads_is_no_talk_between_a_worker_and_its_daemon(
    clusters: Clusters, mirror: MirrorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = clusters
    (tmp_path / "talking.py").write_text(
        "import sys\n"
        "def change(record):\n"
        "    print('seen', int(record.value))\n"
        """    print('{"routes": {}, "at_ms": 1, "digest": ""}')\n"""
        "    assert sys.stdin.read() == ''\n"
        "    return record\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    create(source, "flights", 2)
    produce(source, "flights", range(10), 2)
    running = mirror(
        source, destination, transforms=[{"function": "talking:change"}], resources={"workers": 2}
    )
    running.start()
    running.wait_copied()
    assert len(consume(destination, "jfk.flights", 2, 10)) == 10
    log = running.log.read_text()
    assert "seen 9" in log
    assert "worker_ended" not in log
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("policy", "delivery"),
    [("key", "exactly_once"), pytest.param("round_robin", "at_least_once", marks=pytest.mark.long)],
)
def test_records_are_spread_over_the_partitions_that_the_destination_has_and_gets_meanwhile(
    clusters: Clusters, mirror: MirrorFactory, policy: str, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    create(destination, "jfk.flights", 5)
    produce(source, "flights", range(600), 2)
    topics = {"include": ["flights"], "partitions": policy}
    running = mirror(source, destination, topics=topics, delivery=delivery)
    running.start()
    running.wait_copied()
    messages = consume(destination, "jfk.flights", 5, 600)
    if policy == "key":
        assert_complete_and_in_order(messages, 600)
        for message in messages:
            assert message.partition() == (murmur2(message.key() or b"") & 0x7FFFFFFF) % 5
    else:
        assert sorted(int(message.value() or b"") for message in messages) == list(range(600))
        spread = Counter(message.partition() for message in messages)
        assert set(spread.values()) == {120}
    with SteadyWriter(source, 600, partitions=2) as writer:
        grow(destination, "jfk.flights", 7)
        told = running.wait_for(lambda told: has_event(told, "destination_partitions_changed"), "taken anew")
        running.wait_for(lambda told: len(told["partitions"]) == 2, "copied on")
        taken_anew = writer.written
        wait_until(lambda: writer.written > taken_anew + 200, "more written")
    assert told["state"] == "running"
    running.wait_copied()
    messages = consume(destination, "jfk.flights", 7, writer.written)
    if policy == "key":
        assert_moved_in_order(messages, 5, 7)
        assert numbers_at(destination, partitions=7) == Counter(range(writer.written))
    else:
        assert {message.partition() for message in messages} == set(range(7))
        assert numbers_at(destination, partitions=7).keys() == set(range(writer.written))
    assert running.stop() == 0
    assert mirrormaker("audit", str(running.file), "--deep").returncode == 0


def assert_moved_in_order(messages: list[Message], before: int, after: int) -> None:
    """Every key was at its place among so many partitions, then among others, and its records in order."""
    by_key: dict[bytes, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for message in messages:
        by_key[message.key() or b""][message.partition() or 0].append(int(message.value() or b""))
    for key, numbers in by_key.items():
        hashed = murmur2(key) & 0x7FFFFFFF
        places = list(dict.fromkeys([hashed % before, hashed % after]))
        assert set(numbers) == set(places), key
        inorder = [number for place in places for number in numbers[place]]
        assert inorder == sorted(inorder), key


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_filters_leave_out_stays_at_the_source_and_offsets_are_exact(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    writer = producer(source, **{"enable.idempotence": True, "linger.ms": 50})
    for round_ in range(5):
        for number in range(200):
            kind = "keep" if round_ % 2 == 0 and number < 20 else "drop"
            writer.produce("flights", b"%d" % (round_ * 200 + number), b"%s-%d" % (kind.encode(), number))
        assert writer.flush(PATIENCE_SECONDS) == 0
    stored = sum(size for _, size in batches(source, "flights"))
    filters = [{"keep": {"key_prefix": "keep-"}}]
    running = mirror(source, destination, filters=filters, delivery=delivery)
    running.start()
    running.wait_copied()
    wanted = [round_ * 200 + number for round_ in (0, 2, 4) for number in range(20)]
    messages = consume(destination, "jfk.flights", 1, len(wanted))
    assert [int(message.value() or b"") for message in messages] == wanted
    told = running.wait_for(lambda told: told["lag"]["messages"] == 0, "copied")
    assert told["counts"]["bytes_left_at_source"] > stored * 0.6
    assert told["counts"]["filtered_records"] == 0, "nothing that is left out came"
    assert not told["events"]
    if delivery == "at_least_once":
        ledger = wait_recorded(destination, [1000])[0]
        for index, (number, message) in enumerate(zip(wanted, messages, strict=True)):
            assert ledger.forward(number).offset == message.offset() == index
            assert ledger.back(index).offset == number
        assert ledger.forward(300).offset == 20, "what was left out leads to the next that was copied"
    assert running.stop() == 0


def test_batches_that_are_too_large_are_split_and_single_records_noted(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 1, **{"max.message.bytes": "2000"})
    writer = producer(source, **{"linger.ms": 200})
    for number in range(300):
        writer.produce("flights", b"%d" % number, b"key", partition=0)
    writer.produce("flights", b"x" * 5000, b"large", partition=0)
    writer.produce("flights", b"300", b"key", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, on={"oversize": "skip_and_record"})
    running.start()
    running.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", 1), 301)
    assert all(size <= 2000 for _, size in batches(destination, "jfk.flights"))
    notes = consume(destination, SKIPPED_TOPIC, 1)
    assert len({note.key() for note in notes}) == 1  # a note may come twice
    note = notes[0]
    place, said = json.loads(note.key() or b""), json.loads(note.value() or b"")
    assert place == {"route": "jfk-to-aggregate", "topic": "flights", "partition": 0, "offset": 300}
    assert (said["reason"], said["key"], said["value"]) == ("oversize", "bGFyZ2U=", None)
    assert said["value_bytes"] == 5000
    assert counts_of(running, "left_out").keys() == {"oversize"}
    assert running.stop() == 0


def take_batches_of(cluster: EmbeddedCluster, topic: str, size_max: int) -> None:
    admin = AdminClient({"bootstrap.servers": str(cluster.bootstrap[0])})
    set_to = AlterConfigOpType.SET
    entry = ConfigEntry("max.message.bytes", str(size_max), incremental_operation=set_to)
    resource = ConfigResource("TOPIC", topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_SECONDS)


def wait_halted_at(running: MirrorProcess, offset: int) -> dict[str, Any]:
    return running.wait_for(
        lambda told: [halt["position"] for halt in told["halts"]] == [offset], f"held at {offset}"
    )


@pytest.mark.parametrize("policy", ["pause_partition", "fail"])
def test_a_record_that_is_too_large_stands_until_it_is_left_out_or_taken(
    clusters: Clusters, mirror: MirrorFactory, policy: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 1, **{"max.message.bytes": "2000"})
    writer = producer(source)
    for number in range(5):
        value = b"x" * 5000 if number in (1, 3) else b"%d" % number
        writer.produce("flights", value, b"key", partition=0)
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, on={"oversize": policy})
    running.start()
    for offset in (1, 3):
        told = wait_halted_at(running, offset)
        (halt,) = told["halts"]
        assert (halt["reason"], halt["lost"]) == ("oversize", [offset, offset + 1])
        assert halt["stops_route"] is (policy == "fail")
        assert [event["details"]["reason"] for event in told["events"] if event["name"] == "trouble_met"]
        if policy == "fail":
            assert (told["state"], halt["problem"] in told["problem"]) == ("failed", True)
        else:
            (partition,) = told["partitions"]
            assert (partition["state"], partition["reason"]) == ("halted", "oversize")
        if offset == 3 and policy == "pause_partition":
            take_batches_of(destination, "jfk.flights", 9000)
            break
        assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [] and told["lag"]["messages"] == 0, "gone on")
    sizes = [len(message.value() or b"") for message in consume(destination, "jfk.flights", 1)]
    assert sizes == ([1, 1, 5000, 1] if policy == "pause_partition" else [1, 1, 1])
    notes = [json.loads(note.key() or b"")["offset"] for note in consume(destination, SKIPPED_TOPIC, 1)]
    assert notes == ([1] if policy == "pause_partition" else [1, 3])
    assert running.stop() == 0


def test_a_release_of_a_record_that_has_crossed_after_all_ends(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """The route was sent back before it, and the limit raised, while it paused."""
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 1, **{"max.message.bytes": "2000"})
    writer = producer(source)
    for number in range(3):
        writer.produce("flights", b"x" * 5000 if number == 1 else b"%d" % number, partition=0)
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination)
    running.start()
    wait_halted_at(running, 1)
    for verb, *options in (["pause"], ["seek", "--to", "earliest"], ["resume"]):
        done = mirrormaker(verb, str(running.file), "jfk-to-aggregate", *options)
        assert (done.returncode, done.stderr) == (0, "")
        if verb == "pause":  # not before: the record is tried again from time to time
            take_batches_of(destination, "jfk.flights", 9000)
    running.wait_for(lambda told: told["halts"] == [] and told["lag"]["messages"] == 0, "gone on")
    sizes = [len(message.value() or b"") for message in consume(destination, "jfk.flights", 1)]
    assert sizes == [1, 1, 5000, 1]
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        ({"transforms": [{"drop": {"fields": ["a"]}}]}, [b"{}", b"{}"]),
        ({"filters": [{"keep": {"json": {"field": "a", "in": [1, 2]}}}]}, [b'{"a": 1}', b'{"a": 2}']),
    ],
    ids=["step", "filter"],
)
def test_a_record_that_cannot_be_processed_stands_and_can_be_left_out(
    clusters: Clusters, mirror: MirrorFactory, keys: dict[str, Any], copied: list[bytes]
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    writer = producer(source)
    for value in (b'{"a": 1}', b"no json", b'{"a": 2}'):
        writer.produce("flights", value, b"key", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, **keys)
    running.start()
    told = running.wait_for(lambda told: bool(told["halts"]), "held")
    assert (told["halts"][0]["reason"], told["halts"][0]["position"]) == ("record_error", 1)
    assert told["counts"]["troubles"] == {"record_error": 1}
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [] and told["lag"]["messages"] == 0, "gone on")
    assert [message.value() for message in consume(destination, "jfk.flights", 1)] == copied
    assert running.stop() == 0


def test_a_record_stands_also_where_its_problem_is_told_with_half_of_a_surrogate_pair(
    clusters: Clusters, mirror: MirrorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = clusters
    (tmp_path / "checking.py").write_text(
        "import json\n"
        "def change(record):\n"
        "    if (carrier := json.loads(record.value)['c']) != 'UA':\n"
        "        raise ValueError(f'unknown carrier {carrier}')\n"
        "    return record\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    create(source, "flights", 1)
    writer = producer(source)
    for value in (b'{"c":"UA"}', b'{"c":"\\ud83d"}', b'{"c":"UA"}'):
        writer.produce("flights", value, b"key", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror(source, destination, transforms=[{"function": "checking:change"}])
    running.start()
    told = running.wait_for(lambda told: bool(told["halts"]), "held")
    assert (told["state"], told["halts"][0]["position"]) == ("running", 1)
    assert told["halts"][0]["problem"].endswith("ValueError: unknown carrier \\ud83d")
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["halts"] == [] and told["lag"]["messages"] == 0, "gone on")
    assert running.stop() == 0


def test_a_route_that_is_to_stop_says_why(clusters: Clusters, mirror: MirrorFactory) -> None:
    source, destination = clusters
    create(source, "flights", 1, **{"message.timestamp.type": "LogAppendTime"})
    produce(source, "flights", range(10), 1)
    running = mirror(source, destination, copy="shallow", on={"not_shallow": "fail"})
    running.start()
    told = running.wait_for(lambda told: told["state"] == "failed", "the route stops")
    assert "log_append_time" in told["problem"]
    assert [halt["reason"] for halt in told["halts"]] == ["not_shallow"]
    wait_until(lambda: running.process is not None and running.process.poll() is None, "the daemon goes on")
