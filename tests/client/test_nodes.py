"""The client against real nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerRecord, ConsumerSettings, OffsetReset
from broker.client.epoch_ends import EpochEnd, epoch_ends_found
from broker.client.group_offset_admin import ToEarliest
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import GroupSettings
from broker.client.offsets import EARLIEST, LATEST, list_offsets
from broker.client.producer import Producer, ProducerSettings
from broker.client.quota_admin import EntityQuotas, QuotaEntity
from broker.client.transactional_producer import TransactionalProducer
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import Codec
from broker.records.record_filter import RecordFilter
from broker.types import TopicPartition
from tests.client.running import QUICK, run, until, until_told
from tests.conftest import ClusterFactory

READ_ALL = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
QUICK_GROUP = GroupSettings(group_id="readers", session_timeout_ms=6_000, heartbeat_interval_ms=100)


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    taken: list[ConsumerRecord] = []
    while len(taken) < count:
        taken += await consumer.take(max_records=count - len(taken))
    return taken


def test_where_leader_epochs_end_is_told_of_each_partition_that_is_there(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            at, missing = TopicPartition("of-epochs", 0), TopicPartition("missing", 0)
            for count in (3, 4):
                async with Producer(client) as producer:
                    for _ in range(count):
                        await (await producer.send(at.topic, b"value", partition=0))
                if count == 3:
                    node.kill_node(1)
                    node.start_node(1)
            latest = (await list_offsets(client, {at: LATEST}))[at].leader_epoch
            for epoch, end in (
                (0, EpochEnd(0, 3)),
                (latest - 1, EpochEnd(0, 3)),
                (latest, EpochEnd(latest, 7)),
                (latest + 1, EpochEnd(-1, -1)),
            ):
                told = await epoch_ends_found(client, {at: epoch, missing: epoch}, timeout_ms=2_000)
                assert told.found == {at: end}
                assert told.failures.keys() == {missing}

    node = cluster("epochs")
    run(main)


def test_records_of_every_codec_come_back_as_they_were_sent(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            topic = TopicPartition("every-codec", 0)
            sent = []
            for codec in Codec:
                async with Producer(client, settings=ProducerSettings(codec=codec)) as producer:
                    for number in range(50):
                        record = (b"%d" % number, None if number % 7 == 0 else codec.name.encode() * number)
                        key, value = record
                        headers = [("codec", codec.name.encode()), ("empty", None)]
                        delivery = await producer.send(
                            topic.topic, value, key, timestamp_ms=1_000 + number, headers=headers
                        )
                        sent.append((key, value, 1_000 + number, headers))
                    assert (await delivery).offset == len(sent) - 1
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([topic])
                read = await take(consumer, len(sent))
                assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in read] == sent
                assert [record.offset for record in read] == list(range(len(sent)))

    node = cluster()
    run(main)


def test_raw_batches_pass_from_one_topic_to_another_untouched(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with (
            Cluster(node.bootstrap) as client,
            Producer(client, settings=ProducerSettings(codec=Codec.ZSTD, batch_bytes=2_000)) as producer,
            Consumer(client, settings=READ_ALL) as consumer,
        ):
            await producer.send_all([])
            for number in range(500):
                await producer.send("from", b"%d" % number * 20)
            await producer.flush()
            consumer.assign([TopicPartition("from", 0)])
            deliveries, position = [], 0
            while position < 500:
                fetched = await consumer.take_batches()
                assert fetched is not None
                position = fetched.next_offset
                for start, end in batch_bounds(fetched.records):
                    batch = fetched.records[start:end]
                    deliveries.append(await producer.send_batch(TopicPartition("to", 0), batch))
            assert len(deliveries) > 5
            await asyncio.gather(*deliveries)
            consumer.assign([TopicPartition("to", 0)])
            assert [record.value for record in await take(consumer, 500)] == [
                b"%d" % n * 20 for n in range(500)
            ]

    node = cluster()
    run(main)


def batch_bounds(records: memoryview) -> list[tuple[int, int]]:
    from broker.records.batch import iterate_batches

    return [(position, position + header.size) for position, header in iterate_batches(records)]


@pytest.mark.parametrize(
    "assignor", [RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()], ids=lambda a: a.name
)
def test_members_of_a_group_share_the_partitions_as_they_come_and_go(
    cluster: ClusterFactory, assignor: RangeAssignor
) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name="shared", partitions=6, replication_factor=1))
            consumers = [
                Consumer(client, settings=READ_ALL, group=QUICK_GROUP, assignors=[assignor]) for _ in range(3)
            ]
            for consumer in consumers:
                await consumer.start()
            consumers[0].subscribe(["shared"])
            await until(lambda: len(consumers[0].assignment) == 6)
            for consumer in consumers[1:]:
                consumer.subscribe(["shared"])
            await until(lambda: [len(consumer.assignment) for consumer in consumers] == [2, 2, 2])
            assert len(frozenset().union(*(consumer.assignment for consumer in consumers))) == 6
            await consumers.pop().close()
            await until(lambda: sorted(len(consumer.assignment) for consumer in consumers) == [3, 3])
            async with Producer(client) as producer:
                for number in range(60):
                    await producer.send("shared", b"%d" % number, partition=number % 6)
            seen: Counter[bytes | None] = Counter()
            while len(seen) < 60:
                for consumer in consumers:
                    seen.update(record.value for record in await consumer.take(timeout_ms=50))
            assert set(seen.values()) == {1}
            for consumer in consumers:
                await consumer.close()
            committed = await Admin(client).group_offsets("readers")
            assert {
                partition.partition: position.offset for partition, position in committed.items()
            } == dict.fromkeys(range(6), 10)

    node = cluster()
    run(main)


def test_a_group_goes_on_where_it_committed(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            async with Producer(client) as producer:
                for number in range(100):
                    await producer.send("events", b"%d" % number)
            settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=0)
            for first, count in ((0, 40), (40, 60)):
                async with Consumer(client, settings=settings, group=QUICK_GROUP) as consumer:
                    consumer.subscribe(
                        lambda metadata: [name for name in metadata.topics if name == "events"]
                    )
                    assert [record.offset for record in await take(consumer, count)] == list(
                        range(first, first + count)
                    )
                    await consumer.commit()

    node = cluster()
    run(main)


def test_a_node_killed_while_producing_loses_doubles_and_reorders_nothing(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap, backoff=QUICK) as client:
            await Admin(client).create_topic(NewTopic(name="t", partitions=2, replication_factor=1))
            deliveries = []
            settings = ProducerSettings(linger_ms=0, batch_bytes=500)
            async with Producer(client, settings=settings) as producer:
                for number in range(2_000):
                    deliveries.append(await producer.send("t", b"%06d" % number, partition=number % 2))
                    if number % 20 == 0:
                        await asyncio.sleep(0)
                    if number == 1_000:
                        await deliveries[500]
                        node.kill_node(1)
                        restart = asyncio.create_task(asyncio.to_thread(node.start_node, 1))
                await restart
                await producer.flush()
            assert [delivery.result().offset for delivery in deliveries] == [n // 2 for n in range(2_000)]
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
                read = await take(consumer, 2_000)
                assert await consumer.take(timeout_ms=100) == []
            for partition in (0, 1):
                assert [record.value for record in read if record.partition == partition] == [
                    b"%06d" % number for number in range(partition, 2_000, 2)
                ]

    node = cluster()
    run(main)


def test_topics_are_created_listed_described_grown_configured_and_deleted(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap, backoff=QUICK) as client:
            admin = Admin(client)
            made = NewTopic(
                name="made", partitions=2, replication_factor=1, configs={"retention.ms": "60000"}
            )
            await admin.create_topic(NewTopic(name="only-validated"), validate_only=True)
            assert await admin.create_topics([made, NewTopic(name="by-default")]) == {
                "made": None,
                "by-default": None,
            }
            with pytest.raises(ProtocolError, match="TOPIC_ALREADY_EXISTS: topic made"):
                await admin.create_topic(made)
            await until_told(["by-default", "made"], admin.list_topics)
            assert await admin.create_partitions({"made": 3}) == {"made": None}
            refused = await admin.create_partitions({"made": 1})
            assert refused["made"] is not None
            assert refused["made"].code is ErrorCode.INVALID_PARTITIONS
            await client.ensure(["made"])

            async def partitions() -> list[int]:
                return sorted((await admin.describe_topics(["made"]))["made"].partitions)

            async def retention() -> str | None:
                return (await admin.describe_topic_configs("made", ["retention.ms"]))["retention.ms"].value

            await until_told([0, 1, 2], partitions)
            with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic missing"):
                await admin.describe_topics(["missing"])
            await until_told("60000", retention)
            await admin.alter_topic_configs("made", {"retention.ms": "70000"})
            await until_told("70000", retention)
            assert (await admin.describe_topic_configs("made"))["retention.ms"].value == "70000"
            assert (await admin.describe_broker_configs(1))["broker.id"].value == "1"
            assert await admin.delete_topics(["made"]) == {"made": None}
            await until_told(["by-default"], admin.list_topics)

    node = cluster()
    run(main)


def test_groups_are_listed_described_moved_and_deleted(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap, backoff=QUICK) as client:
            admin = Admin(client)
            zero = TopicPartition("t", 0)
            async with Producer(client) as producer:
                for number in range(10):
                    await producer.send("t", b"%d" % number)
            async with Consumer(client, settings=READ_ALL, group=QUICK_GROUP) as consumer:
                consumer.subscribe(["t"])
                await take(consumer, 10)
                (listed,) = await admin.list_groups()
                assert (listed.group_id, listed.protocol_type) == ("readers", "consumer")
                group = (await admin.describe_groups(["readers"]))["readers"]
                assert (group.state, group.protocol, group.coordinator) == ("Stable", "range", 1)
                assert [member.assignment for member in group.members] == [(zero,)]
                with pytest.raises(ProtocolError):
                    await admin.reset_group_offsets("readers", {zero: 3})
                refused = (await admin.delete_groups(["readers"]))["readers"]
                assert refused is not None
                assert refused.code is ErrorCode.NON_EMPTY_GROUP
            assert await admin.group_offsets("readers") == {zero: OffsetAndMetadata(offset=10)}
            await admin.reset_group_offsets("readers", {zero: 3})
            assert (await admin.group_offsets("readers", [zero]))[zero].offset == 3
            assert await admin.delete_group_offsets("readers", [zero]) == {zero: None}
            assert await admin.group_offsets("readers", [zero]) == {}
            await admin.reset_group_offsets("readers", {zero: 5})
            assert await admin.delete_groups(["readers"]) == {"readers": None}
            assert await admin.list_groups() == []

    node = cluster()
    run(main)


def test_offsets_are_found_by_time_and_logs_are_cut_off(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            zero = TopicPartition("t", 0)
            async with Producer(client, settings=ProducerSettings(batch_bytes=200)) as producer:
                for number in range(20):
                    await producer.send("t", b"v", timestamp_ms=1_000_000 + number * 1_000)
            for when, offset in (
                (EARLIEST, 0),
                (LATEST, 20),
                (1_004_001, 5),
                (1_004_000, 4),
                (2_000_000, -1),
            ):
                assert (await list_offsets(client, {zero: when}))[zero].offset == offset
            assert await Admin(client).delete_records({zero: 7}) == {zero: 7}
            assert (await list_offsets(client, {zero: EARLIEST}))[zero].offset == 7
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign({zero: 2})
                assert (await consumer.take())[0].offset == 7

    node = cluster()
    run(main)


def test_reading_goes_on_at_a_time_at_the_beginning_and_at_the_end(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            zero = TopicPartition("t", 0)
            async with Producer(client, settings=ProducerSettings(batch_bytes=200)) as producer:
                for number in range(20):
                    await producer.send("t", b"%d" % number, timestamp_ms=1_000_000 + number * 1_000)
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([zero])
                await take(consumer, 3)
                for time_ms, offset in ((1_004_001, 5), (1_004_000, 4), (0, 0)):
                    await consumer.seek_to_time({zero: time_ms})
                    assert (await take(consumer, 1))[0].offset == offset
                await consumer.seek_to_time({zero: 2_000_000})
                assert consumer.position(zero) == 20
                await consumer.seek_to_beginning()
                assert (await take(consumer, 1))[0].offset == 0
                await consumer.seek_to_end()
                assert await consumer.take(timeout_ms=100) == []
            younger = replace(READ_ALL, offset_reset=OffsetReset.BY_DURATION, offset_reset_duration_ms=60_000)
            async with Producer(client) as producer:
                await (await producer.send("t", b"now"))
            async with Consumer(client, settings=younger) as consumer:
                consumer.assign([zero])
                assert [record.offset for record in await take(consumer, 1)] == [20]

    node = cluster()
    run(main)


def test_what_a_filter_does_not_match_is_passed_over_whoever_filters(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            zero = TopicPartition("t", 0)
            settings = ProducerSettings(codec=Codec.LZ4, batch_bytes=500)
            async with Producer(client, settings=settings) as producer:
                for number in range(300):
                    await producer.send("t", b'{"number": %d}' % number, b"%d" % (number % 3))
            filtering = replace(
                READ_ALL,
                record_filter=RecordFilter.parse('key = "1" and $.number < 200'),
                auto_commit_interval_ms=10,
                fetch_max_wait_ms=50,
            )
            async with Consumer(client, settings=filtering, group=QUICK_GROUP) as consumer:
                consumer.subscribe(["t"])
                found: list[int] = []
                while not consumer.assignment or consumer.position(zero) != 300:
                    found += [record.offset for record in await consumer.take(50)]
                assert found == list(range(1, 200, 3))
            assert await Admin(client).group_offsets("readers") == {zero: OffsetAndMetadata(offset=300)}

    node = cluster()
    run(main)


def test_nodes_quotas_replicas_lags_producers_and_transactions_are_administered(
    cluster: ClusterFactory,
) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap, backoff=QUICK) as client:
            admin = Admin(client)
            zero = TopicPartition("t", 0)
            await admin.alter_broker_configs(None, {"message.max.bytes": "2000000"})
            await admin.alter_broker_configs(1, {"log.cleaner.threads": "2"})

            async def configs() -> dict[str, str | None]:
                names = ["message.max.bytes", "log.cleaner.threads"]
                described = await admin.describe_broker_configs(1, names)
                return {name: entry.value for name, entry in described.items()}

            await until_told({"message.max.bytes": "2000000", "log.cleaner.threads": "2"}, configs)
            entity: QuotaEntity = {"client-id": "slow"}
            quotas = {"producer_byte_rate": 1_000_000.0}
            await admin.alter_quotas(entity, quotas)
            told = [EntityQuotas(entity=entity, quotas=quotas)]
            await until_told(told, lambda: admin.describe_quotas(entity))
            await admin.create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
            await client.ensure(["t"])
            elected = (await admin.elect_leaders([zero]))[zero]
            assert elected is not None
            assert elected.code is ErrorCode.ELECTION_NOT_NEEDED
            assert (await admin.reassign({zero: [1]}))[zero] is None
            assert await admin.reassignments() == {}
            found = await admin.find_partitions(["t"])
            assert found[zero].replicas == (1,)
            assert await admin.find_partitions(["t"], under_replicated=True) == {}
            transactional = ProducerSettings(transactional_id="x")
            async with TransactionalProducer(client, settings=transactional) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await (await producer.send("t", b"open"))
                (writer,) = await admin.describe_producers(zero)
                assert writer.first_offset == 0
                transaction = (await admin.describe_transactions(["x"]))["x"]
                assert (transaction.state, transaction.partitions) == ("Ongoing", (zero,))
                assert [each.transactional_id for each in await admin.list_transactions()] == ["x"]
                hanging = await admin.find_hanging_transactions([zero], heard_before_ms=writer.heard_ms)
                assert hanging == [], "its coordinator knows it"
                await producer.commit_transaction()
            await admin.reset_group_offsets("readers", {zero: 1})
            assert (await admin.group_lags("readers"))[zero].lag == 1
            assert await admin.move_group_offsets("readers", ToEarliest()) == {zero: 0}

    node = cluster()
    run(main)
